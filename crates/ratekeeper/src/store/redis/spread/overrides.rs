//! Overrides over several servers: each is where the counters of its organisation are.

use ratekeeper_core::{Override, OverrideScope};

use super::{Spread, SpreadStore, all};
use crate::store::{Overrides, ScopedOverride, Store as _, StoreError, StoreFuture};

impl Spread {
    /// Those in force on all servers. One that is where its organisation is no longer, because servers were added or
    /// taken away, applies to nothing: it is logged and not listed.
    async fn all_overrides(&self) -> Result<Vec<ScopedOverride>, StoreError> {
        let found = all(self.servers.iter().map(|server| async move {
            let found = server.store.overrides().all().await.map_err(|error| server.named(&error))?;
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
            Ok(in_force)
        }));
        let found: Result<Vec<Vec<ScopedOverride>>, StoreError> = found.await.into_iter().collect();
        let mut found: Vec<ScopedOverride> = found?.into_iter().flatten().collect();
        found.sort_by(|left, right| left.by().cmp(&right.by()));
        Ok(found)
    }
}

impl SpreadStore {
    fn home(&self, organisation: &str) -> &dyn Overrides {
        self.inner.home_of(organisation).store.overrides()
    }
}

impl Overrides for SpreadStore {
    fn set<'a>(&'a self, scope: OverrideScope<'a>, to: Override) -> StoreFuture<'a, ()> {
        self.home(scope.organisation_id()).set(scope, to)
    }

    fn get<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, Option<Override>> {
        self.home(scope.organisation_id()).get(scope)
    }

    fn delete<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, bool> {
        self.home(scope.organisation_id()).delete(scope)
    }

    fn list<'a>(
        &'a self,
        organisation: &'a str,
        project: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<(String, Override)>> {
        self.home(organisation).list(organisation, project)
    }

    fn all(&self) -> StoreFuture<'_, Vec<ScopedOverride>> {
        StoreFuture::pending(self.inner.all_overrides())
    }

    fn clear<'a>(&'a self, organisation: &'a str, project: Option<&'a str>) -> StoreFuture<'a, usize> {
        self.home(organisation).clear(organisation, project)
    }
}
