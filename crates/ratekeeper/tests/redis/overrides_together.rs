//! Overrides of many projects in one batch: each as the model has it, and on the short way of the script.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper::{Charges, ManualClock, Model, Override, OverrideScope, Store, StoreErrorKind, Timestamp};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::builder;
use crate::layout::calls;
use crate::setup::{charge, quota, together};

const START: u64 = 1_700_000_000_000_000;
/// When those end that end.
const END: u64 = START + 90_000_000;

const fn limit(limit: u64) -> Override {
    Override { limit, window: None, expires_at: None, reason: String::new(), author: String::new() }
}

fn windowed(limit: u64, seconds: u64) -> Override {
    Override { window: Some(Duration::from_secs(seconds)), ..self::limit(limit) }
}

fn ending(to: Override) -> Override {
    Override { expires_at: Some(Timestamp::from_micros(END)), ..to }
}

/// Whether it is for the general way: a limit of nothing, a window that is not of whole seconds.
fn is_rare(to: &Override) -> bool {
    to.limit == 0 || to.window.is_some_and(|window| window.subsec_millis() > 0)
}

/// Organisation, project and what is set for it; an organisation without a project last.
fn scopes() -> Vec<(OverrideScope<'static>, Option<Override>)> {
    let project = |organisation, id| OverrideScope::project("/together", organisation, id).unwrap();
    let noted = Override { reason: "they asked".into(), ..limit(9) };
    vec![
        (project("x", "none"), None),
        (project("x", "limit"), Some(limit(2))),
        (project("x", "the same"), Some(limit(2))),
        (project("x", "window"), Some(windowed(4, 60))),
        (project("x", "ending"), Some(ending(limit(7)))),
        (project("x", "noted"), Some(noted)),
        (project("x", "odd"), Some(limit(7_001))),
        (project("y", "organisation's"), None),
        (project("y", "limit"), Some(limit(5))),
        (project("y", "window and end"), Some(ending(windowed(2, 61)))),
        (project("y", "nothing"), Some(limit(0))),
        (
            project("y", "broken second"),
            Some(Override { window: Some(Duration::from_millis(1_500)), ..limit(1) }),
        ),
        (OverrideScope::organisation("/together", "y").unwrap(), Some(windowed(3, 1_800))),
    ]
}

/// What each project asks for: a window, buckets with a burst and with an odd rate, and two rules at once.
fn asked<'a>(scope: OverrideScope<'a>, subject: &'a str, round: u64) -> Vec<Charges<'a>> {
    let [window, burst, odd] = ["3/h fixed_window", "2/h burst 6", "700/9s"].map(quota);
    let one = charge("window", subject, window).overridable(scope);
    let two = charge("burst", subject, burst).overridable(scope);
    let three = charge("odd", subject, odd).cost(1 + 13 * round).unwrap().overridable(scope);
    let free = charge("free", subject, burst);
    [vec![one], vec![two], vec![three], vec![free, two], vec![one, three]].map(|all| together(&all)).into()
}

#[tokio::test]
async fn each_project_has_its_own() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (clock, mut model) = (ManualClock::default(), Model::default());
        let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
        clock.set(Timestamp::from_micros(START));
        store.ping().await.unwrap();
        let scopes = scopes();
        for (scope, to) in scopes.iter().filter_map(|(scope, to)| Some((*scope, to.clone()?))) {
            store.overrides().set(scope, to.clone()).await.unwrap();
            model.set_override(scope, Some(to)).unwrap();
        }
        // One that is for the general way takes its whole batch along, so these are there every third time.
        let projects = |round: usize| {
            scopes.iter().filter_map(move |(scope, to)| {
                let (id, is_rare) = (scope.project_id()?, to.as_ref().is_some_and(is_rare));
                (!is_rare || round % 3 == 2).then_some((*scope, id))
            })
        };
        // Once more at the same instant, a moment later, when short windows are over, overrides are, and all is.
        for (round, seconds) in [0, 0, 0, 1, 61, 89, 90, 91, 3_700, 3_700].into_iter().enumerate() {
            let now = Timestamp::from_micros(START + seconds * 1_000_000 + round as u64);
            clock.set(now);
            let all: Vec<Charges<'_>> =
                projects(round).flat_map(|(scope, id)| asked(scope, id, round as u64 % 4)).collect();
            let told = join_all(all.iter().map(async |all| store.check(&all.check().unwrap()).await)).await;
            for (all, told) in all.iter().zip(told) {
                let check = all.check().unwrap();
                let known = model.check(&check, now).unwrap();
                assert_eq!(told.unwrap(), known, "{:?} in round {round} on {flavour}", check.charges());
            }
        }
    }
}

/// The general way reads all fields at once; the short way not if there is only one.
#[tokio::test]
async fn they_are_judged_on_the_short_way() {
    let server = Server::start(Flavour::Redis7);
    let store = builder(&server.url()).build().unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    let ask = async || {
        let charges = names.iter().map(|name| {
            let scope = OverrideScope::project("/together", "x", name).unwrap();
            together(&[charge("window", name, quota("3/h fixed_window")).overridable(scope)])
        });
        let charges: Vec<Charges<'_>> = charges.collect();
        let told = join_all(charges.iter().map(async |all| store.check(&all.check().unwrap()).await)).await;
        told.into_iter().filter(|decision| decision.as_ref().unwrap().is_allowed()).count()
    };
    for name in &names {
        let scope = OverrideScope::project("/together", "x", name).unwrap();
        store.overrides().set(scope, limit(2)).await.unwrap();
    }
    let [at_once, one] = ["hmget", "hget"].map(|command| calls(&server, command));
    for expected in [20, 20, 0] {
        assert_eq!(ask().await, expected);
    }
    assert_eq!(calls(&server, "hmget"), at_once, "not one of them took the long way");
    assert_eq!(calls(&server, "hget") - one, 3 * names.len(), "each hash was read once in its batch");
}

/// What one project's hash says is not what another's looks like, and what cannot be read is its own check's failure.
#[tokio::test]
async fn a_text_is_no_window() {
    let server = Server::start(Flavour::Redis7);
    let store = builder(&server.url()).build().unwrap();
    store.ping().await.unwrap();
    let ids = ["window", "text", "alone", "all"];
    for (id, fields) in ids.iter().zip([
        ["max_requests", "4", "expiry", "60"].as_slice(),
        &["max_requests", "60/4"],
        &["expiry", "60"],
        &["max_requests", "4", "expires_at", "1"],
    ]) {
        let key = format!("ratelimit_override:/together:x:{id}");
        let _ = server.cli(&[["HSET", &key].as_slice(), fields].concat());
    }
    let charges = ids.map(|id| {
        let scope = OverrideScope::project("/together", "x", id).unwrap();
        together(&[charge("window", id, quota("3/h fixed_window")).overridable(scope)])
    });
    for _ in 0..2 {
        let told = join_all(charges.iter().map(async |all| store.check(&all.check().unwrap()).await)).await;
        let told = told.into_iter().map(|told| told.map(|told| told.verdicts()[0].quota().to_string()));
        let told: Vec<_> = told.map(|told| told.map_err(|error| error.kind())).collect();
        assert_eq!(told[0].as_deref(), Ok("4/min fixed_window"));
        assert_eq!(told[1], Err(StoreErrorKind::Unreadable));
        assert_eq!(told[2].as_deref(), Ok("3/min fixed_window"));
        assert_eq!(
            told[3].as_deref(),
            Ok("4/h fixed_window"),
            "its key lives on, so others have set it anew"
        );
    }
}
