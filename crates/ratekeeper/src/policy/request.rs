//! What policies can see of a request.
//!
//! Whoever has the request (middleware, the HTTP API, a replay) implements
//! [`Facts`]; templates and expressions ask a [`Request`] for single values.
//! Nothing is computed unless it is asked for, and what costs something to
//! obtain (reading the body) is known beforehand from the policy's [`Needs`].

mod descriptor;
mod fact;
mod identity;
mod json;
mod owned;
mod path;
mod scalar;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::ops::BitOrAssign;

use percent_encoding::percent_decode;
use serde_json::Value as Json;

use super::address::{AddressText, Addresses, in_words};
use super::expression::STEPS_DEFAULT;
pub use descriptor::Descriptor;
pub(super) use fact::Fact;
#[cfg(feature = "policy")]
pub(super) use fact::NAMESPACES;
pub use identity::Identity;
pub use json::JsonBody;
pub use owned::RequestFacts;
pub use path::canonical_path;
pub use scalar::Scalar;

/// A request, as far as policies can see it.
///
/// Every answer is borrowed, and asking twice gives the same one. What is not
/// known is `None`; a request without an HTTP method is as good as any other.
pub trait Facts {
    /// The HTTP method, as it was sent.
    fn method(&self) -> Option<&str>;

    /// The path by which the service finds what to do, without the query, in its one spelling
    /// ([`canonical_path`]). Two paths that lead to one handler must not lead to two counters.
    fn path(&self) -> Option<&str>;

    /// The route that the service matched, such as `/datasets/{id}/search`.
    fn route(&self) -> Option<&str>;

    /// What stands behind the `?`, as it was sent.
    fn query_string(&self) -> Option<&str>;

    /// The first header line of that name, which is in lower case.
    fn header(&self, name: &str) -> Option<&[u8]>;

    /// A header line of that name, counted from the last one: 0 is the last.
    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]>;

    /// How many header lines are looked at to find one: none, if they are found by their names. Conditions pay for it,
    /// so that nobody makes them slow by sending many.
    fn header_lines(&self) -> usize {
        0
    }

    /// The body.
    fn body(&self) -> Body<'_>;

    /// The address at the other end of the connection.
    fn peer(&self) -> Option<IpAddr>;

    /// What the service knows about the caller after it was authenticated:
    /// `org`, `project`, `user`, `plan`, or any other claim.
    fn claim(&self, name: &str) -> Option<Scalar<'_>>;

    /// What a proxy tells instead of a request.
    fn descriptor(&self) -> Option<&Descriptor<'_>> {
        None
    }

    /// The last query parameter of that name, decoded, which is the one that frameworks hand out.
    fn query(&self, name: &str) -> Option<Cow<'_, str>> {
        parameter_of(self.query_string()?, name)
    }

    /// The first cookie of that name, as it was sent.
    fn cookie(&self, name: &str) -> Option<&str> {
        // HTTP/2 may send a line for every cookie (RFC 9113, section 8.2.3). They
        // come last to first, so the last one found is the first one sent.
        let lines = (0..COOKIE_LINES_MAX).map_while(|back| self.header_from_end("cookie", back));
        lines.filter_map(|line| cookie_in(line, name)).last()
    }
}

/// The last parameter of that name in a query string, decoded; U+FFFD stands for bytes that are not UTF-8.
///
/// The last, because handlers get that one from every framework of ours: a rule that looked at the first
/// would be escaped by `?expensive=false&expensive=true`.
#[must_use]
pub fn parameter_of<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    let mut parameters = query.rsplit('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = parameters.find(|(key, _)| *key == name || form_decoded(key) == name)?;
    Some(form_decoded(value))
}

/// How many lines of cookies are looked at, from the last.
pub(super) const COOKIE_LINES_MAX: usize = 128;

fn cookie_in<'l>(line: &'l [u8], name: &str) -> Option<&'l str> {
    let pairs = std::str::from_utf8(line).ok()?.split(';');
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// A form-encoded text, decoded as frameworks do: borrowed if there is nothing to decode, U+FFFD for what is not UTF-8.
/// A handler sees such a parameter, so it is not absent for a policy either.
fn form_decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned())
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body<'a> {
    /// Nobody read it. For a policy whose [`Needs`] name the body that is an
    /// error in the program, and expressions say so.
    Unread,
    /// There is none.
    Absent,
    /// There is one, but it is no JSON that can be read, or it is not whole: too long, or too late.
    /// That is an error and no absence: conditions on it fail, and so apply.
    Unreadable,
    /// The JSON in it.
    Json(&'a Json),
}

/// What must be obtained before a template or an expression can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// The body, read and parsed.
    pub body: bool,
    /// The route that the service matched.
    pub route: bool,
    /// Where the request comes from.
    pub client: bool,
    /// Who sends it: authentication has to come first.
    pub identity: bool,
}

impl BitOrAssign for Needs {
    fn bitor_assign(&mut self, other: Self) {
        self.body |= other.body;
        self.route |= other.route;
        self.client |= other.client;
        self.identity |= other.identity;
    }
}

/// A request in front of a policy: its facts, and what only the policy can make
/// of them.
#[derive(Clone)]
pub struct Request<'a> {
    facts: &'a dyn Facts,
    addresses: &'a Addresses,
    /// Each filled by the first rule that asks.
    address: OnceCell<Option<IpAddr>>,
    client: OnceCell<Client>,
    /// Steps of work that are left for its conditions and costs.
    steps: Cell<u32>,
    /// Whether a rule that would not only watch ran out of them.
    refused: Cell<bool>,
}

impl<'a> Request<'a> {
    /// The request with these facts, for a policy that knows its proxies.
    #[must_use]
    pub fn new(facts: &'a dyn Facts, addresses: &'a Addresses) -> Self {
        Self {
            facts,
            addresses,
            address: OnceCell::new(),
            client: OnceCell::new(),
            steps: Cell::new(STEPS_DEFAULT),
            refused: Cell::new(false),
        }
    }

    /// The same request with another budget of steps for all conditions and costs that look at it.
    #[must_use]
    pub fn steps(self, steps: u32) -> Self {
        self.set_steps(steps);
        self
    }

    /// [`Request::steps`] in place.
    pub(super) fn set_steps(&self, steps: u32) {
        self.steps.set(steps);
    }

    pub(super) fn refuse(&self) {
        self.refused.set(true);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// Takes steps out of the budget; false if there are not as many left, and then none are.
    #[inline]
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = u32::try_from(steps).ok().and_then(|steps| self.steps.get().checked_sub(steps));
        self.steps.set(left.unwrap_or(0));
        left.is_some()
    }

    /// The facts.
    #[must_use]
    pub fn facts(&self) -> &'a dyn Facts {
        self.facts
    }

    /// Where the request comes from.
    pub fn client(&self) -> Option<&Client> {
        let address = self.client_address()?;
        let client = || Client { address, ip: self.addresses.group(address), full: OnceCell::new() };
        Some(self.client.get_or_init(client))
    }

    /// The address it comes from, without its words.
    #[inline]
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        *self.address.get_or_init(|| self.addresses.client(self.facts))
    }

    /// The text of a fact, if it is one and can be borrowed; `find` knows the
    /// rest. Most conditions ask for nothing else, so they need not pay for it.
    pub(super) fn find_text(&self, fact: &Fact) -> Option<&str> {
        match fact {
            Fact::Method => self.facts.method(),
            Fact::Path => self.facts.path(),
            Fact::Route => self.facts.route(),
            Fact::Header(name) => std::str::from_utf8(self.facts.header(name)?).ok(),
            Fact::Cookie(name) => self.facts.cookie(name),
            Fact::ClientIp => self.client().map(Client::ip),
            Fact::ClientAddress => self.client().map(Client::address_text),
            Fact::Descriptor(key) => self.facts.descriptor()?.get(key),
            Fact::DescriptorKeys => self.facts.descriptor().map(Descriptor::keys),
            Fact::Query(_) | Fact::Body(_) => None,
            Fact::Claim(name) => match self.facts.claim(name)? {
                Scalar::Text(Cow::Borrowed(text)) => Some(text),
                _ => None,
            },
        }
    }

    /// The value of a fact; `None` if there is none, or it is no scalar.
    pub(super) fn find(&self, fact: &Fact) -> Option<Scalar<'_>> {
        Some(match fact {
            Fact::Method => self.facts.method()?.into(),
            Fact::Path => self.facts.path()?.into(),
            Fact::Route => self.facts.route()?.into(),
            Fact::Query(name) => Scalar::Text(self.facts.query(name)?),
            Fact::Header(name) => std::str::from_utf8(self.facts.header(name)?).ok()?.into(),
            Fact::Cookie(name) => self.facts.cookie(name)?.into(),
            Fact::Body(path) => {
                let Body::Json(body) = self.facts.body() else { return None };
                return Scalar::of_json(path.iter().try_fold(body, |json, name| member(json, name))?);
            }
            Fact::ClientIp => self.client()?.ip().into(),
            Fact::ClientAddress => self.client()?.address_text().into(),
            Fact::Claim(name) => return self.facts.claim(name),
            Fact::Descriptor(key) => self.facts.descriptor()?.get(key)?.into(),
            Fact::DescriptorKeys => self.facts.descriptor()?.keys().into(),
        })
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("client", &self.client).finish_non_exhaustive()
    }
}

fn member<'j>(json: &'j Json, name: &str) -> Option<&'j Json> {
    match json {
        Json::Object(members) => members.get(name),
        Json::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub struct Client {
    address: IpAddr,
    ip: AddressText,
    /// Asked for by few rules, so it does not make the rest larger.
    full: OnceCell<Box<AddressText>>,
}

impl Client {
    /// The address; an IPv4 address in the clothes of IPv6 is IPv4.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// What limits count under, `client.ip`: an IPv4 address, or the network of
    /// an IPv6 address, such as `2001:db8::/64`.
    #[must_use]
    pub fn ip(&self) -> &str {
        self.ip.as_str()
    }

    /// The address in words, `client.address`.
    pub fn address_text(&self) -> &str {
        self.full.get_or_init(|| Box::new(in_words(self.address, None))).as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_decoded_and_the_last_counts() {
        let facts =
            RequestFacts::new("GET", "/x?a=1&a=2&b=x%20y+z&c&=e&%64=d%3Dd&bad=%FF&%FF=1&e=%4&p=1%2B1");
        let cases = [
            ("a", Some("2")),
            ("b", Some("x y z")),
            ("c", Some("")),
            ("d", Some("d=d")),
            ("bad", Some("\u{fffd}")),
            ("\u{fffd}", Some("1")),
            ("e", Some("%4")),
            ("p", Some("1+1")),
            ("missing", None),
            ("", Some("e")),
        ];
        for (name, expected) in cases {
            assert_eq!(facts.query(name).as_deref(), expected, "{name}");
        }
        assert_eq!(facts.path(), Some("/x"));
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let facts = RequestFacts::new("GET", "/")
            .header("Cookie", "xsession=no; session = a=b ; session=second; odd; \u{e9}=\u{e9}");
        assert_eq!(facts.cookie("session"), Some("a=b"));
        assert_eq!(facts.cookie("odd"), None);
        assert_eq!(facts.cookie("\u{e9}"), Some("\u{e9}"));
        let split = RequestFacts::new("GET", "/").header("cookie", "a=1").header("cookie", "b=2; a=3");
        assert_eq!((split.cookie("a"), split.cookie("b")), (Some("1"), Some("2")));
        assert_eq!(RequestFacts::new("GET", "/").header("cookie", b"a=\xff".to_vec()).cookie("a"), None);
    }
}
