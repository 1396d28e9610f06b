//! Policies that a program puts together: what a document says can be said in code, and a
//! mistake is the same mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratekeeper::policy::{
    Condition, Cost, CostSpec, KeySpec, Limits, OverridesSpec, PLAN_DEFAULT, PenaltySpec, PlansSpec,
    PolicyBuilder, PolicySpec, Problem, Problems, ProxyHeader, RuleSpec, Scope, StoreUrl, Template,
};
use ratekeeper::{Mode, OnOutage, Quota, Quotas};

const EVERYTHING: &str = include_str!("../../../../testdata/policies/everything.toml");
const SECOND: Duration = Duration::from_secs(1);

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

fn keys<const N: usize>(texts: [&str; N]) -> KeySpec {
    KeySpec::Templates(texts.map(template).into())
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn quotas(text: &str) -> Limits {
    text.parse::<Quotas>().unwrap().into()
}

fn named<const N: usize>(quotas: [(&'static str, &str); N]) -> Limits {
    quotas.into_iter().map(|(name, text)| (name, quota(text))).collect()
}

fn plans<const N: usize>(plan: &str, limits: [(&str, Limits); N]) -> PlansSpec {
    PlansSpec { plan: template(plan), limits: by_key(limits) }
}

fn by_key<const N: usize>(limits: [(&str, Limits); N]) -> BTreeMap<String, Limits> {
    limits.map(|(key, limits)| (key.to_owned(), limits)).into()
}

fn exact(key: &str) -> BTreeSet<String> {
    [key.to_owned()].into()
}

/// A rule that nothing is wrong with.
fn rule(name: &str) -> RuleSpec {
    RuleSpec::new(name, template("all"), quota("1/s"))
}

fn policy(rules: impl Into<Vec<RuleSpec>>) -> Result<PolicySpec, Problems> {
    PolicySpec::builder("a").rules(rules).build("code")
}

#[test]
fn a_policy_in_code_equals_the_document_that_says_the_same() {
    let of_plans =
        [("free", quotas("1/s")), ("paid", quotas("{rps=100, rpd=1000000}")), ("partner", Limits::Unlimited)];
    let minute = 60 * SECOND;
    let (within, duration, max) = (minute, 10 * minute, 1_440 * minute);
    let month = "500/calendar month +02:00";
    let listed = [("rps", "10/s"), ("concurrency", "3/30s concurrency"), ("calendar_month", month)];
    let custom = named([("rpm", "5/min"), ("calendar_month", "100/calendar month")]);
    let api_keys = keys(["apiKey:{header.x-api-key}", "ip:{client.ip}"]);
    let full = RuleSpec::new("full", api_keys, quota("10/s burst 20"))
        .when(Condition::parse("method == 'POST'").unwrap())
        .fallback("nobody".to_owned())
        .cost(CostSpec::Units(3))
        .plans(plans("{header.x-plan}", of_plans))
        .custom(by_key([("ip:192.0.2.7", custom)]))
        .unlimited(exact("apiKey:internal"))
        .allow(["192.0.2.0/24".parse().unwrap()])
        .overrides(OverridesSpec {
            endpoint: Some(template("{route}")),
            project: template("{header.x-project}"),
            ..OverridesSpec::default()
        })
        .penalty(PenaltySpec { denials: 5, within, duration, escalate: 2, max })
        .mode(Mode::On)
        .enforce_percent(10)
        .on_outage(OnOutage::Deny);
    let tiers = quotas("{rps=20, rpm=1000} sliding_window");
    let tiers = RuleSpec::new("tiers", template("all"), tiers).scope(Scope::Process).cost(CostSpec::One);
    let tiers_as_text = quotas("{rps=20, rpm=1000} fixed_window");
    let tiers_as_text = RuleSpec::new("tiers-as-text", template("all"), tiers_as_text);
    let listed = RuleSpec::new("listed", template("user:{identity.user}"), named(listed))
        .cost(CostSpec::Expression(Cost::parse("size(body.items)").unwrap()));
    let named_quotas = named([("rpm", "100/min"), ("peak", "20/s burst 40")]);
    let named_quotas = RuleSpec::new("named", template("user:{identity.user}"), named_quotas)
        .overrides(OverridesSpec::default());
    let only_some = RuleSpec::new("only-some", KeySpec::Caller, Limits::Unlimited)
        .plans(plans(PLAN_DEFAULT, [("free", quotas("{rpd=100}"))]));
    let together = RuleSpec::new("together", template("all"), quota("5/h fixed_window aligned"))
        .when(Condition::parse("method == 'GET'").unwrap())
        .first_of("methods".to_owned())
        .any_of("budgets".to_owned())
        .replaces(["named", "listed"].map(str::to_owned));
    let rules = [full, tiers, tiers_as_text, listed, named_quotas, together, only_some];
    let spec = PolicySpec::builder("everything")
        .rules(rules)
        .mode(Mode::Monitor)
        .store("redis://user:hidden@localhost:6379/2".parse::<StoreUrl>().unwrap())
        .on_outage(OnOutage::Local)
        .trusted_proxies(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"].map(|text| text.parse().unwrap()))
        .proxy_header(ProxyHeader::Forwarded)
        .ipv6_prefix(56)
        .hash_keys(true)
        .build("code");
    assert_eq!(spec.unwrap(), crate::toml(EVERYTHING).unwrap());
}

#[test]
fn specs_differ_if_they_say_something_else() {
    let spec = |rule: RuleSpec| policy([rule]).unwrap();
    let when = |text: &str| spec(rule("r").when(Condition::parse(text).unwrap()));
    let cost = |text: &str| spec(rule("r").cost(CostSpec::Expression(Cost::parse(text).unwrap())));
    let plain = spec(rule("r"));
    assert_eq!(plain, spec(rule("r")));
    let others = [
        spec(rule("s")),
        when("true"),
        when("false"),
        cost("1"),
        cost("2"),
        spec(RuleSpec::new("r", template("one"), quota("1/s"))),
        spec(rule("r").first_of("g".to_owned())),
        spec(rule("r").any_of("g".to_owned())),
        spec(rule("r").overrides(OverridesSpec::default())),
        spec(rule("r").plans(plans(PLAN_DEFAULT, [("free", quotas("1/s"))]))),
        spec(rule("r").plans(plans("{header.plan}", [("free", quotas("1/s"))]))),
    ];
    for (number, other) in others.iter().enumerate() {
        assert_ne!(*other, plain);
        assert!(others.iter().skip(number + 1).all(|another| another != other), "{number}");
    }
}

/// What is wrong, without where.
fn told(result: Result<PolicySpec, Problems>) -> Vec<(String, String)> {
    let problems = result.expect_err("it is wrong");
    problems.iter().map(|problem| (problem.got.clone(), problem.expected.clone())).collect()
}

/// The document with one rule that has these lines.
fn document(lines: &str) -> Result<PolicySpec, Problems> {
    crate::toml(&format!("service = 'a'\n[[rules]]\n{lines}"))
}

#[test]
fn a_mistake_in_code_is_told_like_one_in_a_document() {
    let lines = |more: &str| format!("name = 'r'\nkeys = 'all'\nquota = '1/s'\n{more}");
    let punished = |penalty: &str| lines(&format!("penalty = {{ {penalty} }}"));
    let penalty = |denials, escalate, max: Duration| {
        rule("r").penalty(PenaltySpec { denials, within: SECOND, duration: SECOND, escalate, max })
    };
    let many: Vec<String> = (0..17).map(|number| format!("k{number}")).collect();
    let many_keys = KeySpec::Templates(many.iter().map(|text| template(text)).collect());
    let mut tiers = penalty(3, 1, SECOND);
    tiers.limits = named([("penalty", "1/s"), ("b", "2/s")]);
    let table = "quotas = { penalty = '1/s', b = '2/s' }";
    let with_keys = |keys: KeySpec| RuleSpec::new("r", keys, quota("1/s"));
    let wide = (0..65).map(|number| (number.to_string(), quota("1/s"))).collect::<Limits>();
    let wide_lines: String = (0..65).map(|number| format!("\n{number} = '1/s'")).collect();
    let cases: Vec<(String, RuleSpec)> = vec![
        (lines("").replace("'r'", "''"), rule("")),
        (lines("").replace("'r'", "' '"), rule(" ")),
        (lines("").replace("'r'", "'*'"), rule("*")),
        (lines("").replace("'r'", "'caf\u{e9}'"), rule("caf\u{e9}")),
        (lines("").replace("'all'", "[]"), with_keys(keys([]))),
        (lines("").replace("'all'", &format!("{many:?}")), with_keys(many_keys)),
        (lines("").replace("'all'", "['a', 'a']"), with_keys(keys(["a", "a"]))),
        (lines("").replace("'all'", "['{path}', '{route}']"), with_keys(keys(["{path}", "{route}"]))),
        (lines("fallback = 'a{b}'"), rule("r").fallback("a{b}".to_owned())),
        (lines("fallback = ''"), rule("r").fallback(String::new())),
        (lines("cost = 0"), rule("r").cost(CostSpec::Units(0))),
        (lines("plans = {}"), rule("r").plans(plans(PLAN_DEFAULT, []))),
        (lines("plans = { '' = '1/s' }"), rule("r").plans(plans(PLAN_DEFAULT, [("", quotas("1/s"))]))),
        (lines("custom = { '' = '1/s' }"), rule("r").custom(by_key([("", quotas("1/s"))]))),
        (lines("custom = { a = {} }"), rule("r").custom(by_key([("a", named([]))]))),
        (
            lines("custom = { a = { '\t' = '1/s' } }"),
            rule("r").custom(by_key([("a", named([("\t", "1/s")]))])),
        ),
        (lines(&format!("[rules.custom.a]{wide_lines}")), rule("r").custom(by_key([("a", wide)]))),
        (
            lines("custom = { all = '1/s' }\nunlimited = ['all']"),
            rule("r").unlimited(exact("all")).custom(by_key([("all", quotas("1/s"))])),
        ),
        (
            lines("scope = 'process'\noverrides = true"),
            rule("r").overrides(OverridesSpec::default()).scope(Scope::Process),
        ),
        (lines("enforce_percent = 101"), rule("r").enforce_percent(101)),
        (lines("").replace("'1/s'", "'unlimited'"), RuleSpec::new("r", template("all"), Limits::Unlimited)),
        (punished("denials = 0, within = '1s', duration = '1s'"), penalty(0, 1, SECOND)),
        (
            punished("denials = 3, within = '1s', duration = '1s', escalate = 101, max = '1s'"),
            penalty(3, 101, SECOND),
        ),
        (punished("denials = 3, within = '1s', duration = '1s', max = '2s'"), penalty(3, 1, 2 * SECOND)),
        (punished("denials = 3, within = '1s', duration = '1s'").replace("quota = '1/s'", table), tiers),
    ];
    for (lines, rule) in cases {
        assert_eq!(told(policy([rule])), told(document(&lines)), "{lines}");
    }
}

#[test]
fn a_text_that_cannot_be_parsed_is_told_alike() {
    let lines = |more: &str| format!("name = 'r'\nkeys = 'all'\nquota = '1/s'\n{more}");
    let told_of = |problem: Problem| vec![(problem.got, problem.expected)];
    for text in ["methd == 1", "size(", "\"text\"", "true && x"] {
        let in_code = Condition::parse(text).unwrap_err();
        assert_eq!(told_of(in_code.into()), told(document(&lines(&format!("when = '{text}'")))));
    }
    for text in ["true", "0 - 1)", "5000000000"] {
        let in_code = Cost::parse(text).unwrap_err();
        assert_eq!(told_of(in_code.into()), told(document(&lines(&format!("cost = '{text}'")))));
    }
    for text in ["user:{", "{x}", "{path}{route}"] {
        let in_code = told_of(Template::parse(text).unwrap_err().into());
        assert_eq!(in_code, told(document(&lines("").replace("'all'", &format!("'{text}'")))));
        let overrides = format!("overrides = {{ endpoint = '{text}' }}");
        assert_eq!(in_code, told(document(&lines(&overrides))));
        let plan = format!("plan = '{text}'\nplans = {{ a = '1/s' }}");
        assert_eq!(in_code, told(document(&lines(&plan))));
    }
}

#[test]
fn what_only_shows_with_all_rules_is_told_of_both() {
    let document = |rules: &str| crate::toml(&format!("service = 'a'\n{rules}"));
    let lines = |name: &str| format!("[[rules]]\nname = '{name}'\nkeys = 'all'\nquota = '1/s'\n");
    let twice = document(&(lines("r") + &lines("r")));
    assert_eq!(told(policy([rule("r"), rule("r")])), told(twice));
    let meets = "[[rules]]\nname = 'r'\nkeys = 'all'\nrps = 1\n".to_owned() + &lines("r.rps");
    let tiers = RuleSpec::new("r", template("all"), named([("rps", "1/s")]));
    assert_eq!(told(policy([tiers, rule("r.rps")])), told(document(&meets)));
    assert_eq!(told(policy([])), told(document("rules = []")));
    let many = (0..1_001).map(|number| number.to_string());
    let rules: String = many.clone().map(|name| lines(&name)).collect();
    assert_eq!(told(policy(many.map(|name| rule(&name)).collect::<Vec<_>>())), told(document(&rules)));
}

#[test]
fn the_policy_itself_is_checked_like_a_document() {
    let one = |line: &str| {
        crate::toml(&format!("service = 'a'\n{line}\n[[rules]]\nname = 'r'\nkeys = 'all'\nquota = '1/s'"))
    };
    let code = |builder: PolicyBuilder| told(builder.rules([rule("r")]).build("code"));
    let builder = || PolicySpec::builder("a");
    assert_eq!(code(builder().ipv6_prefix(0)), told(one("ipv6_prefix = 0")));
    let store = "http://user:secret@h";
    let in_code = vec![store.parse::<StoreUrl>().map_err(|error| (error.got, error.expected)).unwrap_err()];
    assert_eq!(in_code, told(one(&format!("store = '{store}'"))));
    let everybody = "::/0".parse().unwrap();
    assert_eq!(code(builder().trusted_proxies([everybody])), told(one("trusted_proxies = ['::/0']")));
    let unnamed = crate::toml("service = 'a/b'\n[[rules]]\nname = 'r'\nkeys = 'all'\nquota = '1/s'");
    assert_eq!(code(PolicySpec::builder("a/b")), told(unnamed));
}

#[test]
fn a_problem_in_code_names_its_source_and_its_field() {
    let penalty =
        PenaltySpec { denials: 1, within: Duration::MAX, duration: SECOND, escalate: 1, max: SECOND };
    let custom = by_key([("user 1", named([("a", "1/s"), ("a", "2/s")]))]);
    let problems = policy([rule("a"), rule("b").penalty(penalty).custom(custom)]).unwrap_err().to_string();
    let lines: Vec<&str> = problems.lines().collect();
    let again = "code: rules[1].custom.\"user 1\": got the same name again; expected each name once";
    assert_eq!((lines.len(), lines[0]), (2, again), "{problems}");
    assert!(
        lines[1].starts_with("code: rules[1].penalty.within: got 18446744073709551615.999999999s; expected"),
        "{problems}"
    );
}

#[test]
fn nothing_is_parsed_once_a_policy_is_read() {
    let spec = crate::toml(EVERYTHING).unwrap();
    let (when, cost): (&Option<Condition>, &CostSpec) = (&spec.rules[0].when, &spec.rules[3].cost);
    assert!(when.is_some() && matches!(cost, CostSpec::Expression(cost) if cost.needs().body));
    let KeySpec::Templates(templates) = &spec.rules[0].keys else { panic!("templates") };
    assert!(templates.iter().any(|template: &Template| template.needs().client));

    let compile = crate::root().join("crates/ratekeeper/src/policy/compile");
    let files = std::fs::read_dir(&compile).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.chain([compile.with_extension("rs")]).collect();
    assert!(files.len() > 6, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let parses: Vec<&str> =
            code.filter(|line| line.contains("parse") || line.contains("FromStr")).collect();
        assert!(parses.is_empty(), "{}: {parses:?}", file.display());
    }
}
