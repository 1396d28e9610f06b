//! Who sends: the attributes that tell one server from another.
//!
//! Sums are cumulative, and a collector takes those of one resource for one counter. So
//! every process is a resource of its own, whatever the variables of OpenTelemetry say.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value as Json, json};

/// Names the service, before everything else that does.
const NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
/// More attributes: `key=value` with commas between them, values percent-encoded.
const ATTRIBUTES_VARIABLE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The attributes of this process, by their names.
#[derive(Clone, Debug)]
pub(super) struct Resource(BTreeMap<String, String>);

impl Resource {
    /// What is known of this process, and what its environment adds or says instead.
    pub(super) fn of_this_process() -> Self {
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let resource = Self::own();
        let added = resource.clone().with(said(ATTRIBUTES_VARIABLE).as_deref().unwrap_or_default());
        let mut resource = added.unwrap_or_else(|error| {
            let error = format!("{error:#}");
            tracing::warn!(error, "{ATTRIBUTES_VARIABLE} is not used: expected key=value,key=value");
            resource
        });
        if let Some(name) = said(NAME_VARIABLE) {
            resource.0.insert("service.name".to_owned(), name);
        }
        resource
    }

    fn own() -> Self {
        let instance = format!("{:032x}", fastrand::u128(1..));
        let mut attributes = BTreeMap::from([
            ("service.name".to_owned(), "ratekeeper".to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id".to_owned(), instance),
        ]);
        if let Ok(host) = rustix::system::uname().nodename().to_str() {
            attributes.insert("host.name".to_owned(), host.to_owned());
        }
        Self(attributes)
    }

    /// The same with what `text` says; all of it, or nothing.
    fn with(mut self, text: &str) -> anyhow::Result<Self> {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').context("an attribute without a value")?;
            let name = name.trim();
            ensure!(!name.is_empty(), "an attribute without a name");
            self.0.insert(name.to_owned(), decoded(value.trim()).with_context(|| name.to_owned())?);
        }
        Ok(self)
    }

    pub(super) fn json(&self) -> Json {
        let attributes = self.0.iter().map(|(name, value)| super::encode::text(name, value));
        json!({ "attributes": attributes.collect::<Vec<_>>() })
    }
}

/// What `text` means without its percent-encoding (RFC 3986, section 2.1).
fn decoded(text: &str) -> anyhow::Result<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let digits = digits.context("a % without two digits behind it")?;
        bytes.push(u8::from_str_radix(digits, 16)?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).context("a value that is no UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_adds_all_that_it_says_or_nothing() {
        let resource =
            Resource::own().with("deployment.environment.name=a%2Cb%3D%C3%A9, host.name = mine,").unwrap();
        let of = |name: &str| resource.0.get(name).map(String::as_str);
        assert_eq!(of("deployment.environment.name"), Some("a,b=é"));
        assert_eq!((of("host.name"), of("service.name")), (Some("mine"), Some("ratekeeper")));
        for wrong in ["a=1,b", "=1", "a=%2", "a=%+1", "a=%zz", "a=%ff"] {
            assert!(Resource::own().with(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_processes_are_two_resources() {
        let id = |resource: Resource| resource.0["service.instance.id"].clone();
        assert_ne!(id(Resource::own()), id(Resource::own()));
        assert!(Resource::own().0.contains_key("host.name"));
    }
}
