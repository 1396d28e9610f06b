//! The audit log of a store of one process.

use super::MemoryStore;
use crate::audit::{Audit, validated};
use crate::store::{StoreError, StoreFuture};

impl MemoryStore {
    fn append_line(&self, line: &str) -> Result<(), StoreError> {
        let line = validated(line)?;
        let _turn = self.operators();
        if let Some(data) = &self.data {
            data.append_line(line)?;
        }
        Ok(self.audit.append(line)?)
    }
}

impl Audit for MemoryStore {
    fn append<'a>(&'a self, line: &'a str) -> StoreFuture<'a, ()> {
        StoreFuture::ready(self.append_line(line))
    }

    fn latest(&self, skip: usize, count: usize) -> StoreFuture<'_, Vec<String>> {
        StoreFuture::ready(Ok(self.audit.latest(skip, count)))
    }
}
