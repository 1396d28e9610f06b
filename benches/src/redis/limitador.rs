//! Limitador with its counters on Redis.

use std::collections::HashMap;
use std::fmt;

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::AsyncRedisStorage;

use crate::Result;
use crate::redis::load::{Failure, Peer};
use crate::redis::scenario::{Setting, subject};

/// Its storage that asks Redis for every check. The context carries the key, so it is built
/// for every check, as its server does.
pub struct Limitador {
    limiter: AsyncRateLimiter,
    namespace: Namespace,
}

impl Limitador {
    /// Connects.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn new(url: &str, setting: Setting) -> Result<Self> {
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(AsyncRedisStorage::new(url).await?));
        for tier in setting.tiers() {
            let variable = "user_id".try_into().map_err(|error| format!("{error:?}"))?;
            let limit = Limit::new(setting.prefix(), tier.limit.into(), tier.seconds, [], [variable]);
            limiter.add_limit(limit);
        }
        Ok(Self { limiter, namespace: setting.prefix().into() })
    }
}

impl Peer for Limitador {
    async fn check(&self, index: u32, cost: u32) -> Result<bool, Failure> {
        let context = Context::from(HashMap::from([("user_id".to_owned(), subject(index))]));
        let update = self.limiter.check_rate_limited_and_update(&self.namespace, &context, cost.into());
        // Its error cannot be sent between threads; what it says can.
        update.await.map(|result| !result.limited).map_err(|error| error.to_string().into())
    }
}

impl fmt::Debug for Limitador {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limitador").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
