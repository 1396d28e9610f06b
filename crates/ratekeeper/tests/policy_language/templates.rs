//! No value can imitate another key: properties over any values.

use std::net::IpAddr;

use proptest::prelude::*;
use ratekeeper::bounds::SUBJECT_PLAIN_BYTES_MAX;
use ratekeeper::policy::{Condition, Cost, KeyHashing, Network, RequestFacts, Template};

use super::resolve;

/// Values that are made of what could be taken for something else.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[:/ |,%{}#.-]",
        2 => "[ab01]",
        1 => Just("%3A".to_owned()),
        1 => Just("{header.b}".to_owned()),
        1 => Just("::/64".to_owned()),
        1 => Just("1.2.3.4".to_owned()),
        1 => Just("x".repeat(90)),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

/// Templates over the headers `a`, `b` and `c`, with every kind of separator.
const TEMPLATES: [&str; 11] = [
    "a:{header.a}:b:{header.b}:c:{header.c}",
    "{header.a}:{header.b}:{header.c}",
    "{header.a} {header.b}|{header.c}",
    "{header.a}/{header.b}/{header.c}",
    "{header.a}-{header.b}.{header.c}",
    "{header.a}x-x{header.b}--{header.c}",
    "{header.a}%-{header.b}%,{header.c}",
    "{header.a}{{{header.b}}}{header.c}",
    "\u{e9}{header.a}@{header.b}_{header.c}\u{e9}",
    "{header.a}~~{header.b}=3A={header.c}",
    "{header.a}2:{header.b}a:{header.c}",
];

fn facts(values: &[String; 3]) -> RequestFacts {
    let [a, b, c] = values;
    RequestFacts::new("GET", "/").header("a", a.as_str()).header("b", b.as_str()).header("c", c.as_str())
}

fn template(index: usize, hashed: u8) -> Template {
    let template = Template::parse(TEMPLATES[index]).expect("a good template");
    match hashed {
        0 => template.hash_values(&KeyHashing::open()),
        1 => template.hash_values(&KeyHashing::secret(b"0123456789abcdef").expect("long enough")),
        _ => template,
    }
}

/// Three values twice, often alike or shifted against each other.
fn two_tuples() -> impl Strategy<Value = ([String; 3], [String; 3])> {
    let tuple = || [hostile(), hostile(), hostile()];
    prop_oneof![
        (tuple(), tuple()),
        (tuple(), 0..3_usize, hostile()).prop_map(|(tuple, place, value)| {
            let mut other = tuple.clone();
            other[place] = value;
            (tuple, other)
        }),
        // What the one has at the end of a value, the other has at the beginning of the next.
        (tuple(), hostile(), ":|/|-|::|%3A|\\.|x-x|2:|, ").prop_map(|([a, b, c], moved, between)| {
            let one = [format!("{a}{between}{moved}"), b.clone(), c.clone()];
            (one, [a, format!("{moved}{between}{b}"), c])
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn different_values_never_share_a_subject(
        (one, other) in two_tuples(),
        index in 0..TEMPLATES.len(),
        hashed in 0..6_u8,
    ) {
        let template = template(index, hashed);
        let subjects = [&one, &other].map(|values| resolve(&template, &facts(values)).expect("all are there"));
        prop_assert_eq!(subjects[0] == subjects[1], one == other, "{} {:?} {:?}", TEMPLATES[index], one, other);
        for subject in subjects {
            prop_assert!(subject.len() <= SUBJECT_PLAIN_BYTES_MAX);
            prop_assert!(!subject.chars().any(char::is_control));
        }
    }

    #[test]
    fn values_never_look_like_literals(value in hostile(), hashed in 0..4_u8) {
        let template = Template::parse("user:{header.a}").expect("a good template");
        let template = if hashed == 0 { template.hash_values(&KeyHashing::open()) } else { template };
        let subject = resolve(&template, &RequestFacts::new("GET", "/").header("a", value)).expect("a value");
        let rest = subject.strip_prefix("user:").expect("the literal");
        let (rest, digest) = rest.split_once('#').map_or((rest, None), |(rest, digest)| (rest, Some(digest)));
        prop_assert!(!rest.contains([':', ' ', '{', '}', '|', ',', '\\', '"']), "{}", subject);
        prop_assert!(digest.is_none_or(|digest| rest.is_empty() && digest.len() == 64));
    }

    #[test]
    fn addresses_end_themselves(
        one in (any::<IpAddr>(), hostile(), hostile()),
        other in (any::<IpAddr>(), hostile(), hostile()),
        same_address in any::<bool>(),
        mapped in any::<bool>(),
        index in 0..4_usize,
    ) {
        let text = ["{client.ip}:{header.a}:{header.b}", "{header.a}:{client.ip}:{header.b}",
            "{header.a} {header.b}/{client.ip}", "ip:{client.ip}/{header.a}/{header.b}"][index];
        let template = Template::parse(text).expect("a good template");
        let other = if same_address { (one.0, other.1, other.2) } else { other };
        let subject_of = |(address, a, b): &(IpAddr, String, String)| {
            let peer = match address {
                IpAddr::V4(address) if mapped => IpAddr::V6(address.to_ipv6_mapped()),
                address => *address,
            };
            let facts = RequestFacts::new("GET", "/").peer(peer);
            resolve(&template, &facts.header("a", a.as_str()).header("b", b.as_str())).expect("all are there")
        };
        let network = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => (4, u128::from(address.to_bits())),
            IpAddr::V6(address) => (6, address.to_bits() >> 64),
        };
        let alike = (network(one.0), &one.1, &one.2) == (network(other.0), &other.1, &other.2);
        prop_assert_eq!(subject_of(&one) == subject_of(&other), alike, "{:?} {:?}", one, other);
    }

    #[test]
    fn templates_that_meet_were_said_to_overlap(
        one in [hostile(), hostile(), hostile()],
        other in [hostile(), hostile(), hostile()],
        a in 0..TEMPLATES.len(),
        b in 0..TEMPLATES.len(),
    ) {
        let (a, b) = (template(a, 9), template(b, 9));
        prop_assert!(a.overlaps(&a) && a.overlaps(&b) == b.overlaps(&a));
        let meet = resolve(&a, &facts(&one)) == resolve(&b, &facts(&other));
        prop_assert!(!meet || a.overlaps(&b));
    }

    #[test]
    fn subjects_are_found_again_by_hand(values in [hostile(), hostile(), hostile()], index in 0..6_usize) {
        let template = template(index, 9);
        let subject = resolve(&template, &facts(&values)).expect("all are there");
        if !subject.contains('#') {
            let found = template.subject_of(&subject).map(String::from);
            prop_assert_eq!(found, Some(subject));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}|[{}a-z.:#\\[\\]()'\"&|=<> 0-9+*/%!-]{0,60}") {
        if let Ok(template) = Template::parse(&text) {
            prop_assert_eq!(template.as_str(), text.as_str());
        }
        let _ = (Condition::parse(&text), Cost::parse(&text), text.parse::<Network>());
    }
}
