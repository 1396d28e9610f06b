//! Configurations of envoyproxy/ratelimit: the decisions that the original makes, over random ones and random traffic.

mod model;

use std::time::Duration;

use proptest::prelude::*;
use ratekeeper::policy::import::{Converted, Foreign, convert};
use ratekeeper::policy::{
    Ask, CompileOptions, Descriptor as Entries, Format, Policies, Policy, PolicyLimiter, PolicySpec,
    Problems, RequestFacts, ServiceLimiter,
};
use ratekeeper::{Demand, ManualClock, MemoryStore, Timestamp};
use std::sync::Arc;

use self::model::{Descriptor, Entry, Limit, Model, Status, cleaned, has_limit, yaml};

const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("HOUR", 3_600),
    ("day", 86_400),
    ("week", 604_800),
    ("month", 2_592_000),
    ("year", 31_536_000),
];

fn read(text: &str) -> Result<PolicySpec, Problems> {
    PolicySpec::read("shop.yaml", Format::Yaml, text.as_bytes())
}

fn foreign(source: &str, text: &str) -> Foreign {
    Foreign { source: source.to_owned(), format: Format::Yaml, document: text.as_bytes().to_vec() }
}

fn converted(text: &str) -> Converted {
    let mut all = convert(&[foreign("shop.yaml", text)]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// A service under a policy, with a clock that is turned by hand.
struct Service {
    clock: ManualClock,
    limiter: ServiceLimiter,
}

impl Service {
    fn of(spec: PolicySpec) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        let store = MemoryStore::with_clock(100_000, Arc::new(clock.clone()));
        let policies = Policies::builder().mode(None).build().unwrap();
        let service = spec.service.clone();
        policies.install("shop.yaml", Ok(spec), None).unwrap_or_else(|problems| panic!("{problems}"));
        let limiter = PolicyLimiter::new(store, policies).service(&service).unwrap();
        Self { clock, limiter }
    }

    fn now(&self) -> u64 {
        use ratekeeper::Clock as _;
        self.clock.now().as_micros() / 1_000_000
    }

    /// What is said to one descriptor, and whether it is denied.
    fn ask(&self, descriptor: &Descriptor, hits: u64) -> (bool, Status) {
        let facts = facts(descriptor);
        let decision = self.limiter.check_now(&Ask::request(&facts).cost(hits)).unwrap();
        let status = match decision.verdicts() {
            [] => Status { is_over: false, limit: None },
            [only] => Status { is_over: !only.is_admitted(), limit: Some(only.quota().limit().into()) },
            more => panic!("one descriptor leads to one limit: {more:?}"),
        };
        (!decision.is_allowed(), status)
    }

    /// Whether a call is denied.
    fn call(&self, descriptors: &[Descriptor], hits: u64) -> bool {
        let demands = descriptors.iter().zip(0..).map(|(descriptor, index)| {
            let facts = facts(descriptor);
            self.limiter.demand(&Ask::request(&facts).cost(hits)).at_index(index)
        });
        let demand = demands.reduce(Demand::and).unwrap();
        !demand.now().check().unwrap().is_allowed()
    }
}

fn facts(descriptor: &Descriptor) -> RequestFacts {
    RequestFacts::new("", "").descriptor(descriptor.iter().copied().collect::<Entries<'static>>())
}

fn limits() -> impl Strategy<Value = Option<Limit>> {
    let per_unit = prop_oneof![1 => Just(None), 8 => (0_u64..4).prop_map(Some)];
    let unit = prop::sample::select(UNITS.to_vec());
    let name = prop::sample::select(vec!["", "", "n1", "n2"]);
    let replaces = prop::sample::select(vec!["", "", "", "n1", "n2", "n3"]);
    let limit = (per_unit, unit, name, replaces);
    let limit = limit.prop_map(|(per_unit, unit, name, replaces)| Limit { per_unit, unit, name, replaces });
    prop_oneof![1 => Just(None), 3 => limit.prop_map(Some)]
}

fn configurations() -> impl Strategy<Value = Vec<Entry>> {
    let parts = || {
        let key = prop::sample::select(vec!["a", "b-c", "d,e"]);
        let value =
            prop::sample::select(vec!["", "", "x", "y", "it's", "x*", "*y", "x*y", "*", "*x*", "x*x*"]);
        (key, value, limits(), prop::bool::weighted(0.2), prop::bool::weighted(0.2), any::<bool>())
    };
    let entry = |((key, value, limit, is_shadow, is_quota, is_shared), entries)| Entry {
        key,
        value,
        limit,
        is_shadow,
        is_quota,
        is_shared,
        entries,
    };
    let leaf = parts().prop_map(move |parts| entry((parts, Vec::new())));
    let tree = leaf
        .prop_recursive(3, 24, 5, move |inner| (parts(), prop::collection::vec(inner, 0..5)).prop_map(entry));
    prop::collection::vec(tree, 1..7).prop_map(cleaned)
}

fn descriptors() -> impl Strategy<Value = Descriptor> {
    let key = prop::sample::select(vec!["a", "a", "b-c", "d,e", "f"]);
    let value = prop::sample::select(vec!["", "x", "y", "xy", "xxy", "it's", "z", "xx"]);
    prop::collection::vec((key, value), 1..4)
}

fn seconds() -> impl Strategy<Value = u64> {
    prop_oneof![5 => Just(0_u64), 2 => 0_u64..3, 1 => 0_u64..100, 1 => 0_u64..90_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn one_descriptor_gets_the_decisions_of_the_original(
        entries in configurations(),
        traffic in prop::collection::vec((descriptors(), seconds()), 1..60),
    ) {
        prop_assume!(has_limit(&entries));
        let text = yaml(&entries);
        let service = Service::of(read(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}")));
        let mut model = Model::new(&entries, true);
        for (descriptor, pause) in traffic {
            service.clock.advance(Duration::from_secs(pause));
            let (is_over, statuses) = model.call(std::slice::from_ref(&descriptor), 1, service.now());
            let (is_denied, status) = service.ask(&descriptor, 1);
            prop_assert_eq!((is_denied, &status), (is_over, &statuses[0]), "{:?}\n{}", descriptor, text);
        }
    }

    #[test]
    fn several_hits_differ_in_that_a_denial_costs_nothing(
        entries in configurations(),
        traffic in prop::collection::vec((descriptors(), 1_u64..4, seconds()), 1..60),
    ) {
        prop_assume!(has_limit(&entries));
        let service = Service::of(read(&yaml(&entries)).unwrap());
        let mut model = Model::new(&entries, false);
        for (descriptor, hits, pause) in traffic {
            service.clock.advance(Duration::from_secs(pause));
            let (is_over, statuses) = model.call(std::slice::from_ref(&descriptor), hits, service.now());
            prop_assert_eq!(service.ask(&descriptor, hits), (is_over, statuses[0].clone()));
        }
    }

    #[test]
    fn a_call_of_several_descriptors_is_one_check(
        entries in configurations(),
        traffic in prop::collection::vec((prop::collection::vec(descriptors(), 1..4), 1_u64..3, seconds()), 1..60),
    ) {
        prop_assume!(has_limit(&entries));
        let text = yaml(&entries);
        let service = Service::of(read(&text).unwrap());
        let mut model = Model::new(&entries, false);
        for (call, hits, pause) in traffic {
            service.clock.advance(Duration::from_secs(pause));
            let (is_over, _) = model.call(&call, hits, service.now());
            prop_assert_eq!(service.call(&call, hits), is_over, "{:?}\n{}", call, text);
        }
    }

    #[test]
    fn what_is_converted_says_the_same(entries in configurations()) {
        prop_assume!(has_limit(&entries));
        let text = yaml(&entries);
        let converted = converted(&text);
        let again = PolicySpec::read("shop.toml", Format::Toml, converted.toml.as_bytes());
        let again = again.unwrap_or_else(|problems| panic!("{problems}\n{}", converted.toml));
        prop_assert_eq!(&again, &converted.spec, "{}", converted.toml);
        prop_assert_eq!(&again, &read(&text).unwrap());
        prop_assert!(Policy::compile(&again, "shop.toml", &CompileOptions::default()).is_ok());
    }
}

const SHOP: &str = r#"
domain: shop
descriptors:
  # Everything that envoyproxy/ratelimit knows.
  - key: plan
    value: free
    detailed_metric: false
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 60, name: per_user }
  - key: plan
    descriptors:
      - key: user
        rate_limit: { unit: Hour, requests_per_unit: 1000 }
  - key: path
    value: /files/*
    share_threshold: true
    value_to_metric: true
    rate_limit:
      unit: month
      requests_per_unit: 10
      replaces:
        - name: per_user
        - name: unheard_of
  - key: path
    value: /health
  - key: path
    shadow_mode: yes
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: version
    value: 007
    quota_mode: true
    metadata: { owner: team-a }
    rate_limit: { unit: week, requests_per_unit: 5 }
  - key: internal
    rate_limit: { unlimited: true }
"#;

#[test]
fn a_configuration_is_converted_into_a_policy() {
    let converted = converted(SHOP);
    let expected = r#"# Converted from shop.yaml.
# Warning: shop.yaml:15:5: descriptors[2].rate_limit.replaces: got "unheard_of"; expected the name of a limit: this replaces nothing
# Warning: shop.yaml:18:22: descriptors[2].value_to_metric: got `value_to_metric`, which is left out; expected nothing: metrics are by rule, and `ratekeeper top` shows single keys
service = "shop"

[[rules]]
name = "per_user"
when = "descriptor_keys == 'plan,user' && descriptor.plan == 'free'"
first_of = "plan,user"
keys = "user:{descriptor.user}"
quota = "60/min fixed_window aligned"

[[rules]]
name = "plan_free.none"
when = "descriptor_keys == 'plan,user' && descriptor.plan == 'free'"
first_of = "plan,user"
keys = "all"
quota = "unlimited"

[[rules]]
name = "plan.user"
when = "descriptor_keys == 'plan,user'"
first_of = "plan,user"
keys = "plan:{descriptor.plan}:user:{descriptor.user}"
quota = "1000/h fixed_window aligned"

[[rules]]
name = "path_/health.none"
when = "descriptor_keys == 'path' && descriptor.path == '/health'"
first_of = "path"
keys = "all"
quota = "unlimited"

[[rules]]
name = "path_/files/*"
when = "descriptor_keys == 'path' && descriptor.path.startsWith('/files/')"
first_of = "path"
replaces = ["per_user"]
keys = "all"
quota = "10/30d fixed_window aligned"

[[rules]]
name = "path"
when = "descriptor_keys == 'path'"
first_of = "path"
keys = "path:{descriptor.path}"
quota = "0/d fixed_window aligned"
mode = "monitor"

[[rules]]
name = "version_007"
when = "descriptor_keys == 'version' && descriptor.version == '007'"
any_of = "quota_mode"
keys = "all"
quota = "5/7d fixed_window aligned"
"#;
    assert_eq!(converted.toml, expected);
}

#[test]
fn files_of_one_domain_are_put_together() {
    let first =
        "domain: shop\ndescriptors:\n- key: a\n  rate_limit: { unit: second, requests_per_unit: 1 }\n";
    let more = "domain: shop\ndescriptors:\n- key: b\n  rate_limit: { unit: second, requests_per_unit: 2 }\n";
    let other = more.replace("shop", "other");
    let files = [foreign("1.yaml", first), foreign("2.yaml", &other), foreign("3.yaml", more)];
    let all = convert(&files).unwrap();
    let rules = |at: usize| all[at].spec.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>();
    assert_eq!((all[0].spec.service.as_str(), rules(0)), ("shop", vec!["a", "b"]));
    assert_eq!((all[1].spec.service.as_str(), rules(1)), ("other", vec!["b"]));
    assert!(all[0].toml.starts_with("# Converted from 1.yaml and 3.yaml.\n"));
    let twice = convert(&[foreign("1.yaml", first), foreign("2.yaml", first)]).unwrap_err();
    let expected = "2.yaml:3:3: descriptors[0]: got \"a\" again, as in 1.yaml:3; expected each key with a value once among its neighbours";
    assert_eq!(twice.to_string(), expected);
}

#[test]
fn limits_of_limitador_are_converted() {
    let limits = r#"
- namespace: shop
  max_value: 10
  seconds: 60
  name: get
  conditions:
    - "descriptors[0]['req.method'] == 'GET'"
    - "descriptors[0]['req.path'] != '/json'"
  variables: []
- namespace: shop
  max_value: 5
  seconds: 90
  conditions: ["req_method == POST"]
  variables: [user_id, "descriptors[0]['team']"]
- namespace: other
  max_value: 0
  seconds: 86400
  conditions:
  variables:
"#;
    let all = convert(&[foreign("limits.yaml", limits)]).unwrap();
    let expected = r#"# Converted from limits.yaml.
service = "shop"

[[rules]]
name = "get"
when = "descriptor['req.method'] == 'GET' && descriptor['req.path'] != null && descriptor['req.path'] != '/json'"
keys = "all"
quota = "10/min fixed_window"

[[rules]]
name = "limit-2"
when = "descriptor.req_method == 'POST'"
keys = "user_id:{descriptor.user_id}:team:{descriptor.team}"
quota = "5/90s fixed_window"
"#;
    assert_eq!(all[0].toml, expected);
    assert!(all[1].toml.contains("quota = \"0/d fixed_window\""), "{}", all[1].toml);
    for one in &all {
        let again = PolicySpec::read("x.toml", Format::Toml, one.toml.as_bytes()).unwrap();
        assert_eq!(again, one.spec);
        assert!(Policy::compile(&again, "x.toml", &CompileOptions::default()).is_ok());
    }
    let service = Service::of(all[0].spec.clone());
    let asked = |descriptor: &[(&'static str, &'static str)]| service.ask(&descriptor.to_vec(), 1).1.limit;
    assert_eq!(asked(&[("req.method", "GET"), ("req.path", "/x")]), Some(10));
    assert_eq!(asked(&[("req.method", "GET"), ("req.path", "/json")]), None);
    assert_eq!(asked(&[("req.method", "GET")]), None, "what is absent is not unequal");
    assert_eq!(asked(&[("req_method", "POST"), ("user_id", "7")]), None, "a variable is absent");
    assert_eq!(asked(&[("team", ""), ("req_method", "POST"), ("user_id", "7")]), Some(5));
}

#[test]
fn what_cannot_be_converted_is_told_with_its_place() {
    let cases = [
        ("- 1\n", "x.yaml:1:3: [0]: got 1; expected a limit of Limitador: a table"),
        (
            "service: a\n",
            "x.yaml: got a document of another kind; expected `domain` and `descriptors`, as envoyproxy/ratelimit has them, or the list of limits that Limitador has; a policy of Ratekeeper needs no conversion",
        ),
        (
            "- { namespace: a, max_value: -1, seconds: 1, conditions: [\"descriptors[1].a == '1'\"], quantity: 1 }\n",
            "x.yaml:1:30: [0].max_value: got -1; expected a whole number from 0 to 1000000000\n\
             x.yaml:1:59: [0].conditions[0]: got `descriptors[1].a == `; expected `descriptors[0]` only: a rule sees one descriptor of a call at a time\n\
             x.yaml:1:87: [0].quantity: got an unknown field; expected one of id, name, namespace, max_value, seconds, conditions, variables",
        ),
        (
            "- { namespace: a, max_value: 1, seconds: 1, conditions: [\"descriptors[0].a == '1' || true\"] }\n",
            "x.yaml:1:58: [0].conditions[0]: got `||` in a condition, which means something else where an entry is absent; expected `descriptors[0]['key'] == 'value'`, `!=`, or several of them with `&&`",
        ),
        (
            "- { namespace: a, max_value: 1, seconds: 1 }\n- { namespace: a, max_value: 2, seconds: 1 }\n",
            "x.yaml:2:3: [1]: got a limit with the conditions, variables and seconds of line 1; expected one of them: Limitador has one counter for both",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(convert(&[foreign("x.yaml", text)]).unwrap_err().to_string(), expected);
    }
}

#[test]
fn the_document_shows_what_becomes_of_its_examples() {
    let document = include_str!("../../../../docs/envoy-ratelimit.md");
    let blocks = |kind: &str| {
        let fenced = document.split("```").skip(1).step_by(2);
        let of_kind = fenced.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n'));
        of_kind.map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, after) = (blocks("yaml"), blocks("toml"));
    assert_eq!((before.len(), after.len()), (2, 2));
    for (before, after) in before.iter().zip(after) {
        assert_eq!(converted(before).toml, format!("# Converted from shop.yaml.\n{after}"));
    }
}
