//! Where a call goes: to a server, or to the API in this process on a store.

use std::path::Path;

use ratekeeper::policy::source::file::read_policies;
use ratekeeper::policy::{Policies, PolicyLimiter};
use ratekeeper_server::serve::Caller;
use ratekeeper_server::serve::api::Api;
use serde_json::{Value as Json, json};

use super::remote::Remote;
use crate::cli::operate::TargetOptions;
use crate::commands::opened::{Address, unanswered};
use crate::failure::Failure;

/// Who changes a store itself, as the audit log has it: the store knows no token.
const CALLER: &str = "command-line";

pub(in crate::commands) enum Target {
    Server(Box<Remote>),
    Store(Box<Api>),
}

impl Target {
    pub(in crate::commands) async fn of(
        options: &TargetOptions,
        policy: Option<&Path>,
    ) -> Result<Self, Failure> {
        match (&options.server, &options.store.store) {
            (Some(_), Some(_)) => Err(Failure::new("got --server and --store; expected one of them")
                .hint("the variables RATEKEEPER_SERVER and RATEKEEPER_STORE say the same")),
            (Some(server), None) => Ok(Self::Server(Box::new(Remote::new(server, options)?))),
            (None, Some(_)) => Self::store(options, policy).await,
            (None, None) => Err(Failure::new("got neither --server nor --store; expected one of them").hint(
                "--server http://127.0.0.1:8080, or the Redis of your services: --store redis://HOST:6379",
            )),
        }
    }

    async fn store(options: &TargetOptions, policy: Option<&Path>) -> Result<Self, Failure> {
        let prefix = options.store_prefix.clone().unwrap_or_default();
        let address = Address { prefix, ..Address::of(&options.store, None)? };
        if address.url.is_memory() && address.url.directory().is_none() {
            return Err(Failure::new(
                "--store: got memory, which ends with this command; expected a server's URL",
            )
            .hint("a server that counts in memory is asked itself: --server http://127.0.0.1:8080"));
        }
        let opened = address.open()?;
        opened.ping().await.map_err(|error| unanswered(&error))?;
        let policies = Policies::builder().mode(None).build().map_err(Failure::new)?;
        if let Some(path) = policy {
            install(&policies, path)?;
        }
        let api = Api::new(PolicyLimiter::on(opened.store(), policies));
        // A store that was just opened obeys no switch before it has read them.
        api.limiter().store().control().read_switches().await.map_err(|error| unanswered(&error))?;
        let target = Self::Store(Box::new(api));
        // What is set for a while ends by the server's clock, which the answer to a look tells.
        target.call("/v1/peek", Some(&json!({ "charges": [{ "key": "clock", "quota": "1/s" }] }))).await?;
        Ok(target)
    }

    /// The status of the answer, and its body.
    pub(in crate::commands) async fn call(
        &self,
        path: &str,
        body: Option<&Json>,
    ) -> Result<(u16, Json), Failure> {
        match self {
            Self::Server(remote) => remote.call(path, body).await,
            Self::Store(api) => {
                let body = body.map_or_else(String::new, Json::to_string);
                let answer = api.answer(&Caller::named(CALLER), path, body.as_bytes()).await;
                let answer = answer.ok_or_else(|| Failure::new(format!("there is no call {path}")))?;
                let body = serde_json::from_slice(&answer.body).map_err(Failure::new)?;
                Ok((answer.status, body))
            }
        }
    }
}

/// Puts a policy, or all of a folder, into force.
fn install(policies: &Policies, path: &Path) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(error.to_string().trim_end())
            .hint(format!("`ratekeeper policy check {}` says all that is wrong", path.display()))
    };
    for read in read_policies(path, None).map_err(|error| wrong(&error))? {
        let spec = read.policy.map_err(|error| wrong(&error))?;
        let source = read.path.display().to_string();
        policies.install(&source, Ok(spec), None).map_err(|problems| wrong(&problems))?;
    }
    Ok(())
}
