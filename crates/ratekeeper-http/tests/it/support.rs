//! Decisions to tell of, made by the core's model, and readers of what is told.

use std::collections::HashMap;

use ratekeeper_core::{
    Charge, Charges, Check, Decision, Emergency, Enforcement, Key, Model, Name, Quota, Timestamp,
};
use ratekeeper_http::{Denial, Field, HttpOptions};
use sfv::{BareItem, List, ListEntry, Parser};

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
/// The largest integer of a structured field (RFC 9651, 3.3.1).
pub(crate) const INTEGER_MAX: i64 = 999_999_999_999_999;

/// A charge as a test writes it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: Name,
    pub(crate) quota: Quota,
    pub(crate) subject: String,
    pub(crate) cost: u64,
    pub(crate) enforcement: Enforcement,
    pub(crate) emergency: Emergency,
}

pub(crate) fn plan(name: &str, quota: &str) -> Plan {
    Plan {
        name: Name::new(name).unwrap(),
        quota: quota.parse().unwrap(),
        subject: "user:42".into(),
        cost: 1,
        enforcement: Enforcement::Enforce,
        emergency: Emergency::Off,
    }
}

impl Plan {
    pub(crate) fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    pub(crate) fn subject(self, subject: &str) -> Self {
        Self { subject: subject.into(), ..self }
    }

    pub(crate) fn emergency(self, emergency: Emergency) -> Self {
        Self { emergency, ..self }
    }
}

pub(crate) fn with_check<T>(plans: &[Plan], run: impl FnOnce(Check<'_>) -> T) -> T {
    let mut charges = Charges::new();
    for plan in plans {
        let key = Key::new(plan.name, &plan.subject).unwrap();
        let charge = Charge::new(key, &plan.quota)
            .cost(plan.cost)
            .unwrap()
            .enforcement(plan.enforcement)
            .emergency(plan.emergency);
        // The same key twice with other terms is refused; one of both will do.
        let _ = charges.push(charge);
    }
    run(charges.check().unwrap())
}

/// The decision on `plans` after they were asked for `before` times.
pub(crate) fn decide(plans: &[Plan], before: usize) -> Decision {
    let mut model = Model::default();
    with_check(plans, |check| {
        for _ in 0..before {
            model.check(&check, NOW).unwrap();
        }
        model.check(&check, NOW).unwrap()
    })
}

pub(crate) fn denied_body(decision: &Decision, options: &HttpOptions) -> serde_json::Value {
    let denial = Denial::of(decision, options).expect("a denial");
    serde_json::from_str(&denial.body()).expect("valid JSON")
}

/// A member of a list: its name and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) integers: HashMap<String, i64>,
    pub(crate) unit: Option<String>,
    pub(crate) partition: Option<Vec<u8>>,
}

impl Told {
    pub(crate) fn get(&self, key: &str) -> Option<i64> {
        self.integers.get(key).copied()
    }
}

/// Reads a value as the draft has it: a list of strings with parameters.
pub(crate) fn members(value: &str) -> Vec<Told> {
    let list: List = Parser::new(value).parse().unwrap_or_else(|error| panic!("{value:?}: {error}"));
    list.into_iter().map(|entry| told(entry, value)).collect()
}

fn told(entry: ListEntry, value: &str) -> Told {
    let ListEntry::Item(item) = entry else { panic!("an inner list in {value:?}") };
    let name = item.bare_item.as_string().expect("a string as name").as_str().to_owned();
    let mut told = Told { name, integers: HashMap::new(), unit: None, partition: None };
    for (key, value) in item.params {
        match value {
            BareItem::Integer(number) => {
                let number = i64::from(number);
                assert!((0..=INTEGER_MAX).contains(&number), "{key}={number}");
                told.integers.insert(key.to_string(), number);
            }
            BareItem::String(unit) if key.as_str() == "qu" => told.unit = Some(unit.as_str().to_owned()),
            BareItem::ByteSequence(bytes) if key.as_str() == "pk" => told.partition = Some(bytes),
            other => panic!("{key} is {other:?}"),
        }
    }
    told
}

/// Fields by name, each once.
pub(crate) fn by_name(fields: impl IntoIterator<Item = Field>) -> HashMap<&'static str, String> {
    let mut found = HashMap::new();
    for (name, value) in fields {
        assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{name}: {value:?}");
        assert_eq!(value.trim(), value, "{name}");
        assert!(found.insert(name, value.into_owned()).is_none(), "{name} twice");
    }
    found
}
