use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::policy::request::RequestFacts;

const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn addresses(header: ProxyHeader) -> Addresses {
    Addresses::default().trust(["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap())).header(header)
}

fn client(header: ProxyHeader, lines: &[&str]) -> String {
    let facts = lines
        .iter()
        .fold(RequestFacts::new("GET", "/").peer(PEER), |facts, line| facts.header(header.name(), *line));
    addresses(header).client(&facts).unwrap().to_string()
}

#[test]
fn the_first_hop_from_the_right_that_is_no_proxy_is_the_client() {
    let cases: [(&[&str], &str); 19] = [
        (&[], "10.0.0.1"),
        (&["203.0.113.7"], "203.0.113.7"),
        (&["203.0.113.7:4711"], "203.0.113.7"),
        (&[" 203.0.113.7 , 10.9.9.9 "], "203.0.113.7"),
        (&["1.1.1.1, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        (&["1.1.1.1", "203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["[2001:db8::1]:80, fd00::2"], "2001:db8::1"),
        (&["::ffff:203.0.113.7"], "203.0.113.7"),
        (&["::ffff:cb00:7107, ::ffff:a00:2"], "203.0.113.7"),
        (&["1.1.1.1, unknown"], "10.0.0.1"),
        (&["1.1.1.1, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["1.1.1.1,, 10.0.0.2"], "10.0.0.2"),
        (&["1.1.1.1,"], "10.0.0.1"),
        (&["010.0.0.9"], "10.0.0.1"),
        (&["1.1.1.1:99999"], "10.0.0.1"),
        (&["[1.1.1.1]"], "10.0.0.1"),
    ];
    for (lines, expected) in cases {
        assert_eq!(client(ProxyHeader::XForwardedFor, lines), expected, "{lines:?}");
    }
}

#[test]
fn forwarded_is_read_as_rfc_7239_has_it() {
    let cases: [(&[&str], &str); 19] = [
        (&["for=192.0.2.43"], "192.0.2.43"),
        (&["For=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
        (&["for=192.0.2.60;proto=http;by=203.0.113.43"], "192.0.2.60"),
        (&["proto=http ; by=203.0.113.43; for=\"192.0.2.60:80\""], "192.0.2.60"),
        (&["for=192.0.2.43, for=198.51.100.17, for=10.0.0.2"], "198.51.100.17"),
        (&["for=192.0.2.43", "for=198.51.100.17;secret=\"a,b;for=1.1.1.1\""], "198.51.100.17"),
        (&["for=\"198.51.100.17:_port\""], "198.51.100.17"),
        (&["for=1.1.1.1, for=unknown"], "10.0.0.1"),
        (&["for=1.1.1.1, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
        (&["for=1.1.1.1, proto=https"], "10.0.0.1"),
        (&["for=1.1.1.1;for=2.2.2.2"], "10.0.0.1"),
        (&["for=\"1.1.1.1"], "10.0.0.1"),
        (&["for=\"1\\.1.1.1\""], "10.0.0.1"),
        (&["for=1.1.1.1 for=2.2.2.2"], "10.0.0.1"),
        (&["1.1.1.1"], "10.0.0.1"),
        // A quote that the client left open swallows nothing.
        (&["for=\"evil, for=203.0.113.7"], "203.0.113.7"),
        (&["for=\"evil\\, for=\"203.0.113.7\""], "203.0.113.7"),
        (&["x=\", for=9.9.9.9, y=\", for=203.0.113.7"], "203.0.113.7"),
        (&[""], "10.0.0.1"),
    ];
    for (lines, expected) in cases {
        assert_eq!(client(ProxyHeader::Forwarded, lines), expected, "{lines:?}");
    }
}

#[test]
fn a_header_that_the_proxies_do_not_write_is_not_read() {
    let facts = RequestFacts::new("GET", "/")
        .peer(PEER)
        .header("Forwarded", "for=9.9.9.9")
        .header("X-Forwarded-For", "203.0.113.7");
    assert_eq!(addresses(ProxyHeader::XForwardedFor).client(&facts).unwrap().to_string(), "203.0.113.7");
    assert_eq!(addresses(ProxyHeader::Forwarded).client(&facts).unwrap().to_string(), "9.9.9.9");
    let direct = facts.peer([203, 0, 113, 99]);
    for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
        assert_eq!(addresses(header).client(&direct).unwrap().to_string(), "203.0.113.99");
    }
    assert_eq!(Addresses::default().client(&RequestFacts::default()), None);
}

#[test]
fn long_headers_cost_no_more_than_their_right_end() {
    let padded = format!("{}, 203.0.113.7", "x".repeat(1 << 20));
    assert_eq!(client(ProxyHeader::XForwardedFor, &[&padded]), "203.0.113.7");
    assert_eq!(client(ProxyHeader::Forwarded, &[&padded.replace(", ", ", for=")]), "203.0.113.7");
    let long = format!("203.0.113.7{}", " ".repeat(ELEMENT));
    assert_eq!(client(ProxyHeader::XForwardedFor, &[&long]), "10.0.0.1");
    let proxies = vec!["10.0.0.9"; 10_000].join(",");
    assert_eq!(client(ProxyHeader::XForwardedFor, &[&format!("9.9.9.9,{proxies}")]), "10.0.0.9");
}

const ELEMENT: usize = 256;

#[test]
fn ipv6_counts_by_network_and_mapped_ipv4_by_address() {
    let cases = [
        ("203.0.113.7", 64, "203.0.113.7"),
        ("255.255.255.255", 64, "255.255.255.255"),
        ("::ffff:102:304", 56, "1.2.3.4"),
        ("::ffff:1.2.3.4", 64, "1.2.3.4"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2ff:3:4:5:6", 56, "2001:db8:1:200::/56"),
        ("2001:db8::1", 128, "2001:db8::1/128"),
        ("::1", 64, "::/64"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 127, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"),
    ];
    for (peer, prefix, expected) in cases {
        let addresses = Addresses::default().ipv6_prefix(prefix);
        let facts = RequestFacts::new("GET", "/").peer(peer.parse::<IpAddr>().unwrap());
        let address = addresses.client(&facts).unwrap();
        assert_eq!(addresses.group(address).as_str(), expected, "{peer}");
    }
    assert_eq!(Addresses::default().ipv6_prefix(200).ipv6_prefix, 128);
}

#[test]
fn networks_are_told_by_bits() {
    for (text, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
        ("10.0.0.0/8", "::ffff:a01:203", "::a01:203"),
        ("0.0.0.0/0", "255.1.2.3", "::1"),
        ("::/0", "ffff::1", "10.0.0.1"),
        ("::/0", "::1", "::ffff:10.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
        ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.1"),
        ("::1", "::1", "::2"),
    ] {
        let network: Network = text.parse().unwrap();
        assert!(network.contains(inside.parse().unwrap()), "{text} {inside}");
        assert!(!network.contains(outside.parse().unwrap()), "{text} {outside}");
    }
}

/// What a client may send: anything that fits into a header line, and often
/// something that looks like a part of a list.
fn forged() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("for=".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just(",".to_owned()),
        Just(";".to_owned()),
        Just("10.0.0.5".to_owned()),
        Just("9.9.9.9".to_owned()),
        Just("[2001:db8::666]:80".to_owned()),
        Just("unknown".to_owned()),
        "[ -~]{0,5}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn an_address_that_a_client_can_forge_never_wins(
        sent in proptest::collection::vec(forged(), 0..3),
        other in forged(),
        real in any::<[u8; 4]>().prop_filter("not a proxy", |real| real[0] != 10),
        proxies in proptest::collection::vec(any::<u8>(), 0..4),
        joined in any::<bool>(),
        forwarded in any::<bool>(),
    ) {
        let (header, lead) =
            if forwarded { (ProxyHeader::Forwarded, "for=") } else { (ProxyHeader::XForwardedFor, "") };
        let real = IpAddr::from(real);
        // Each proxy adds its peer, to the last line or in one of its own.
        let mut lines = sent;
        let hops = std::iter::once(real).chain(proxies.iter().map(|n| IpAddr::from([10, 0, 0, *n])));
        for hop in hops {
            match lines.last_mut() {
                Some(line) if joined => line.push_str(&format!(", {lead}{hop}")),
                _ => lines.push(format!("{lead}{hop}")),
            }
        }
        let mut facts = RequestFacts::new("GET", "/").peer(PEER);
        for line in lines {
            facts = facts.header(header.name(), line);
        }
        let ignored = if forwarded { "x-forwarded-for" } else { "forwarded" };
        facts = facts.header(ignored, other);
        prop_assert_eq!(addresses(header).client(&facts), Some(real));
        let direct = facts.peer(real);
        prop_assert_eq!(addresses(header).client(&direct), Some(real));
    }

    #[test]
    fn any_bytes_are_an_address_or_are_not(line in any::<Vec<u8>>(), forwarded in any::<bool>()) {
        let header = if forwarded { ProxyHeader::Forwarded } else { ProxyHeader::XForwardedFor };
        let facts = RequestFacts::new("GET", "/").peer(PEER).header(header.name(), line);
        prop_assert!(addresses(header).client(&facts).is_some());
    }
}
