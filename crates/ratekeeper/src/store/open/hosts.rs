//! Lists of hosts in the URL of a store.

use std::net::Ipv6Addr;

/// The longest name of a host, in bytes.
const HOST_BYTES_MAX: usize = 255;

/// What a list is of: one of it, its usual port, and how many there may be.
pub(super) struct Listed {
    pub(super) what: &'static str,
    pub(super) port: u16,
    pub(super) max: usize,
}

impl Listed {
    /// `host[:port][,host[:port]]`; or what is wrong. Nothing is repeated: what stands there may be a password that
    /// should have been escaped.
    pub(super) fn read<'u>(&self, text: &'u str) -> Result<Vec<(&'u str, u16)>, String> {
        let count = text.split(',').count();
        if count > self.max {
            return Err(format!("{count} {}s, more than {}", self.what, self.max));
        }
        text.split(',').map(|text| self.host(text)).collect()
    }

    fn host<'u>(&self, text: &'u str) -> Result<(&'u str, u16), String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => return Ok((self.named(text)?, self.port)),
        };
        match port.parse() {
            Ok(port) if port > 0 => Ok((self.named(host)?, port)),
            _ => Err(format!("a {} whose port is no number from 1 to 65535", self.what)),
        }
    }

    fn named<'u>(&self, host: &'u str) -> Result<&'u str, String> {
        if host.is_empty() {
            return Err(format!("a {} without a host", self.what));
        }
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match address {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => {
                let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                host.len() <= HOST_BYTES_MAX && host.bytes().all(is_of_host)
            }
        };
        if is_host {
            Ok(host)
        } else {
            Err(format!("a {} whose host is neither a name nor an address", self.what))
        }
    }
}

/// As a client connects to it: without the brackets of IPv6.
#[cfg(feature = "redis")]
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
