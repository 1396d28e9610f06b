//! Listing the counters of several servers, one server after the other.

use super::super::stored::Place;
use super::{By, Spread};
use crate::store::{Store as _, StoreError, StoredFilter, StoredKey, StoredPage};

impl Spread {
    pub(super) async fn stored(
        &self,
        filter: &StoredFilter,
        cursor: u64,
        count: usize,
    ) -> Result<Option<StoredPage>, StoreError> {
        // A cluster lists its nodes by itself.
        if matches!(self.by, By::Slots) {
            return self.servers[0].store.stored(filter, cursor, count).await;
        }
        let at = Place::of(cursor);
        let Some(server) = self.servers.get(at.node) else {
            return Ok(Some(StoredPage { keys: Vec::new(), cursor: None }));
        };
        let page =
            server.store.stored(filter, at.cursor, count).await.map_err(|error| server.named(error))?;
        let Some(page) = page else { return Ok(None) };
        let cursor = at.next(page.cursor.unwrap_or(0), self.servers.len())?;
        let named = |key: StoredKey| StoredKey { server: Some(server.name.clone()), ..key };
        Ok(Some(StoredPage { keys: page.keys.into_iter().map(named).collect(), cursor }))
    }
}
