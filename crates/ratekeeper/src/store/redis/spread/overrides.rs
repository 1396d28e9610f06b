//! Overrides over several servers: each is where the counters of its organisation are.

use ratekeeper_core::{Override, OverrideScope};

use super::{By, Spread, SpreadStore, all};
use crate::store::{Overrides, ScopedOverride, Store as _, StoreError, StoreFuture};

impl Spread {
    /// Those in force on all servers. One that is where its organisation is no longer, because servers were added or
    /// taken away, applies to nothing: it is logged and not listed.
    async fn all_overrides(&self) -> Result<Vec<ScopedOverride>, StoreError> {
        // A cluster says by itself on which nodes they are, and which failed.
        if matches!(self.by, By::Slots) {
            return self.servers[0].store.overrides().all().await;
        }
        let found = all(self.servers.iter().map(|server| async move {
            let found = server.store.overrides().all().await.map_err(|error| server.named(error))?;
            let is_home = |one: &ScopedOverride| std::ptr::eq(self.home_of(&one.organisation), server);
            let (in_force, left): (Vec<_>, Vec<_>) = found.into_iter().partition(is_home);
            if let Some(one) = left.first() {
                let (server, organisation, count) = (&server.name, &one.organisation, left.len());
                tracing::warn!(
                    %server,
                    count,
                    organisation,
                    "overrides are on a server where their organisations are no longer: set them again"
                );
            }
            let named = |one| ScopedOverride { server: Some(server.name.clone()), ..one };
            Ok(in_force.into_iter().map(named).collect())
        }));
        let found: Result<Vec<Vec<ScopedOverride>>, StoreError> = found.await.into_iter().collect();
        let mut found: Vec<ScopedOverride> = found?.into_iter().flatten().collect();
        found.sort_by(|left, right| left.by().cmp(&right.by()));
        Ok(found)
    }
}

impl SpreadStore {
    /// Asks the server that has an organisation's overrides, and says which it was if that fails. A cluster says by
    /// itself which node.
    fn at_home<'a, T: Send + 'a>(
        &'a self,
        organisation: &str,
        ask: impl FnOnce(&'a dyn Overrides) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let server = self.inner.home_of(organisation);
        let answer = ask(server.store.overrides());
        match self.inner.by {
            By::Slots => answer,
            By::Servers(_) => {
                StoreFuture::pending(async move { answer.await.map_err(|error| server.named(error)) })
            }
        }
    }
}

impl Overrides for SpreadStore {
    fn set<'a>(&'a self, scope: OverrideScope<'a>, to: Override) -> StoreFuture<'a, ()> {
        self.at_home(scope.organisation_id(), move |home| home.set(scope, to))
    }

    fn get<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, Option<Override>> {
        self.at_home(scope.organisation_id(), move |home| home.get(scope))
    }

    fn delete<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, bool> {
        self.at_home(scope.organisation_id(), move |home| home.delete(scope))
    }

    fn list<'a>(
        &'a self,
        organisation: &'a str,
        project: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<(String, Override)>> {
        self.at_home(organisation, move |home| home.list(organisation, project))
    }

    fn all(&self) -> StoreFuture<'_, Vec<ScopedOverride>> {
        StoreFuture::pending(self.inner.all_overrides())
    }

    fn clear<'a>(&'a self, organisation: &'a str, project: Option<&'a str>) -> StoreFuture<'a, usize> {
        self.at_home(organisation, move |home| home.clear(organisation, project))
    }

    fn server_of(&self, organisation: &str) -> Option<String> {
        let home = self.inner.home_of(organisation);
        match self.inner.by {
            By::Slots => home.store.overrides().server_of(organisation),
            By::Servers(_) => Some(home.name.clone()),
        }
    }
}
