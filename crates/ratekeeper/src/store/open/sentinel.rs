//! The part of a URL behind `redis+sentinel://`: who to ask, for what, and as whom.

use super::hosts::Listed;

/// The most sentinels that a URL may name.
pub const SENTINELS_MAX: usize = 16;
/// The port of a sentinel, unless the URL names another.
pub const SENTINEL_PORT: u16 = 26_379;
/// The longest name of a service, in bytes.
const SERVICE_BYTES_MAX: usize = 128;
const SENTINELS: Listed = Listed { what: "sentinel", port: SENTINEL_PORT, max: SENTINELS_MAX };
/// The number of a database has so many digits at most.
const DATABASE_DIGITS_MAX: usize = 9;
/// How much of an unknown parameter an error repeats, in bytes.
const PARAMETER_BYTES_MAX: usize = 32;
#[cfg(feature = "redis")]
const USER: &str = "sentinel_user";
#[cfg(feature = "redis")]
const PASSWORD: &str = "sentinel_password";
/// What may stand in the query.
const PARAMETERS: [&str; 3] = ["sentinel_user", "sentinel_password", "protocol"];

/// `[user:password@]host[:port][,host[:port]]/service[/database][?query]`, taken apart.
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "a program without it only checks URLs"))]
pub(super) struct Watched<'u> {
    /// With the `@` behind it.
    login: &'u str,
    pub(super) hosts: Vec<(&'u str, u16)>,
    pub(super) service: &'u str,
    database: &'u str,
    query: &'u str,
}

impl<'u> Watched<'u> {
    /// Or what is wrong, without anything that could be a password.
    pub(super) fn read(scheme: &str, rest: &'u str) -> Result<Self, String> {
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        let hosts_at = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, hosts) = authority.split_at(hosts_at);
        let hosts = SENTINELS.read(hosts)?;
        let (service, database) = path.split_once('/').unwrap_or((path, "0"));
        if service.is_empty() {
            return Err(format!("{scheme}:// without the name of a service behind the sentinels"));
        }
        if service.len() > SERVICE_BYTES_MAX || !service.bytes().all(is_of_a_name) {
            return Err("a name of a service that is none".to_owned());
        }
        let database = if database.is_empty() { "0" } else { database };
        if database.len() > DATABASE_DIGITS_MAX || !database.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("a database that is no number".to_owned());
        }
        query.split('&').filter(|pair| !pair.is_empty()).try_for_each(known)?;
        Ok(Self { login, hosts, service, database, query })
    }

    /// The URL of a server as those that the sentinels watch, at the first sentinel's place.
    #[cfg(feature = "redis")]
    pub(super) fn server(&self, is_tls: bool) -> String {
        let scheme = if is_tls { "rediss" } else { "redis" };
        let (host, port) = self.hosts.first().copied().unwrap_or_default();
        format!("{scheme}://{}{host}:{port}/{}?{}", self.login, self.database, self.query)
    }

    /// Who to be to the sentinels.
    #[cfg(feature = "redis")]
    pub(super) fn sentinel_login(&self) -> (Option<String>, Option<String>) {
        let url = ::redis::parse_redis_url(&self.server(false));
        let value = |name: &str| {
            let found = url.as_ref()?.query_pairs().find(|(key, value)| key == name && !value.is_empty());
            found.map(|(_, value)| value.into_owned())
        };
        (value(USER), value(PASSWORD))
    }
}

/// What needs no escape in a path, and cannot be half of a password that should have had one.
fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_~!$'()*+,;=:".contains(&byte)
}

fn known(pair: &str) -> Result<(), String> {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    if PARAMETERS.contains(&name) {
        return Ok(());
    }
    let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let can_be_shown = is_word && name.len() <= PARAMETER_BYTES_MAX && pair.contains('=');
    Err(match can_be_shown {
        true => format!("an unknown parameter {name:?}"),
        false => "an unknown parameter".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_ports_and_the_rest_has_its_defaults() {
        let read = Watched::read("x", "a,[::1]:7,10.0.0.1:8/my-service").unwrap();
        assert_eq!(read.hosts, [("a", SENTINEL_PORT), ("[::1]", 7), ("10.0.0.1", 8)]);
        assert_eq!((read.service, read.database, read.login), ("my-service", "0", ""));
        let read = Watched::read("x", "ann:p%40ss@a/s/3?sentinel_user=ben").unwrap();
        assert_eq!((read.service, read.database, read.login), ("s", "3", "ann:p%40ss@"));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_login_of_its_own_is_decoded() {
        let read = Watched::read("x", "ann:one@a/s?sentinel_user=be%6E&sentinel_password=t%40o").unwrap();
        assert_eq!(read.sentinel_login(), (Some("ben".to_owned()), Some("t@o".to_owned())));
        assert_eq!(
            read.server(true),
            "rediss://ann:one@a:26379/0?sentinel_user=be%6E&sentinel_password=t%40o"
        );
        assert_eq!(Watched::read("x", "ann:one@a/s").unwrap().sentinel_login(), (None, None));
    }
}
