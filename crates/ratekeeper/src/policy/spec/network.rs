//! Addresses of networks: `10.0.0.0/8`, `2001:db8::/32`, or one address alone.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: an address and how many of its first bits count.
///
/// The bits behind the prefix are 0, so that a mistyped one is noticed. An
/// IPv4 network stays IPv4: addresses mapped into IPv6 are to be unmapped
/// before they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits count.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl FromStr for Network {
    /// What would be right.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "an address or a network such as 10.0.0.0/8 or 2001:db8::/32";
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| EXPECTED.to_owned())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => {
                let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
                let number = prefix.parse().ok().filter(|number| digits && *number <= bits);
                number.ok_or_else(|| format!("a prefix from /0 to /{bits}"))?
            }
        };
        let first = first_of(address, prefix);
        if first == address {
            return Ok(Self { address, prefix });
        }
        Err(format!("{first}/{prefix}, which is where that network begins"))
    }
}

fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_print() {
        let cases = [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
        ];
        for (text, printed) in cases {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), printed);
        }
        let wrong = [
            ("10.0.0.1/8", "10.0.0.0/8, which is"),
            ("2001:db8::1/32", "2001:db8::/32, which is"),
            ("10.0.0.0/33", "from /0 to /32"),
            ("::/129", "from /0 to /128"),
            ("10.0.0.0/+8", "from /0 to /32"),
            ("10.0.0.0/", "from /0 to /32"),
            ("10.0.0", "an address or a network"),
            ("localhost", "an address or a network"),
            ("", "an address or a network"),
        ];
        for (text, expected) in wrong {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
