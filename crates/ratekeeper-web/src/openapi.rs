//! Limits in the OpenAPI documents of utoipa, from the same rules that decide.
//!
//! ```
//! use ratekeeper::MemoryStore;
//! use ratekeeper_web::openapi::DescribeLimits;
//! use ratekeeper_web::ready::PathLimit;
//! use std::{sync::Arc, time::Duration};
//! use utoipa::OpenApi;
//!
//! /// Search for items.
//! #[utoipa::path(get, path = "/search", responses((status = 200)))]
//! async fn search() {}
//!
//! #[derive(OpenApi)]
//! #[openapi(paths(search))]
//! struct Api;
//!
//! let gate = PathLimit::new(100).expiry(Duration::from_secs(60)).gate(Arc::new(MemoryStore::new()))?;
//! let mut document = Api::openapi();
//! DescribeLimits::new().on("GET", "/search", &gate).apply(&mut document);
//!
//! let document = serde_json::to_value(&document)?;
//! let search = &document["paths"]["/search"]["get"];
//! assert_eq!(search["x-ratelimit-limit"], 100);
//! assert_eq!(search["x-ratelimit-window-seconds"], 60);
//! assert_eq!(search["description"], "**Ratelimit:** 100/60s");
//! assert!(search["responses"]["429"]["content"]["application/problem+json"].is_object());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is written, and when a limit counts as one of an operation, is in `docs/web.md`.

mod limit;
mod response;

use std::sync::Arc;

use ratekeeper::policy::{Policy, ServiceLimiter};
use ratekeeper_http::HttpOptions;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

use crate::gate::Gate;
use limit::Limit;

const TOO_MANY_REQUESTS: &str = "429";

/// Writes limits into OpenAPI documents.
///
/// Operations on which nothing is found stay as they are. On the others, what an earlier
/// call has written is replaced, so that the second of two that are the same changes nothing.
#[derive(Clone, Debug, Default)]
pub struct DescribeLimits {
    sources: Vec<Source>,
    options: HttpOptions,
}

#[derive(Clone, Debug)]
struct Source {
    rules: Rules,
    /// The method and the path of an operation; `None` for all whose rules fit.
    only: Option<(String, String)>,
}

#[derive(Clone, Debug)]
enum Rules {
    /// The policy that is in force when the document is written.
    Service(ServiceLimiter),
    Policy(Arc<Policy>),
}

impl DescribeLimits {
    /// No limits yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The limits of a gate that stands before all operations: those of its rules whose
    /// conditions allow it. Denials are described as this gate sends them.
    #[must_use]
    pub fn everywhere(self, gate: &Gate) -> Self {
        self.gate(gate, None)
    }

    /// The limits of a gate that stands before one operation, or is asked in its handler.
    #[must_use]
    pub fn on(self, method: &str, path: &str, gate: &Gate) -> Self {
        self.gate(gate, Some((method.to_ascii_uppercase(), path.to_owned())))
    }

    /// The limits of a policy, for services that are not written in Rust or judged elsewhere.
    #[must_use]
    pub fn policy(mut self, policy: Arc<Policy>) -> Self {
        self.sources.push(Source { rules: Rules::Policy(policy), only: None });
        self
    }

    fn gate(mut self, gate: &Gate, only: Option<(String, String)>) -> Self {
        self.options = gate.options;
        // Of rules in code, no document knows when they apply.
        if let Some(service) = gate.service() {
            self.sources.push(Source { rules: Rules::Service(service.clone()), only });
        }
        self
    }

    /// Writes them into a document. An operation that was named but is not in it is
    /// warned about in the log.
    pub fn apply(&self, document: &mut OpenApi) {
        for source in &self.sources {
            let Some((method, path)) = &source.only else { continue };
            let item = document.paths.paths.get_mut(path);
            if !item.is_some_and(|item| operations(item).any(|(known, _)| known == *method)) {
                tracing::warn!(method, path, "the document has no such operation to describe limits of");
            }
        }
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                let limits = self.limits_of(&method, path);
                if !limits.is_empty() {
                    self.describe(operation, &limits);
                }
            }
        }
    }

    /// The limits of an operation, each once.
    fn limits_of(&self, method: &str, path: &str) -> Vec<Limit> {
        let fits = |only: &(String, String)| only.0 == method && only.1 == path;
        let sources = self.sources.iter().filter(|source| source.only.as_ref().is_none_or(fits));
        let mut limits: Vec<Limit> = Vec::new();
        for source in sources {
            let Some(policy) = source.rules.policy() else { continue };
            for limit in policy.limits_for(method, path).into_iter().flat_map(Limit::all_of) {
                match limits.iter_mut().find(|known| known.is_same(&limit)) {
                    Some(known) => known.is_certain |= limit.is_certain,
                    None => limits.push(limit),
                }
            }
        }
        limits
    }

    fn describe(&self, operation: &mut Operation, limits: &[Limit]) {
        operation.description = Some(limit::described(operation.description.as_deref(), limits));
        let extensions = operation.extensions.get_or_insert_default();
        limit::extend(extensions, limits);
        // One that the program describes itself says more about it.
        let known = operation.responses.responses.entry(TOO_MANY_REQUESTS.to_owned());
        known.or_insert_with(|| RefOr::T(response::too_many_requests(&self.options)));
    }
}

impl utoipa::Modify for DescribeLimits {
    fn modify(&self, document: &mut OpenApi) {
        self.apply(document);
    }
}

impl Rules {
    fn policy(&self) -> Option<Arc<Policy>> {
        match self {
            Rules::Service(service) => service.policy(),
            Rules::Policy(policy) => Some(Arc::clone(policy)),
        }
    }
}

/// The operations of a path by their methods, in upper case as requests have them.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (String, &mut Operation)> {
    let named = [
        ("GET", &mut item.get),
        ("PUT", &mut item.put),
        ("POST", &mut item.post),
        ("DELETE", &mut item.delete),
        ("OPTIONS", &mut item.options),
        ("HEAD", &mut item.head),
        ("PATCH", &mut item.patch),
        ("TRACE", &mut item.trace),
        ("QUERY", &mut item.query),
    ];
    let named =
        named.into_iter().filter_map(|(method, operation)| Some((method.to_owned(), operation.as_mut()?)));
    // These keep the case that the document gives them: methods are case-sensitive.
    named.chain(item.additional_operations.iter_mut().map(|(method, operation)| (method.clone(), operation)))
}
