//! One thing that can be asked about a request, as policies name it.

use super::Needs;
use crate::policy::syntax::SyntaxError;

/// The first word of whatever can be asked.
pub(in crate::policy) const NAMESPACES: [&str; 11] = [
    "method",
    "path",
    "route",
    "query",
    "header",
    "cookie",
    "body",
    "client",
    "identity",
    "descriptor",
    "descriptor_keys",
];

/// One thing that can be asked about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Fact {
    Method,
    Path,
    Route,
    Query(Box<str>),
    /// In lower case.
    Header(Box<str>),
    Cookie(Box<str>),
    /// Names of members, or places in lists.
    Body(Box<[Box<str>]>),
    ClientIp,
    ClientAddress,
    Claim(Box<str>),
    Descriptor(Box<str>),
    DescriptorKeys,
}

impl Fact {
    /// The fact called `namespace.name`, which stands in `text` at `offset`.
    pub(in crate::policy) fn named(
        text: &str,
        offset: usize,
        namespace: &str,
        name: Option<&str>,
    ) -> Result<Self, SyntaxError> {
        let wrong = |got: &str, expected: &str| Err(SyntaxError::new(text, offset, got, expected));
        let name_at = offset + namespace.len() + 1;
        match (namespace, name) {
            ("method", None) => Ok(Fact::Method),
            ("path", None) => Ok(Fact::Path),
            ("route", None) => Ok(Fact::Route),
            ("descriptor_keys", None) => Ok(Fact::DescriptorKeys),
            ("method" | "path" | "route" | "descriptor_keys", Some(name)) => {
                wrong(&format!("`{namespace}.{name}`"), &format!("`{namespace}`, which has no parts"))
            }
            ("query", Some(name)) if !name.is_empty() => Ok(Fact::Query(name.into())),
            ("header" | "cookie", Some(name)) if !name.is_empty() => {
                if let Some(odd) = name.bytes().position(|byte| !is_token(byte)) {
                    let got = format!("`{name}`");
                    let expected =
                        format!("the name of a {namespace}: letters, digits and !#$%&'*+-.^_`|~ only");
                    return Err(SyntaxError::new(text, name_at + odd, got, expected));
                }
                Ok(if namespace == "cookie" {
                    Fact::Cookie(name.into())
                } else {
                    Fact::Header(name.to_ascii_lowercase().into())
                })
            }
            ("body", Some(path)) if path.split('.').all(|name| !name.is_empty()) => {
                Ok(Fact::Body(path.split('.').map(Box::from).collect()))
            }
            ("client", Some("ip")) => Ok(Fact::ClientIp),
            ("client", Some("address")) => Ok(Fact::ClientAddress),
            ("client", Some(name)) => Err(SyntaxError::unknown(text, name_at, name, &["ip", "address"])),
            ("identity", Some(name)) if !name.is_empty() => Ok(Fact::Claim(name.into())),
            ("descriptor", Some(name)) if !name.is_empty() => Ok(Fact::Descriptor(name.into())),
            ("query" | "header" | "cookie" | "body" | "client" | "identity" | "descriptor", _) => {
                wrong(&format!("`{namespace}` without a name"), &format!("`{}`", example(namespace)))
            }
            _ => Err(SyntaxError::unknown(text, offset, namespace, &NAMESPACES)),
        }
    }

    /// What must be obtained before it can be asked.
    pub(in crate::policy) fn needs(&self) -> Needs {
        Needs {
            body: matches!(self, Fact::Body(_)),
            route: matches!(self, Fact::Route),
            client: matches!(self, Fact::ClientIp | Fact::ClientAddress),
            identity: matches!(self, Fact::Claim(_)),
        }
    }
}

/// How something in that namespace is written.
pub(in crate::policy) fn example(namespace: &str) -> &'static str {
    match namespace {
        "query" => "query.page",
        "header" => "header.x-api-key",
        "cookie" => "cookie.session",
        "body" => "body.tenant_id",
        "client" => "client.ip",
        "descriptor" => "descriptor.user",
        _ => "identity.user",
    }
}

/// What the name of a field may consist of (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
