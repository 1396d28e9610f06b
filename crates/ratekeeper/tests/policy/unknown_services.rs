//! Services without a policy, whose names may be mistyped.

use ratekeeper::MemoryStore;
use ratekeeper::policy::{Ask, Policies, PolicyLimiter};

use crate::traces::Traces;

const UNLIMITED: &str = "a service without a policy is asked for; nothing is limited";

fn limiter(refuse: bool) -> PolicyLimiter {
    let policies = Policies::builder().mode(None).refuse_unknown_services(refuse).build().unwrap();
    for service in ["api", "search"] {
        let document =
            format!("service = \"{service}\"\n[[rules]]\nname = \"r\"\ncaller_key = true\nquota = \"1/h\"\n");
        policies.install(service, crate::toml(&document), None).unwrap();
    }
    PolicyLimiter::new(MemoryStore::new(), policies)
}

#[test]
fn a_service_without_a_policy_is_logged_once() {
    let limiter = limiter(false);
    let traces = Traces::of(|| {
        let service = limiter.service("apii").unwrap();
        for _ in 0..3 {
            assert!(service.check_now(&Ask::key("ann")).unwrap().is_allowed());
        }
    });
    assert_eq!((traces.count(UNLIMITED), traces.count("apii")), (1, 1));
    // At once, not with the first request, which may come in the night; and it says which services there are.
    let other = self::limiter(false);
    let traces = Traces::of(|| drop(other.service("apii").unwrap()));
    assert_eq!((traces.count(UNLIMITED), traces.count("search")), (1, 1));
    let traces = Traces::of(|| {
        let service = limiter.service("api").unwrap();
        assert!(service.check_now(&Ask::key("ann")).unwrap().is_allowed());
    });
    assert_eq!(traces.count(UNLIMITED), 0);
}

#[test]
fn names_that_come_from_anywhere_are_logged_up_to_a_bound() {
    let limiter = limiter(false);
    let traces = Traces::of(|| {
        for number in 0..2_000 {
            limiter.policies().expect(&format!("made-up-{}", number % 1_000)).unwrap();
        }
    });
    assert_eq!(traces.count(UNLIMITED), 64);
    assert_eq!(traces.count("further services without a policy are not logged by name"), 1);
    assert!(limiter.known_service("made-up-1").is_none(), "they take no place");
}

#[test]
fn a_policy_that_is_withdrawn_is_logged_as_such_alone() {
    let limiter = limiter(false);
    let service = limiter.service("api").unwrap();
    let traces = Traces::of(|| {
        limiter.policies().withdraw("api", "api");
        assert!(service.check_now(&Ask::key("ann")).unwrap().is_allowed());
    });
    assert_eq!((traces.count(UNLIMITED), traces.count("the policy is gone")), (0, 1));
}

#[tokio::test]
async fn services_without_a_policy_can_be_refused() {
    let limiter = limiter(true);
    let expected = "name: got service \"apii\", which has no policy; expected one of \"api\", \"search\"";
    assert_eq!(limiter.service("apii").unwrap_err().to_string(), expected);
    assert_eq!(limiter.check("apii", "ann").await.unwrap_err().to_string(), expected);
    assert!(limiter.known_service("apii").is_none(), "a refused name takes no place");
    assert!(limiter.check("api", "ann").await.unwrap().is_allowed());
    assert!(limiter.service("search").is_ok());
}
