//! The audit log as a list, the newest line last, cut to its bound with every line.

use ::redis::{Cmd, cmd};

use super::{Inner, RedisStore};
use crate::audit::{AUDIT_LINES_MAX, Audit, validated};
use crate::store::{StoreError, StoreFuture};

/// Drops the oldest lines and appends one, in one step; in this order, so that a server that refuses either command has
/// done nothing. ARGV: the line; how many stay beside it.
const APPEND: &str = "\
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
redis.call('RPUSH', KEYS[1], ARGV[1])";

impl Inner {
    async fn append_audit(&self, line: &str) -> Result<(), StoreError> {
        let line = validated(line)?;
        let key = self.layout.audit();
        let mut append = cmd("EVAL");
        append.arg(APPEND).arg(1).arg(&key).arg(line).arg(AUDIT_LINES_MAX - 1);
        self.send::<()>(self.layout.part_of_name(&key), append).await
    }

    async fn latest_audit(&self, skip: usize, count: usize) -> Result<Vec<String>, StoreError> {
        if count == 0 || skip >= AUDIT_LINES_MAX {
            return Ok(Vec::new());
        }
        // Indices count from the end, which has -1.
        let from_end = |lines: usize| -isize::try_from(lines).unwrap_or(isize::MAX);
        let (last, first) = (from_end(skip + 1), from_end((skip + count).min(AUDIT_LINES_MAX)));
        let key = self.layout.audit();
        let range = Cmd::lrange(&key, first, last);
        let lines: Vec<Vec<u8>> = self.send(self.layout.part_of_name(&key), range).await?;
        Ok(lines.iter().rev().map(|line| String::from_utf8_lossy(line).into_owned()).collect())
    }
}

impl Audit for RedisStore {
    fn append<'a>(&'a self, line: &'a str) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.inner.append_audit(line))
    }

    fn latest(&self, skip: usize, count: usize) -> StoreFuture<'_, Vec<String>> {
        StoreFuture::pending(self.inner.latest_audit(skip, count))
    }
}
