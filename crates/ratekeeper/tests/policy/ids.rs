//! Idempotency ids across rules of this process and rules that all instances share.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ratekeeper::policy::Ask;
use ratekeeper::{Decision, Origin};

use crate::world::{World, by, left, now};

const KEEP: Duration = Duration::from_secs(600);

/// A rule of this process beside a shared one.
fn policy(shared: &str) -> String {
    format!(
        r#"
        service = "api"
        [[rules]]
        name = "here"
        keys = "user:{{identity.user}}"
        quota = "5/h fixed_window"
        scope = "process"
        [[rules]]
        name = "shared"
        keys = "user:{{identity.user}}"
        {shared}
        "#
    )
}

fn under(world: &World, id: &str) -> Decision {
    now(world.service.check(&Ask::request(&by("ann")).once(id, KEEP).unwrap())).unwrap()
}

fn left_here(world: &World) -> u32 {
    left(&world.peek(&by("ann"))).iter().find(|(name, _)| *name == "here").unwrap().1
}

fn set_away(world: &World, is_away: bool) {
    world.store.is_away.store(is_away, Ordering::SeqCst);
}

/// The id kept the charge of this process, and giving it back did nothing.
#[test]
fn what_the_shared_part_denies_under_an_id_is_not_charged_here() {
    let policy = policy(r#"quota = "1/h fixed_window""#);
    for world in [World::of(&policy), World::far(&policy)] {
        assert!(under(&world, "first").is_allowed());
        for id in ["second", "second", "third"] {
            assert!(!under(&world, id).is_allowed(), "{id}");
            assert_eq!(left_here(&world), 4, "{id}");
        }
        assert_eq!(under(&world, "first").origin(), Origin::Repeat);
        assert_eq!(left_here(&world), 4, "the first is repeated");
    }
}

/// Every repetition was charged here, because only the store remembered ids.
#[test]
fn what_an_outage_admits_under_an_id_is_charged_once() {
    let facts = by("ann");
    for on_outage in ["allow", "local"] {
        let shared = format!("quota = \"3/h fixed_window\"\non_outage = \"{on_outage}\"");
        for world in [World::of(&policy(&shared)), World::far(&policy(&shared))] {
            set_away(&world, true);
            let ask = Ask::request(&facts).once("order", KEEP).unwrap();
            let looked = now(world.service.peek(&ask)).unwrap();
            assert!(looked.is_allowed() && left_here(&world) == 5, "{on_outage}: a peek is not remembered");
            let first = under(&world, "order");
            assert_eq!((first.is_allowed(), first.origin()), (true, Origin::Outage));
            let again = under(&world, "order");
            assert_eq!(again, first, "{on_outage}: the same answer");
            let peeked = now(world.service.peek(&ask)).unwrap();
            assert_eq!(peeked, first, "{on_outage}: what a repetition would get");
            assert_eq!(left_here(&world), 4, "{on_outage}");
            let shares = left(&under(&world, "another"));
            assert_eq!(shares[0], ("here", 3), "{on_outage}: another id is charged");
            assert!(shares[1..].iter().all(|share| *share == ("shared", 1)), "{on_outage}: {shares:?}");

            set_away(&world, false);
            assert!(under(&world, "order").is_allowed());
            assert_eq!(left_here(&world), 3, "{on_outage}: nor when the store is back");
            world.advance(KEEP);
            assert_eq!(under(&world, "order").origin(), Origin::Store, "{on_outage}: the id is forgotten");
            assert_eq!(left_here(&world), 2, "{on_outage}");
        }
    }
}

/// A repetition can be given back as the first could.
#[test]
fn a_repetition_of_what_an_outage_admitted_can_be_given_back() {
    let world = World::far(&policy("quota = \"3/h fixed_window\"\non_outage = \"local\""));
    set_away(&world, true);
    under(&world, "order");
    let again = under(&world, "order");
    let facts = by("ann");
    now(world.service.demand(&Ask::request(&facts)).refund(&again, 1)).unwrap();
    assert_eq!(left(&world.peek(&facts)), [("here", 5), ("shared", 3)]);
}

/// The second was taken for a repetition of the first and not charged, because people call both rules the same.
#[test]
fn an_id_of_one_service_is_no_repetition_in_another() {
    let policy = |service: &str| {
        format!(
            "service = \"{service}\"\n[[rules]]\nname = \"per-user\"\nkeys = \"user:{{identity.user}}\"\nquota = \"5/h\"\n"
        )
    };
    let search = World::of(&policy("search"));
    let images = search.beside(&policy("images"));
    assert_eq!(left(&under(&search, "order")), [("per-user", 4)]);
    let facts = by("ann");
    let ask = Ask::request(&facts).once("order", KEEP).unwrap();
    let error = now(images.service.check(&ask)).unwrap_err().to_string();
    assert!(error.contains("got id `order` for another check"), "{error}");
    assert_eq!(left(&under(&images, "another")), [("per-user", 4)]);
}
