//! Counters that are found on the server, a bounded part of its keys at a time.

use std::time::Duration;

use ::redis::{Cmd, cmd, from_redis_value};

use super::Inner;
use super::answer::garbled;
use super::layout::{Layout, StoredName};
use super::overrides::SCAN_COUNT;
use super::route::send;
use crate::store::{StoreError, StoredFilter, StoredKey, StoredPage};

/// The most keys one page has.
pub const STORED_PAGE_MAX: usize = 1_000;
/// SCAN steps of one page: where few keys match, a page may be empty and say where to go on.
const STEPS_MAX: usize = 50;

/// Where a listing goes on: which of several servers, and the cursor of SCAN there. The server is in the highest
/// byte: a cursor of SCAN is below the size of a table.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: usize,
    pub(super) cursor: u64,
}

const CURSOR_BITS: u32 = 56;

impl Place {
    pub(super) const fn of(cursor: u64) -> Self {
        Self { node: (cursor >> CURSOR_BITS) as usize, cursor: cursor & ((1 << CURSOR_BITS) - 1) }
    }

    /// Where to go on behind `cursor`, which is 0 at the end of a server, among so many servers.
    pub(super) fn next(self, cursor: u64, nodes: usize) -> Result<Option<u64>, StoreError> {
        if cursor >> CURSOR_BITS != 0 {
            return Err(garbled());
        }
        let node = if cursor == 0 { self.node + 1 } else { self.node };
        Ok((node < nodes).then_some((node as u64) << CURSOR_BITS | cursor))
    }
}

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
        let mut names: Vec<(StoredName, Vec<u8>, usize)> = Vec::new();
        if let Some(only) = Layout::stored_only(filter) {
            page.cursor = None;
            let counters = self.counters_of(&only.rule, only.subject.as_bytes()).await?;
            let lists = self.lists_of(&only.rule, only.subject.as_bytes()).await?;
            let is_empty = counters.is_empty() && lists.is_empty();
            page.keys.extend((!is_empty).then(|| StoredKey { counters, lists, ..only.found() }));
            return Ok(page);
        }
        let nodes = self.route.nodes().await?;
        for _ in 0..STEPS_MAX {
            let at = Place::of(page.cursor.unwrap_or(0));
            // A node that is there no more has nothing to show.
            let Some(node) = nodes.get(at.node) else {
                page.cursor = None;
                break;
            };
            let mut scan = cmd("SCAN");
            // No more at a time than a page may still take: what a step finds cannot be put back.
            let step = SCAN_COUNT.min(STORED_PAGE_MAX);
            scan.arg(at.cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(step);
            let found = send(node.link(), self.end_of_call(), &scan).await?;
            let (cursor, found): (u64, Vec<Vec<u8>>) = from_redis_value(found).map_err(|_| garbled())?;
            let named = found
                .into_iter()
                .filter_map(|key| Some((self.layout.stored_name(&key, filter)?, key, at.node)));
            names.extend(named);
            page.cursor = at.next(cursor, nodes.len())?;
            if page.cursor.is_none() || names.len() >= count {
                break;
            }
        }
        for (name, key, node) in names {
            // A server by itself needs no name.
            let server = nodes.get(node).filter(|_| self.route.cluster().is_some());
            let server = server.map(|node| node.link().server.clone());
            page.keys.push(StoredKey { server, ..self.stored_key(name, &key).await? });
        }
        Ok(page)
    }

    async fn stored_key(&self, name: StoredName, key: &[u8]) -> Result<StoredKey, StoreError> {
        let (kind, mut stored, part) = (name.kind, name.found(), self.layout.part_of_key(key));
        match kind {
            // Others may have put something else there; it must not hide the rest.
            b'c' | b'd' => {
                stored.counters = self.counters_at(self.end_of_call(), part, key).await.unwrap_or_default();
            }
            b'l' | b'h' => {
                stored.lists = self.lists_at(self.end_of_call(), part, key).await.unwrap_or_default();
            }
            b'k' => {
                let value: Option<Vec<u8>> = self.send(part, Cmd::get(key)).await.unwrap_or_default();
                stored.used = value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok());
                let left: i64 = self.send(part, Cmd::pttl(key)).await?;
                stored.ends_after = u64::try_from(left).ok().map(Duration::from_millis);
            }
            _ => {}
        }
        Ok(stored)
    }
}
