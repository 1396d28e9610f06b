//! Guesses of tokens, limited by ourselves: a wrong token is charged to the address that it came from.
//!
//! Whether a token is right is not looked at while its address is limited, so that a guess tells nothing. A right token
//! costs nothing. Behind one address (a proxy, a NAT) all callers share the limit; a listener for operators alone
//! keeps them apart from others.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ratekeeper::{Charge, Check, Decision, Key, MemoryStore, Name, Quota, Store as _, StoreError};

/// Wrong tokens that an address may send.
pub const GUESSES_QUOTA: &str = "10/min";
/// Addresses that are remembered.
pub const GUESSERS_MAX: usize = 10_000;
/// The rule that they count under.
const RULE: &str = "/wrong-token";
/// The bits of an IPv6 address that one site has.
const SITE_BITS: u32 = 64;

#[derive(Debug)]
pub(super) struct Guesses(MemoryStore);

impl Default for Guesses {
    fn default() -> Self {
        Self(MemoryStore::with_max_keys(GUESSERS_MAX))
    }
}

impl Guesses {
    /// How long an address has to wait before a token of it is looked at.
    pub(super) fn wait(&self, from: Option<IpAddr>) -> Option<Duration> {
        let decision = self.judge(from, true).ok()?;
        let wait = Duration::from_micros(decision.retry_after().as_micros().unwrap_or_default());
        (!decision.is_allowed()).then_some(wait)
    }

    /// Notes a wrong token.
    pub(super) fn note(&self, from: Option<IpAddr>) {
        // In memory there is always an answer, and one that is full forgets the address that was seen least.
        let _ = self.judge(from, false);
    }

    fn judge(&self, from: Option<IpAddr>, peek: bool) -> Result<Decision, StoreError> {
        let quota: Quota = GUESSES_QUOTA.parse()?;
        let site = site(from);
        let charge = Charge::new(Key::new(Name::new(RULE)?, &*site)?, &quota);
        let check = Check::one(&charge);
        let check = if peek { check.peek() } else { check };
        let mut decision = Decision::default();
        self.0.try_check(&check, &mut decision).unwrap_or(Ok(()))?;
        Ok(decision)
    }
}

/// The address, or the network that one site has.
fn site(from: Option<IpAddr>) -> String {
    match from.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let bits = address.to_bits() >> (Ipv6Addr::BITS - SITE_BITS) << (Ipv6Addr::BITS - SITE_BITS);
            Ipv6Addr::from_bits(bits).to_string()
        }
        Some(address) => address.to_string(),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_guesses_and_others_have_theirs() {
        let guesses = Guesses::default();
        let at = |text: &str| Some(text.parse().unwrap());
        for _ in 0..10 {
            assert_eq!(guesses.wait(at("192.0.2.1")), None);
            guesses.note(at("192.0.2.1"));
        }
        let wait = guesses.wait(at("192.0.2.1")).unwrap();
        assert!(wait <= Duration::from_secs(6), "{wait:?}");
        assert!(guesses.wait(at("::ffff:192.0.2.1")).is_some(), "the same address");
        assert_eq!(guesses.wait(at("192.0.2.2")), None);
        assert_eq!(guesses.wait(None), None);
    }

    #[test]
    fn a_site_has_one_limit_whatever_addresses_it_makes_up() {
        assert_eq!(site(Some("2001:db8:1:2:aaaa::1".parse().unwrap())), "2001:db8:1:2::");
        assert_eq!(site(Some("2001:db8:1:2:bbbb::2".parse().unwrap())), "2001:db8:1:2::");
        assert_ne!(site(Some("2001:db8:1:3::1".parse().unwrap())), "2001:db8:1:2::");
    }
}
