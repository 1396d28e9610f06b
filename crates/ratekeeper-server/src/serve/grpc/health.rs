//! `grpc.health.v1.Health`: whether calls should come here, as `/readyz` says it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::channel;
use tokio::sync::{Mutex, Semaphore};

use super::Grpc;
use super::answer::{AnswerBody, Code, UnderWay, framed};
use super::call::Ended;
use super::messages::{read_service, write_health};
use crate::serve::health::Wellness;
use crate::serve::listener::Finishing;

/// Callers that may watch at once.
pub const WATCHES_MAX: usize = 1_000;
/// What can be asked for: everything, or the one service there is.
const SERVICES: [&str; 2] = ["", "envoy.service.ratelimit.v3.RateLimitService"];
/// How often is looked whether a status that is watched has changed.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// How long a status is believed. To find out is a charge, which no number of callers multiplies.
const BELIEVED: Duration = Duration::from_millis(500);

/// As the proto has them.
const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const SERVICE_UNKNOWN: u64 = 3;

/// What was found out last, for all who ask, and room for those who watch.
#[derive(Debug)]
pub(super) struct KnownHealth {
    last: Mutex<Option<(Instant, u64)>>,
    watches: Arc<Semaphore>,
}

impl Default for KnownHealth {
    fn default() -> Self {
        Self { last: Mutex::default(), watches: Arc::new(Semaphore::new(WATCHES_MAX)) }
    }
}

impl Grpc {
    async fn health(&self) -> u64 {
        if self.stop.is_stopping() {
            return NOT_SERVING;
        }
        let mut last = self.health.last.lock().await;
        if let Some((at, health)) = *last
            && at.elapsed() < BELIEVED
        {
            return health;
        }
        let wellness = Wellness::of(&self.api, false).await;
        let health = if wellness.is_ready { SERVING } else { NOT_SERVING };
        *last = Some((Instant::now(), health));
        health
    }

    /// `Check`.
    pub(super) async fn check_health(&self, message: &[u8]) -> Result<Vec<u8>, Ended> {
        let service =
            read_service(message).map_err(|_| Ended::invalid("the message is no HealthCheckRequest"))?;
        if !SERVICES.contains(&&*service) {
            return Err(Ended::not_found("there is no such service"));
        }
        Ok(write_health(self.health().await))
    }

    /// `Watch`: what `Check` says, and again whenever that changes, until the server finishes or the caller goes.
    pub(super) fn watch_health(
        self: &Arc<Self>,
        message: &[u8],
        under_way: UnderWay,
        finishing: Finishing,
    ) -> Result<AnswerBody, Ended> {
        let service =
            read_service(message).map_err(|_| Ended::invalid("the message is no HealthCheckRequest"))?;
        let place = Arc::clone(&self.health.watches).try_acquire_owned();
        let place = place.map_err(|_| Ended::failed(Code::ResourceExhausted, "too many callers watch"))?;
        let is_known = SERVICES.contains(&&*service);
        // One that the caller has not taken yet, and no more.
        let (sender, receiver) = channel(1);
        let grpc = Arc::clone(self);
        tokio::spawn(async move {
            let mut told = None;
            let watched = async {
                loop {
                    let health = if is_known { grpc.health().await } else { SERVICE_UNKNOWN };
                    if told.replace(health) != Some(health)
                        && sender.send(framed(&write_health(health))).await.is_err()
                    {
                        return;
                    }
                    tokio::time::sleep(WATCH_EVERY).await;
                }
            };
            tokio::select! {
                () = watched => {}
                () = sender.closed() => {}
                () = finishing.wait() => {}
            }
        });
        Ok(AnswerBody::Messages { messages: receiver, _under_way: under_way, _place: place })
    }
}
