//! Where a request comes from: the peer, or the one for whom trusted proxies
//! say that they pass the request on.
//!
//! Every proxy adds the address of its own peer at the right end of a header.
//! So the list is walked from the right, and what stands there is believed as
//! long as whoever wrote it is trusted: the first address that is not a trusted
//! proxy is the client's. Whatever a client sends by itself stands to the left
//! of that, and is never looked at.
//!
//! - **Only one header counts**, the one that the proxies write
//!   ([`ProxyHeader`]). A proxy that adds to `X-Forwarded-For` hands on a
//!   `Forwarded` that the client made up, and the other way round.
//! - **What cannot be read ends the walk** (`unknown`, an obfuscated name,
//!   garbage, an empty element): then the client is the proxy that said it.
//!   Those behind it share a limit, but nobody escapes it or picks another's.
//! - **Families by bits**: `::ffff:1.2.3.4`, `::ffff:102:304` and `1.2.3.4` are
//!   one address, wherever it is written. IPv6 counts by network (/64 unless
//!   said otherwise), because a client has a whole one to draw addresses from.
//! - Ports are not part of an address.

mod forwarded;

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::request::Facts;
use super::spec::{IPV6_PREFIX_DEFAULT, Network};
use forwarded::Hops;

/// How many proxies are walked through at most.
const HOPS_MAX: usize = 32;

/// The header in which the proxies tell for whom they pass a request on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, which most proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ProxyHeader {
    const fn name(self) -> &'static str {
        match self {
            ProxyHeader::XForwardedFor => "x-forwarded-for",
            ProxyHeader::Forwarded => "forwarded",
        }
    }
}

/// How the client's address is found, and what limits count under.
///
/// ```
/// use ratekeeper::policy::{Addresses, RequestFacts};
///
/// let addresses = Addresses::default().trust(["10.0.0.0/8".parse()?]);
/// let facts = RequestFacts::new("GET", "/")
///     .peer([10, 0, 0, 1])
///     .header("X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.0.0.2");
/// assert_eq!(addresses.client(&facts), Some("203.0.113.7".parse()?), "1.1.1.1 may be made up");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Addresses {
    trusted: Vec<Network>,
    header: ProxyHeader,
    ipv6_prefix: u8,
}

impl Default for Addresses {
    /// Trusts nobody: the client is the peer.
    fn default() -> Self {
        Self { trusted: Vec::new(), header: ProxyHeader::default(), ipv6_prefix: IPV6_PREFIX_DEFAULT }
    }
}

impl Addresses {
    /// Trusts the proxies in these networks.
    #[must_use]
    pub fn trust(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.trusted.extend(networks);
        self
    }

    /// Sets the header that the proxies write.
    #[must_use]
    pub fn header(self, header: ProxyHeader) -> Self {
        Self { header, ..self }
    }

    /// Sets how many bits of an IPv6 address count; more than 128 are 128.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { ipv6_prefix: bits.min(128), ..self }
    }

    /// The client's address, if there is a peer at all.
    #[must_use]
    pub fn client(&self, facts: &dyn Facts) -> Option<IpAddr> {
        let mut known = facts.peer()?.to_canonical();
        if self.trusted.is_empty() {
            return Some(known);
        }
        let mut hops = Hops::new(facts, self.header);
        for _ in 0..HOPS_MAX {
            if !self.is_trusted(known) {
                break;
            }
            let Some(hop) = hops.next() else { break };
            known = hop;
        }
        Some(known)
    }

    /// Whether there are proxies whose word is taken.
    #[must_use]
    pub fn trusts_anybody(&self) -> bool {
        !self.trusted.is_empty()
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    /// What limits count under for that address.
    pub(super) fn group(&self, address: IpAddr) -> AddressText {
        in_words(address, Some(self.ipv6_prefix))
    }
}

impl Network {
    /// Whether the address is in the network, by its bits: an IPv4 address is
    /// the same in the clothes of IPv6, and so is an IPv4 network. `::/0` has no
    /// IPv4 addresses.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let mapped = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        let prefix = if self.address().is_ipv4() { 96 + self.prefix() } else { self.prefix() };
        let families_differ = address.to_canonical().is_ipv4() && prefix < 96;
        !families_differ && (mapped(self.address()) ^ mapped(address)) & first_bits(prefix) == 0
    }
}

/// The first of 128 bits.
fn first_bits(count: u8) -> u128 {
    !u128::MAX.checked_shr(count.into()).unwrap_or(0)
}

/// An IPv4 address as it is; an IPv6 address as it is, or its network of that
/// many bits.
pub(super) fn in_words(address: IpAddr, ipv6_prefix: Option<u8>) -> AddressText {
    match (address, ipv6_prefix) {
        (IpAddr::V4(address), _) => ipv4_in_words(address),
        (IpAddr::V6(address), None) => AddressText::of(&address),
        (IpAddr::V6(address), Some(bits)) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & first_bits(bits));
            AddressText::of(&format_args!("{network}/{bits}"))
        }
    }
}

/// The formatting of the standard library, which knows widths and precisions,
/// takes longer than all the rest of a template.
fn ipv4_in_words(address: Ipv4Addr) -> AddressText {
    let mut text = AddressText { bytes: [0; 48], length: 0 };
    for piece in ipv4_pieces(address) {
        let _ = text.write_str(piece);
    }
    text
}

/// The text of an address: its four numbers, all but the last with a dot.
#[inline]
pub(super) fn ipv4_pieces(address: Ipv4Addr) -> [&'static str; 4] {
    let [first, second, third, last] = address.octets().map(|octet| OCTETS[usize::from(octet)]);
    [first, second, third, last.strip_suffix('.').unwrap_or(last)]
}

/// The numbers of addresses, each with a dot.
static OCTETS: [&str; 256] = octets();

const fn octets() -> [&'static str; 256] {
    const BYTES: [[u8; 4]; 256] = octet_bytes();
    let (mut octets, mut number) = ([""; 256], 0);
    while number < octets.len() {
        let length = if number < 10 { 2 } else { 3 + (number >= 100) as usize };
        if let Ok(text) = std::str::from_utf8(BYTES[number].split_at(length).0) {
            octets[number] = text;
        }
        number += 1;
    }
    octets
}

const fn octet_bytes() -> [[u8; 4]; 256] {
    let (mut octets, mut number) = ([[b'.'; 4]; 256], 0);
    while number < octets.len() {
        let octet = number as u8;
        let [hundreds, tens, ones] = [b'0' + octet / 100, b'0' + octet / 10 % 10, b'0' + octet % 10];
        octets[number] = match octet {
            0..10 => [ones, b'.', b'.', b'.'],
            10..100 => [tens, ones, b'.', b'.'],
            _ => [hundreds, tens, ones, b'.'],
        };
        number += 1;
    }
    octets
}

/// The longest has 43 bytes.
pub(super) type AddressText = ShortText<48>;

/// A text of bounded length, without allocating.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortText<const BYTES_MAX: usize> {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl<const BYTES_MAX: usize> ShortText<BYTES_MAX> {
    /// What `value` prints; cut off at a piece that does not fit, so choose
    /// `BYTES_MAX` well.
    pub(super) fn of(value: &impl fmt::Display) -> Self {
        let mut text = Self { bytes: [0; BYTES_MAX], length: 0 };
        let _ = write!(text, "{value}");
        text
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl<const BYTES_MAX: usize> Write for ShortText<BYTES_MAX> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
