//! A request from the command line, in front of a policy.

use std::io::Read;
use std::path::Path;

use ratekeeper::bounds::IDEMPOTENCY_DEFAULT;
use ratekeeper::policy::source::file::read_policies;
use ratekeeper::policy::{Ask, Policies, PolicyLimiter, PolicySpec, RequestFacts, Scalar};
use ratekeeper::{Decision, OpenedStore, StoreUrl};

use super::Seen;
use crate::cli::{CheckOptions, RequestOptions};
use crate::failure::Failure;

/// The longest body that is read, in bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// A policy and a request that it is to judge.
pub(super) struct ByPolicy {
    policies: Policies,
    service: String,
    store: Option<StoreUrl>,
    facts: RequestFacts,
}

impl ByPolicy {
    pub(super) fn read(path: &Path, options: &CheckOptions) -> Result<Self, Failure> {
        let (source, spec) = one_of(path, options.request.service.as_deref())?;
        let (service, store) = (spec.service.clone(), spec.store.clone());
        let policies = Policies::builder().build().map_err(Failure::new)?;
        policies.install(&source, Ok(spec), None).map_err(|problems| wrong(path, problems))?;
        Ok(Self { policies, service, store, facts: facts(&options.request)? })
    }

    /// The store that the policy names.
    pub(super) fn store(&self) -> Option<StoreUrl> {
        self.store.clone()
    }

    pub(super) async fn decide(
        self,
        opened: &OpenedStore,
        options: &CheckOptions,
    ) -> Result<(Decision, Seen), Failure> {
        let limiter = PolicyLimiter::on(opened.store(), self.policies);
        let service = limiter.service(&self.service).map_err(Failure::new)?;
        let mut ask = Ask::request(&self.facts).cost(options.cost);
        if let Some(key) = &options.key {
            ask = ask.with_key(key);
        }
        let mut demand = service.demand(&ask);
        if let Some(id) = &options.id {
            demand = demand.once(id.clone(), IDEMPOTENCY_DEFAULT).map_err(Failure::new)?;
        }
        let keys = demand.rules().map(|rule| (rule.rule.label(), rule.subject.to_owned())).collect();
        let others = service.not_applied(&ask).into_iter();
        let seen = Seen {
            names: Vec::new(),
            keys,
            not_applied: others.map(|(rule, why)| (rule.label(), why.as_str())).collect(),
        };
        let decision = if options.peek { demand.peek().await } else { demand.check().await };
        Ok((decision.map_err(Failure::new)?, seen))
    }
}

/// The only policy there, or the one that was named; and the file it is in.
fn one_of(path: &Path, service: Option<&str>) -> Result<(String, PolicySpec), Failure> {
    let read = read_policies(path, None).map_err(|error| wrong(path, error))?;
    let mut specs = Vec::new();
    for policy in read {
        match policy.policy {
            Ok(spec) => specs.push((policy.path.display().to_string(), spec)),
            Err(error) => return Err(wrong(path, error)),
        }
    }
    let mut names: Vec<String> = specs.iter().map(|(_, spec)| spec.service.clone()).collect();
    names.sort_unstable();
    let names = names.join(", ");
    if let Some(service) = service {
        let found = specs.into_iter().find(|(_, spec)| spec.service == service);
        return found.ok_or_else(|| {
            Failure::new(format!("--service {service}: no policy of that name in {}", path.display()))
                .hint(format!("there are {names}"))
        });
    }
    let count = specs.len();
    match (specs.pop(), count) {
        (Some(only), 1) => Ok(only),
        (None, _) => Err(Failure::new(format!("{}: has no policies", path.display()))
            .hint("policies end in .toml, .yaml, .yml or .json")),
        (Some(_), _) => Err(Failure::new(format!("{}: has {count} policies", path.display()))
            .hint(format!("--service says which: {names}"))),
    }
}

fn wrong(path: &Path, error: impl std::fmt::Display) -> Failure {
    let text = error.to_string();
    Failure::new(text.trim_end())
        .hint(format!("`ratekeeper policy check {}` says all that is wrong", path.display()))
}

fn facts(request: &RequestOptions) -> Result<RequestFacts, Failure> {
    let mut facts = RequestFacts::new(request.method(), request.path());
    if let Some(route) = &request.route {
        facts = facts.route(route.as_str());
    }
    if let Some(peer) = request.peer {
        facts = facts.peer(peer);
    }
    for header in &request.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::new(format!("--header: got `{header}`; expected a name, a colon and a value"))
                .hint("such as --header 'x-api-key: abc'")
        })?;
        facts = facts.header(name.trim(), value.trim());
    }
    for claim in &request.claim {
        let (name, value) = claim.split_once('=').ok_or_else(|| {
            Failure::new(format!("--claim: got `{claim}`; expected a name, an equals sign and a value"))
                .hint("such as --claim user=ann")
        })?;
        facts = facts.claim(name.trim(), scalar(value));
    }
    match &request.body {
        Some(body) => body_of(body).map(|bytes| facts.body(&bytes)),
        // Read, and empty: what needs a body finds none.
        None => Ok(facts.body(b"")),
    }
}

/// Numbers and truth values as JSON has them, everything else a text.
fn scalar(value: &str) -> Scalar<'static> {
    match serde_json::from_str(value) {
        Ok(serde_json::Value::Bool(truth)) => truth.into(),
        Ok(serde_json::Value::Number(number)) if number.is_i64() => {
            number.as_i64().unwrap_or_default().into()
        }
        _ => value.to_owned().into(),
    }
}

pub(in crate::commands) fn body_of(text: &str) -> Result<Vec<u8>, Failure> {
    let read = match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => bounded(std::io::stdin()),
        Some(path) => std::fs::File::open(path).and_then(bounded),
    };
    let bytes = read.map_err(|error| Failure::new(format!("--body {text}: {error}")))?;
    if bytes.len() as u64 > BODY_BYTES_MAX {
        return Err(Failure::new(format!(
            "--body: got more than {BODY_BYTES_MAX} bytes; expected at most that"
        )));
    }
    if !bytes.is_empty()
        && let Err(error) = serde_json::from_slice::<serde_json::Value>(&bytes)
    {
        // It is judged all the same: what services are sent need not be JSON either.
        eprintln!("note: --body: got no JSON that can be read: {error}; conditions on it fail, and so apply");
    }
    Ok(bytes)
}

fn bounded(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
