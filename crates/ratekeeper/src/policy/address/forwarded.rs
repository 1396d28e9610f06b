//! The addresses that proxies wrote into a header, from the right.
//!
//! Reading from the right is what makes it safe: the right end was written by
//! a trusted proxy and is well formed, so no quote or comma further left, which
//! a client may have sent, changes how it is read. Only what is asked for is
//! looked at, in pieces of at most [`ELEMENT_BYTES_MAX`].

use std::net::IpAddr;

use super::ProxyHeader;
use crate::policy::request::Facts;

/// The longest element of a list that can be an address and what proxies tell
/// besides it.
const ELEMENT_BYTES_MAX: usize = 256;

/// The hops of a request, the nearest first; ends at the first that is no
/// address.
pub(super) struct Hops<'f> {
    facts: &'f dyn Facts,
    header: ProxyHeader,
    /// How many lines have been begun, from the last.
    lines: usize,
    /// What is left of the present line.
    rest: Option<&'f [u8]>,
}

impl<'f> Hops<'f> {
    pub(super) fn new(facts: &'f dyn Facts, header: ProxyHeader) -> Self {
        Self { facts, header, lines: 0, rest: None }
    }

    pub(super) fn next(&mut self) -> Option<IpAddr> {
        let line = match self.rest.take() {
            Some(rest) => rest,
            None => {
                self.lines += 1;
                self.facts.header_from_end(self.header.name(), self.lines - 1)?
            }
        };
        let comma = last_comma(line, self.header == ProxyHeader::Forwarded)?;
        self.rest = comma.map(|comma| &line[..comma]);
        let element = std::str::from_utf8(&line[comma.map_or(0, |comma| comma + 1)..]).ok()?;
        let node = match self.header {
            ProxyHeader::XForwardedFor => element,
            ProxyHeader::Forwarded => node_for(element)?,
        };
        address_of(node.trim())
    }
}

/// Where the last element of a line begins: behind that comma, or at the start
/// of the line if there is none. `None` if the element is too long.
fn last_comma(line: &[u8], quotes: bool) -> Option<Option<usize>> {
    let mut quoted = false;
    let looked_at = line.len().saturating_sub(ELEMENT_BYTES_MAX);
    for index in (looked_at..line.len()).rev() {
        match line[index] {
            b',' if !quoted => return Some(Some(index)),
            b'"' if quotes => {
                let backslashes =
                    line[looked_at..index].iter().rev().take_while(|byte| **byte == b'\\').count();
                quoted ^= backslashes % 2 == 0;
            }
            _ => {}
        }
    }
    (looked_at == 0).then_some(None)
}

/// What an element of `Forwarded` has under `for`, if it has that once.
fn node_for(element: &str) -> Option<&str> {
    let mut node = None;
    let mut rest = element.trim();
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=')?;
        let (value, after) = match value.strip_prefix('"') {
            // No address needs a quoted pair, so a backslash makes it none.
            Some(quoted) => quoted.split_once('"').filter(|(value, _)| !value.contains('\\'))?,
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        if name.trim().eq_ignore_ascii_case("for") && node.replace(value).is_some() {
            return None;
        }
        let after = after.trim_start();
        if after.is_empty() {
            break;
        }
        rest = after.strip_prefix(';')?.trim_start();
    }
    node
}

/// The address in `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:80`.
fn address_of(node: &str) -> Option<IpAddr> {
    let (address, port) = if let Some(bracketed) = node.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        (IpAddr::V6(address.parse().ok()?), port)
    } else if let Ok(address) = node.parse::<IpAddr>() {
        (address, "")
    } else {
        let (address, port) = node.split_at(node.find(':')?);
        (IpAddr::V4(address.parse().ok()?), port)
    };
    let is_port = |text: &str| {
        let digits = text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits || text.strip_prefix('_').is_some_and(|name| !name.is_empty())
    };
    let good = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    good.then(|| address.to_canonical())
}
