//! What is asked for every request allocates nothing.

use ratekeeper::policy::{Addresses, Condition, Cost, KeyHashing, Request, RequestFacts, Subject, Template};
use ratekeeper_testkit::allocations::{self, Counting};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(mut work: impl FnMut()) -> u64 {
    work();
    allocations::of(work)
}

#[test]
fn resolving_and_evaluating_allocate_nothing() {
    let facts = RequestFacts::new("POST", "/api/v1/matrix?page=2")
        .header("x-api-key", "abc:def")
        .header("x-long", "x".repeat(1 << 20))
        .peer("2001:db8::1".parse::<std::net::IpAddr>().expect("an address"))
        .claim("plan", "gold")
        .json(json!({"tenant_id": 42, "weight": 0.1, "origins": [1, 2], "destinations": [1, 2, 3]}));
    let addresses = Addresses::default();
    let templates = [
        "apiKey:{header.x-api-key}",
        "tenant:{body.tenant_id}:{body.weight}:{query.page}",
        "ip:{client.ip}",
        "{method} {path} {identity.plan}",
        "long:{header.x-long}",
    ];
    let mut subject = Subject::default();
    for text in templates {
        let template = Template::parse(text).expect("a good template");
        for template in [template.clone().hash_values(&KeyHashing::open()), template] {
            let mut resolve = || {
                let request = Request::new(&facts, &addresses);
                assert!(template.resolve_into(&request, &mut subject));
            };
            assert_eq!(allocations_of(&mut resolve), 0, "{text}");
        }
    }
    let conditions = [
        r#"method == "POST" && path.startsWith("/api/") && identity.plan != "free""#,
        r#"method in ["GET", "POST"] && has(body.origins) && int(query.page) < 10"#,
        r#"path.matches("^/api/v[0-9]+/") && client.ip != "" && body.origins.exists(o, o == 2)"#,
    ];
    for text in conditions {
        let condition = Condition::parse(text).expect("a good condition");
        let evaluate = || assert_eq!(condition.evaluate(&Request::new(&facts, &addresses)), Ok(true));
        assert_eq!(allocations_of(evaluate), 0, "{text}");
    }
    let cost = Cost::parse("size(body.origins) * size(body.destinations)").expect("a good cost");
    let evaluate = || assert_eq!(cost.evaluate(&Request::new(&facts, &addresses)), Ok(6));
    assert_eq!(allocations_of(evaluate), 0);
}
