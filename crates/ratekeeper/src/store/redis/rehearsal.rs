//! A batch without its way to the server and back: for the count of instructions.

use std::hint::black_box;
use std::sync::Arc;

use ratekeeper_core::Check;

use super::answer::{Answer, split};
use super::encode::{Call, Item, call};
use super::link::command;
use super::{Inner, RedisStore};
use crate::store::StoreError;

/// As long as the digest of a script.
const DIGEST: &str = "0123456789012345678901234567890123456789";

/// What a server once said to a batch, to be read again and again.
#[derive(Clone)]
#[doc(hidden)]
pub struct Rehearsal {
    inner: Arc<Inner>,
    reply: Vec<u8>,
}

impl RedisStore {
    /// Asks the server once, in one batch.
    ///
    /// # Errors
    /// If it does not answer.
    #[doc(hidden)]
    pub async fn rehearsal(&self, checks: &[Check<'_>]) -> Result<Rehearsal, StoreError> {
        let items: Vec<Item> = checks.iter().map(|check| Item::check(&self.inner.layout, check)).collect();
        let reply = self.run_alone(&call(&items.iter().collect::<Vec<_>>(), None)).await?;
        Ok(Rehearsal { inner: Arc::clone(&self.inner), reply })
    }
}

impl RedisStore {
    async fn run_alone(&self, call: &Call<'_>) -> Result<Vec<u8>, StoreError> {
        let nodes = self.inner.route.nodes().await?;
        let first = nodes.first().ok_or_else(super::answer::garbled)?;
        first.link().run(call).await
    }
}

impl Rehearsal {
    /// Makes the command for the same checks once more, and decisions of what was said to them then;
    /// how many are let in.
    ///
    /// # Errors
    /// If they are other checks.
    pub fn repeat(&self, checks: &[Check<'_>]) -> Result<usize, StoreError> {
        let items: Vec<Item> = checks.iter().map(|check| Item::check(&self.inner.layout, check)).collect();
        let together: Vec<&Item> = items.iter().collect();
        let call: Call<'_> = call(&together, None);
        black_box(command("EVALSHA", DIGEST, &call).get_packed_command());
        let (now, answers) = split(&self.reply, items.iter().map(|item| item.asked))?;
        let mut admitted = 0;
        for (check, bytes) in checks.iter().zip(answers) {
            admitted += usize::from(black_box(Answer { now, bytes }.decision(check)?).is_allowed());
        }
        Ok(admitted)
    }
}

impl std::fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").field("reply", &self.reply.len()).finish_non_exhaustive()
    }
}
