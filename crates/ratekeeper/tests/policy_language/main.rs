//! Key templates, expressions and addresses, from outside and with hostile
//! values.

mod allocations;
mod differential;
mod hostile;
mod templates;

use ratekeeper::policy::{Addresses, Request, RequestFacts, Template};

fn resolve(template: &Template, facts: &RequestFacts) -> Option<String> {
    template.resolve(&Request::new(facts, &Addresses::default())).map(String::from)
}
