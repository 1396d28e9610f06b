//! The classic way: a script per request through redis-rs, over one multiplexed connection.

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Script};

use crate::Result;
use crate::redis::load::{Failure, PATIENCE, Peer};
use crate::redis::scenario::{Scenario, Setting, Tier, organisation, subject};

/// Overrides that are sent together.
const OVERRIDES_AT_ONCE: u32 = 1_000;

/// One of the three scripts.
#[derive(Debug)]
pub struct Plain {
    connection: MultiplexedConnection,
    script: Script,
    setting: Setting,
    tiers: Vec<Tier>,
    endpoint: String,
}

impl Plain {
    /// Connects, and sets the overrides the setting has.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn new(url: &str, setting: Setting) -> Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        let script = Script::new(match setting.scenario {
            Scenario::OneQuota => include_str!("plain/gcra.lua"),
            Scenario::FourTiers => include_str!("plain/tiers.lua"),
            Scenario::NoOverride | Scenario::ProjectOverride => include_str!("plain/fixed_window.lua"),
        });
        let plain =
            Self { connection, script, setting, tiers: setting.tiers(), endpoint: setting.endpoint() };
        if let Some(limit) = setting.override_limit() {
            plain.set_overrides(limit).await?;
        }
        Ok(plain)
    }

    async fn set_overrides(&self, limit: u32) -> Result<()> {
        let mut connection = self.connection.clone();
        for first in (0..self.setting.keys()).step_by(OVERRIDES_AT_ONCE as usize) {
            let mut pipeline = ::redis::pipe();
            for project in first..self.setting.keys().min(first + OVERRIDES_AT_ONCE) {
                let [_, key, _] = self.project_keys(project);
                let seconds = self.tiers[0].seconds;
                pipeline.hset_multiple(key, &[("max_requests", u64::from(limit)), ("expiry", seconds)]);
            }
            pipeline.exec_async(&mut connection).await?;
        }
        Ok(())
    }

    /// The counter of a project, its override, and that of its organisation.
    fn project_keys(&self, project: u32) -> [String; 3] {
        let (endpoint, organisation) = (&self.endpoint, organisation(project));
        [
            format!("ratelimit:{endpoint}:{organisation}:{project}"),
            format!("ratelimit_override:{endpoint}:{organisation}:{project}"),
            format!("ratelimit_org_override:{endpoint}:{organisation}"),
        ]
    }
}

impl Peer for Plain {
    async fn check(&self, index: u32, cost: u32) -> Result<bool, Failure> {
        let mut connection = self.connection.clone();
        let mut call = self.script.prepare_invoke();
        let [first, ..] = self.tiers.as_slice() else { return Err("no limit".into()) };
        match self.setting.scenario {
            Scenario::OneQuota => {
                call.key(format!("{}:{}", self.setting.prefix(), subject(index)));
                call.arg(first.limit).arg(first.seconds * 1_000_000).arg(cost);
            }
            Scenario::FourTiers => {
                call.arg(cost);
                for tier in &self.tiers {
                    call.key(format!("{}:{}:{}", self.setting.prefix(), subject(index), tier.name));
                    call.arg(tier.limit).arg(tier.seconds * 1_000_000);
                }
            }
            Scenario::NoOverride | Scenario::ProjectOverride => {
                self.project_keys(index).into_iter().for_each(|key| {
                    call.key(key);
                });
                call.arg(first.limit).arg(first.seconds).arg(cost);
            }
        }
        // All that a caller would put into its answer is read, as ours is.
        let reply: Vec<i64> = call.invoke_async(&mut connection).await?;
        Ok(reply.first() == Some(&1))
    }
}
