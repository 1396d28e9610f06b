//! Overrides as Application Kit keeps them: a hash each, found with SCAN.
//! The key's time to live ends with the override.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use ratekeeper_core::{Override, OverrideScope};

use super::answer::garbled;
use super::{Inner, RedisStore, TEST_TTL_MILLIS, override_hash};
use crate::store::{Overrides, StoreError, StoreErrorKind, StoreFuture};

/// What PTTL says of a key that is no longer there.
const GONE: i64 = -2;
/// Keys one SCAN step looks at.
const SCAN_COUNT: usize = 1_000;
/// Overrides one listing returns at most.
const LISTED_MAX: usize = 100_000;
/// Puts an override in the place of another, in one step. ARGV: its time to live in
/// milliseconds, or none; then its fields.
const REPLACE: &str = "\
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
if ARGV[1] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end";

impl Inner {
    /// Sends a command and reads its answer.
    pub(super) async fn send<T: FromRedisValue>(&self, command: Cmd) -> Result<T, StoreError> {
        let link = self.lane().link();
        let value = link.send(|mut link| async move { link.send_packed_command(&command).await }).await?;
        from_redis_value(value).map_err(|_| garbled())
    }

    fn is_clock_given(&self) -> bool {
        self.ttl_millis_min == TEST_TTL_MILLIS
    }

    fn override_key(&self, scope: OverrideScope<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        self.layout.override_of(scope, &mut key);
        key
    }

    async fn set_override(&self, scope: OverrideScope<'_>, to: Override) -> Result<(), StoreError> {
        to.validate()?;
        let key = self.override_key(scope);
        let now = self.lane().now();
        let left = to.expires_at.map(|end| end.as_micros().saturating_sub(now.as_micros()));
        let millis = left.map(|left| left.div_ceil(1_000).max(self.ttl_millis_min).to_string());
        let mut replace = cmd("EVAL");
        replace.arg(REPLACE).arg(1).arg(&key).arg(millis.unwrap_or_default());
        for (name, value) in override_hash::write(&to) {
            replace.arg(name).arg(value);
        }
        self.send::<()>(replace).await
    }

    async fn override_at(&self, key: &[u8]) -> Result<Option<Override>, StoreError> {
        let fields: HashMap<Vec<u8>, Vec<u8>> = self.send(Cmd::hgetall(key)).await?;
        if fields.is_empty() {
            return Ok(None);
        }
        // Others may keep what they like in fields of their own.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        let Some(mut found) = override_hash::read(&fields)? else { return Ok(None) };
        // A clock that is given knows nothing of the time to live, which is the server's.
        if !self.is_clock_given() || found.expires_at.is_none() {
            let left: i64 = self.send(Cmd::pttl(key)).await?;
            if left == GONE {
                return Ok(None);
            }
            let left = u64::try_from(left).ok().map(Duration::from_millis);
            let key_ends = left.map(|left| self.lane().now().after(left));
            found.expires_at = override_hash::end(found.expires_at, key_ends);
        }
        Ok(Some(found).filter(|found| found.is_live(self.lane().now())))
    }

    async fn keys_of(
        &self,
        organisation: &str,
        project: Option<&str>,
    ) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        let pattern = self.layout.override_pattern(organisation, project);
        let mut keys = BTreeMap::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, found): (u64, Vec<Vec<u8>>) = self.send(scan).await?;
            for key in found {
                if let Some(endpoint) = self.layout.endpoint_of(&key, organisation, project) {
                    keys.insert(endpoint, key);
                }
            }
            if keys.len() > LISTED_MAX {
                return Err(StoreError::capacity(format!("more than {LISTED_MAX} overrides")));
            }
            cursor = next;
            if cursor == 0 {
                return Ok(keys);
            }
        }
    }

    async fn list(
        &self,
        organisation: &str,
        project: Option<&str>,
    ) -> Result<Vec<(String, Override)>, StoreError> {
        let mut list = Vec::new();
        for (endpoint, key) in self.keys_of(organisation, project).await? {
            match self.override_at(&key).await {
                Ok(Some(found)) => list.push((endpoint, found)),
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

    async fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let is_live = self.override_at(key).await.map_or(true, |found| found.is_some());
        let deleted: usize = self.send(Cmd::del(key)).await?;
        Ok(deleted > 0 && is_live)
    }

    async fn clear(&self, organisation: &str, project: Option<&str>) -> Result<usize, StoreError> {
        let mut cleared = 0;
        for key in self.keys_of(organisation, project).await?.values() {
            cleared += usize::from(self.delete(key).await?);
        }
        Ok(cleared)
    }
}

impl Overrides for RedisStore {
    fn set<'a>(&'a self, scope: OverrideScope<'a>, to: Override) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.inner.set_override(scope, to))
    }

    fn get<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, Option<Override>> {
        StoreFuture::pending(async move { self.inner.override_at(&self.inner.override_key(scope)).await })
    }

    fn delete<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, bool> {
        StoreFuture::pending(async move { self.inner.delete(&self.inner.override_key(scope)).await })
    }

    fn list<'a>(
        &'a self,
        organisation: &'a str,
        project: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<(String, Override)>> {
        StoreFuture::pending(self.inner.list(organisation, project))
    }

    fn clear<'a>(&'a self, organisation: &'a str, project: Option<&'a str>) -> StoreFuture<'a, usize> {
        StoreFuture::pending(self.inner.clear(organisation, project))
    }
}
