//! Counters that are found on the server, a bounded part of its keys at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use ::redis::{Cmd, cmd, from_redis_value};

use super::Inner;
use super::answer::garbled;
use super::cluster::NODES_MAX;
use super::layout::{Layout, StoredName};
use super::overrides::SCAN_COUNT;
use super::route::{Part, send};
use crate::store::{StoreError, StoredFilter, StoredKey, StoredPage};

/// The most keys one page has.
pub const STORED_PAGE_MAX: usize = 1_000;
/// SCAN steps of one page: where few keys match, a page may be empty and say where to go on.
const STEPS_MAX: usize = 50;

/// Where a listing goes on: which of several servers, and the cursor of SCAN there. The server is in the highest
/// bits: a cursor of SCAN is below the size of a table, which on a cluster is that of a slot beside the slot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: usize,
    pub(super) cursor: u64,
}

/// Bits of a cursor of SCAN: in those above there is room for the number of every node.
const CURSOR_BITS: u32 = 54;
const _: () = assert!(NODES_MAX <= 1 << (u64::BITS - CURSOR_BITS), "a cursor has no room for every node");

impl Place {
    pub(super) const fn of(cursor: u64) -> Self {
        Self { node: (cursor >> CURSOR_BITS) as usize, cursor: cursor & ((1 << CURSOR_BITS) - 1) }
    }

    /// Where to go on behind `cursor`, which is 0 at the end of a server, among so many servers.
    pub(super) fn next(self, cursor: u64, nodes: usize) -> Result<Option<u64>, StoreError> {
        if cursor >> CURSOR_BITS != 0 || nodes > NODES_MAX {
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
            let mut by_part: BTreeMap<Part, StoredKey> = BTreeMap::new();
            let at = |part| StoredKey { server: self.server_of(part), ..only.clone().found() };
            for (part, counter) in self.counters_of(&only.rule, only.subject.as_bytes()).await? {
                by_part.entry(part).or_insert_with(|| at(part)).counters.push(counter);
            }
            for (part, list) in self.lists_of(&only.rule, only.subject.as_bytes()).await? {
                by_part.entry(part).or_insert_with(|| at(part)).lists.push(list);
            }
            page.keys.extend(by_part.into_values());
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
            let found = send(node.link(), self.end_of_call(), &scan).await;
            let found = found.map_err(|error| self.of_node(node, error))?;
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
                let left = self.send::<i64>(part, Cmd::pttl(key)).await;
                let left = left.map_err(|error| self.named(part, error))?;
                stored.ends_after = u64::try_from(left).ok().map(Duration::from_millis);
            }
            _ => {}
        }
        Ok(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_where_it_was_on_every_node() {
        let last = (1 << CURSOR_BITS) - 1;
        for node in [0, 1, 255, 256, 511, NODES_MAX - 1] {
            for cursor in [1, 1 << 40, last] {
                let at = Place { node, cursor: 7 };
                let next = at.next(cursor, NODES_MAX).unwrap().unwrap();
                assert_eq!(Place::of(next), Place { node, cursor }, "{node} {cursor}");
            }
            let next = Place { node, cursor: 7 }.next(0, NODES_MAX).unwrap().map(Place::of);
            let following = Place { node: node + 1, cursor: 0 };
            assert_eq!(next, (following.node < NODES_MAX).then_some(following));
        }
        let first = Place::of(0);
        assert!(first.next(last + 1, 3).is_err(), "no cursor of SCAN");
        assert!(first.next(1, NODES_MAX + 1).is_err(), "more nodes than there can be");
    }
}
