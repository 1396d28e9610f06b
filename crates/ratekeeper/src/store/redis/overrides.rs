//! Overrides as Application Kit keeps them: a hash each, found with SCAN.
//! The key's time to live ends with the override. On a cluster every node is looked through.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use ratekeeper_core::{Override, OverrideScope};
use tokio::time::Instant;

use super::answer::garbled;
use super::lane::Lane;
use super::route::{Part, send};
use super::{Inner, RedisStore, TEST_TTL_MILLIS, override_hash};
use crate::store::{Overrides, ScopedOverride, StoreError, StoreErrorKind, StoreFuture};

/// What PTTL says of a key that is no longer there.
const GONE: i64 = -2;
/// Keys one SCAN step looks at.
pub(super) const SCAN_COUNT: usize = 1_000;
/// Overrides one listing returns at most.
const LISTED_MAX: usize = 100_000;
/// Puts an override in the place of another, in one step. ARGV: its time to live in
/// milliseconds, or none; then its fields.
const REPLACE: &str = "\
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
if ARGV[1] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end";

impl Inner {
    /// When a call that begins now must be over.
    pub(super) fn end_of_call(&self) -> Instant {
        self.route.end_of_call()
    }

    /// Sends a command about keys of a part and reads its answer: a call by itself.
    pub(super) async fn send<T: FromRedisValue>(&self, part: Part, command: Cmd) -> Result<T, StoreError> {
        self.send_until(self.end_of_call(), part, command).await
    }

    /// The same as a step of a call, which must be over by `end`.
    pub(super) async fn send_until<T: FromRedisValue>(
        &self,
        end: Instant,
        part: Part,
        command: Cmd,
    ) -> Result<T, StoreError> {
        let value = self.route.way(part).send_until(end, command).await?;
        from_redis_value(value).map_err(|_| garbled())
    }

    pub(super) fn is_clock_given(&self) -> bool {
        self.ttl_millis_min == TEST_TTL_MILLIS
    }

    /// Says which node of a cluster it was that failed.
    pub(super) fn of_node(&self, node: &Lane, error: StoreError) -> StoreError {
        if self.route.cluster().is_some() { error.at(&node.link().server) } else { error }
    }

    fn override_key(&self, scope: OverrideScope<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        self.layout.override_of(scope, &mut key);
        key
    }

    async fn set_override(&self, scope: OverrideScope<'_>, to: Override) -> Result<(), StoreError> {
        to.validate()?;
        let key = self.override_key(scope);
        let now = self.route.now();
        let left = to.expires_at.map(|end| end.as_micros().saturating_sub(now.as_micros()));
        let millis = left.map(|left| left.div_ceil(1_000).max(self.ttl_millis_min).to_string());
        let mut replace = cmd("EVAL");
        replace.arg(REPLACE).arg(1).arg(&key).arg(millis.unwrap_or_default());
        for (name, value) in override_hash::write(&to) {
            replace.arg(name).arg(value);
        }
        let part = self.layout.part_of_organisation(scope.organisation_id());
        self.send::<()>(part, replace).await.map_err(|error| self.named(part, error))
    }

    /// The override at a key, if it is live.
    async fn override_at(
        &self,
        end: Instant,
        part: Part,
        key: &[u8],
    ) -> Result<Option<Override>, StoreError> {
        self.read_override(end, part, key).await.map_err(|error| self.named(part, error))
    }

    async fn read_override(
        &self,
        end: Instant,
        part: Part,
        key: &[u8],
    ) -> Result<Option<Override>, StoreError> {
        let fields: HashMap<Vec<u8>, Vec<u8>> = self.send_until(end, part, Cmd::hgetall(key)).await?;
        if fields.is_empty() {
            return Ok(None);
        }
        // Others may keep what they like in fields of their own.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        let Some(mut found) = override_hash::read(&fields)? else { return Ok(None) };
        // A clock that is given knows nothing of the time to live, which is the server's.
        if !self.is_clock_given() || found.expires_at.is_none() {
            let left: i64 = self.send_until(end, part, Cmd::pttl(key)).await?;
            if left == GONE {
                return Ok(None);
            }
            let left = u64::try_from(left).ok().map(Duration::from_millis);
            let key_ends = left.map(|left| self.route.now().after(left));
            found.expires_at = override_hash::end(found.expires_at, key_ends);
        }
        Ok(Some(found).filter(|found| found.is_live(self.route.now())))
    }

    /// As many steps as there are keys on the server: each has a total of its own.
    async fn keys_of(
        &self,
        organisation: &str,
        project: Option<&str>,
    ) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        let pattern = self.layout.override_pattern(organisation, project);
        self.scanned(&pattern, |key| self.layout.endpoint_of(key, organisation, project)).await
    }

    /// The keys that a pattern finds, by what `name` makes of them; those that it knows nothing of are others'.
    async fn scanned<N: Ord>(
        &self,
        pattern: &[u8],
        name: impl Fn(&[u8]) -> Option<N>,
    ) -> Result<BTreeMap<N, Vec<u8>>, StoreError> {
        let mut keys = BTreeMap::new();
        for node in self.route.nodes().await? {
            let mut cursor = 0u64;
            loop {
                let mut scan = cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
                let page = send(node.link(), self.end_of_call(), &scan).await;
                let page = page.map_err(|error| self.of_node(&node, error))?;
                let (next, found): (u64, Vec<Vec<u8>>) = from_redis_value(page).map_err(|_| garbled())?;
                keys.extend(found.into_iter().filter_map(|key| Some((name(&key)?, key))));
                if keys.len() > LISTED_MAX {
                    return Err(StoreError::capacity(format!("more than {LISTED_MAX} overrides")));
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(keys)
    }

    async fn list(
        &self,
        organisation: &str,
        project: Option<&str>,
    ) -> Result<Vec<(String, Override)>, StoreError> {
        let part = self.layout.part_of_organisation(organisation);
        self.read_all(self.keys_of(organisation, project).await?, |_| part).await
    }

    /// The overrides at these keys, with their names.
    async fn read_all<N>(
        &self,
        keys: BTreeMap<N, Vec<u8>>,
        part: impl Fn(&N) -> Part,
    ) -> Result<Vec<(N, Override)>, StoreError> {
        let mut list = Vec::new();
        for (name, key) in keys {
            match self.override_at(self.end_of_call(), part(&name), &key).await {
                Ok(Some(found)) => list.push((name, found)),
                Ok(None) => {}
                // One that others spoilt must not hide the rest.
                Err(error) if error.kind() == StoreErrorKind::Unreadable => {
                    tracing::warn!(key = ?String::from_utf8_lossy(&key), %error, "an override is not listed");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(list)
    }

    async fn all_overrides(&self) -> Result<Vec<ScopedOverride>, StoreError> {
        let mut all = Vec::new();
        for of_projects in [false, true] {
            let pattern = self.layout.overrides_pattern(of_projects);
            let keys = self.scanned(&pattern, |key| self.layout.scope_of(key, of_projects)).await?;
            let part = |(_, organisation, _): &(String, String, Option<String>)| {
                self.layout.part_of_organisation(organisation)
            };
            let found = self.read_all(keys, part).await?.into_iter();
            all.extend(found.map(|((endpoint, organisation, project), to)| {
                let server = self.server_of(self.layout.part_of_organisation(&organisation));
                ScopedOverride { endpoint, organisation, project, to, server }
            }));
        }
        all.sort_by(|left, right| left.by().cmp(&right.by()));
        Ok(all)
    }

    async fn delete(&self, part: Part, key: &[u8]) -> Result<bool, StoreError> {
        let end = self.end_of_call();
        let is_live = self.override_at(end, part, key).await.map_or(true, |found| found.is_some());
        let deleted = self.send_until::<usize>(end, part, Cmd::del(key)).await;
        Ok(deleted.map_err(|error| self.named(part, error))? > 0 && is_live)
    }

    async fn clear(&self, organisation: &str, project: Option<&str>) -> Result<usize, StoreError> {
        let (part, mut cleared) = (self.layout.part_of_organisation(organisation), 0);
        for key in self.keys_of(organisation, project).await?.values() {
            cleared += usize::from(self.delete(part, key).await?);
        }
        Ok(cleared)
    }
}

impl Overrides for RedisStore {
    fn set<'a>(&'a self, scope: OverrideScope<'a>, to: Override) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.inner.set_override(scope, to))
    }

    fn get<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, Option<Override>> {
        let inner = &self.inner;
        StoreFuture::pending(async move {
            let part = inner.layout.part_of_organisation(scope.organisation_id());
            inner.override_at(inner.end_of_call(), part, &inner.override_key(scope)).await
        })
    }

    fn delete<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, bool> {
        let part = self.inner.layout.part_of_organisation(scope.organisation_id());
        StoreFuture::pending(async move { self.inner.delete(part, &self.inner.override_key(scope)).await })
    }

    fn list<'a>(
        &'a self,
        organisation: &'a str,
        project: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<(String, Override)>> {
        StoreFuture::pending(self.inner.list(organisation, project))
    }

    fn all(&self) -> StoreFuture<'_, Vec<ScopedOverride>> {
        StoreFuture::pending(self.inner.all_overrides())
    }

    fn clear<'a>(&'a self, organisation: &'a str, project: Option<&'a str>) -> StoreFuture<'a, usize> {
        StoreFuture::pending(self.inner.clear(organisation, project))
    }
    fn server_of(&self, organisation: &str) -> Option<String> {
        self.inner.server_of(self.inner.layout.part_of_organisation(organisation))
    }
}
