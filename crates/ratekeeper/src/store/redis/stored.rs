//! Counters that are found on the server, a bounded part of its keys at a time.

use std::time::Duration;

use ::redis::{Cmd, cmd};

use super::Inner;
use super::layout::{Layout, StoredName};
use super::overrides::SCAN_COUNT;
use crate::store::{StoreError, StoredFilter, StoredKey, StoredPage};

/// The most keys one page has.
pub const STORED_PAGE_MAX: usize = 1_000;
/// SCAN steps of one page: where few keys match, a page may be empty and say where to go on.
const STEPS_MAX: usize = 50;

impl Inner {
    /// The keys that a filter finds from `cursor` on, about `count` of them.
    pub(super) async fn stored_page(
        &self,
        filter: &StoredFilter,
        cursor: u64,
        count: usize,
    ) -> Result<StoredPage, StoreError> {
        let (pattern, count) = (self.layout.stored_pattern(filter), count.clamp(1, STORED_PAGE_MAX));
        let mut page = StoredPage { keys: Vec::new(), cursor: Some(cursor) };
        let mut names: Vec<(StoredName, Vec<u8>)> = Vec::new();
        if let Some(only) = Layout::stored_only(filter) {
            page.cursor = None;
            let counters = self.counters_of(&only.rule, only.subject.as_bytes()).await?;
            page.keys.extend((!counters.is_empty()).then(|| StoredKey { counters, ..only.found() }));
            return Ok(page);
        }
        for _ in 0..STEPS_MAX {
            let mut scan = cmd("SCAN");
            // No more at a time than a page may still take: what a step finds cannot be put back.
            let step = SCAN_COUNT.min(STORED_PAGE_MAX);
            scan.arg(page.cursor.unwrap_or(0)).arg("MATCH").arg(&pattern).arg("COUNT").arg(step);
            let (next, found): (u64, Vec<Vec<u8>>) = self.send(scan).await?;
            let named =
                found.into_iter().filter_map(|key| Some((self.layout.stored_name(&key, filter)?, key)));
            names.extend(named);
            page.cursor = (next != 0).then_some(next);
            if page.cursor.is_none() || names.len() >= count {
                break;
            }
        }
        for (name, key) in names {
            page.keys.push(self.stored_key(name, &key).await?);
        }
        Ok(page)
    }

    async fn stored_key(&self, name: StoredName, key: &[u8]) -> Result<StoredKey, StoreError> {
        let (kind, mut stored) = (name.kind, name.found());
        match kind {
            // Others may have put something else there; it must not hide the rest.
            b'c' | b'd' => {
                stored.counters = self.counters_at(self.end_of_call(), key).await.unwrap_or_default();
            }
            b'k' => {
                let value: Option<Vec<u8>> = self.send(Cmd::get(key)).await.unwrap_or_default();
                stored.used = value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok());
                let left: i64 = self.send(Cmd::pttl(key)).await?;
                stored.ends_after = u64::try_from(left).ok().map(Duration::from_millis);
            }
            _ => {}
        }
        Ok(stored)
    }
}
