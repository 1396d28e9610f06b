//! Rules that have a say only with regard to others: `first_of`, `replaces`, `any_of`.

use ratekeeper::Mode;
use ratekeeper::policy::{Ask, NotApplied, RequestFacts};

use crate::world::{World, by, left, now};

fn get(path: &str) -> RequestFacts {
    RequestFacts::new("GET", path)
}

const FIRST: &str = "
service = 'a'
[[rules]]
name = 'search'
when = \"path.startsWith('/search')\"
first_of = 'paths'
keys = 'all'
quota = '1/h'
[[rules]]
name = 'health'
when = \"path == '/health'\"
first_of = 'paths'
keys = 'all'
quota = 'unlimited'
[[rules]]
name = 'others'
first_of = 'paths'
keys = 'all'
quota = '2/h'
[[rules]]
name = 'all'
keys = 'all'
quota = '9/h'
";

#[test]
fn of_a_group_the_first_rule_that_holds_has_a_say() {
    let world = World::of(FIRST);
    assert_eq!(left(&world.ask(&get("/search/x"))), [("search", 0), ("all", 8)]);
    assert_eq!(left(&world.ask(&get("/"))), [("others", 1), ("all", 7)]);
    assert_eq!(left(&world.ask(&get("/health"))), [("all", 6)]);
    let why_not = |path: &str| {
        let facts = get(path);
        let reasons = world.service.not_applied(&Ask::request(&facts));
        reasons.into_iter().map(|(rule, why)| (rule.label(), why)).collect::<Vec<_>>()
    };
    let first = NotApplied::NotFirst;
    assert_eq!(why_not("/search"), [("health", NotApplied::OtherEndpoint), ("others", first)]);
    let of_health =
        [("search", NotApplied::OtherEndpoint), ("health", NotApplied::Unlimited), ("others", first)];
    assert_eq!(why_not("/health"), of_health);
}

#[test]
fn a_rule_that_is_off_keeps_its_turn() {
    let world = World::of(&FIRST.replacen("quota = '1/h'", "quota = '1/h'\nmode = 'off'", 1));
    assert_eq!(left(&world.ask(&get("/search"))), [("all", 8)]);
    world.switch("a/search", "mode=on");
    assert_eq!(left(&world.ask(&get("/search"))), [("search", 0), ("all", 7)]);
}

#[test]
fn a_rule_behind_one_that_takes_all_is_warned_of() {
    let spec = crate::toml(&FIRST.replace("\nwhen = \"path.startsWith('/search')\"", "")).unwrap();
    let options = ratekeeper::policy::CompileOptions::default();
    let policy = ratekeeper::policy::Policy::compile(&spec, "policy.toml", &options).unwrap();
    let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    let expected = "got a rule of a group behind `search`, which takes every request; expected it before that one, or a `when` there";
    assert_eq!(warnings.len(), 2);
    assert!(warnings.iter().all(|warning| warning.ends_with(expected)), "{warnings:?}");
    assert_eq!(policy.limits_for("GET", "/x").len(), 2, "`search` and `all`");
}

const REPLACES: &str = "
service = 'a'
[[rules]]
name = 'special'
when = \"path == '/special'\"
replaces = 'general'
keys = 'all'
quota = '5/h'
[[rules]]
name = 'free'
when = \"path == '/free'\"
replaces = ['general', 'special']
keys = 'all'
quota = 'unlimited'
[[rules]]
name = 'general'
keys = 'all'
quota = '1/h'
";

#[test]
fn a_rule_that_is_replaced_is_not_charged() {
    let world = World::of(REPLACES);
    for remaining in (0..5).rev() {
        assert_eq!(left(&world.ask(&get("/special"))), [("special", remaining)]);
    }
    assert_eq!(left(&world.ask(&get("/free"))), []);
    assert_eq!(world.until_denied(&get("/")), (1, "general"));
    let facts = get("/special");
    let why_not = world.service.not_applied(&Ask::request(&facts));
    assert!(why_not.iter().any(|(rule, why)| rule.label() == "general" && *why == NotApplied::Replaced));
}

fn any_of(mode: &str) -> String {
    let rule = |name: &str, quota: &str, more: &str| {
        format!(
            "[[rules]]\nname = '{name}'\nany_of = 'budgets'\nkeys = '{{identity.user}}'\nquota = '{quota}'\n{more}\n"
        )
    };
    let own = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '9/h fixed_window'\n";
    let (first, second) = (rule("first", "2/h fixed_window", mode), rule("second", "3/min fixed_window", ""));
    format!("service = 'a'\n{first}{second}{own}")
}

#[test]
fn of_a_group_one_that_admits_is_enough() {
    let world = World::of(&any_of(""));
    let ann = by("ann");
    assert_eq!(left(&world.ask(&ann)), [("first", 1), ("second", 2), ("all", 8)]);
    assert_eq!(left(&world.ask(&ann)), [("first", 0), ("second", 1), ("all", 7)]);
    assert_eq!(left(&world.ask(&ann)), [("first", 0), ("second", 0), ("all", 6)], "`second` still admits");
    let denied = world.ask(&ann);
    assert!(!denied.is_allowed());
    assert_eq!(left(&denied), [("first", 0), ("second", 0), ("all", 6)], "a denial is not charged");
    assert_eq!(denied.retry_after().duration().unwrap().as_secs(), 60, "the first that has room again");
    assert_eq!(left(&world.peek(&ann)), left(&denied));
    world.wait(60);
    assert_eq!(left(&world.ask(&ann)), [("first", 0), ("second", 2), ("all", 5)]);
    assert_eq!(world.status("second").denied, 1);
    for user in ["b", "c", "d", "e", "f"] {
        assert!(world.allows(&by(user)));
    }
    assert!(!world.allows(&by("g")), "what is outside of the group denies alone");
    assert_eq!(left(&world.peek(&by("g")))[0], ("first", 2));
}

#[test]
fn a_group_with_a_rule_that_only_watches_denies_nothing() {
    let world = World::of(&any_of("mode = 'monitor'"));
    assert_eq!(world.until_denied(&by("ann")).0, 9, "the other rule denies");
}

#[test]
fn the_group_holds_where_the_store_is_far() {
    let world = World::far(&any_of(""));
    let ann = by("ann");
    let allowed = (0..5).filter(|_| world.allows(&ann)).count();
    assert_eq!(allowed, 3);
    let facts = by("bob");
    let reserved =
        now(world.service.reserve(&Ask::request(&facts).cost(3), "r", std::time::Duration::from_secs(60)));
    assert_eq!(left(&reserved.unwrap())[1], ("second", 0));
    assert!(world.service.check_now(&Ask::request(&facts).mode(Mode::Monitor)).is_err(), "it needs I/O");
}
