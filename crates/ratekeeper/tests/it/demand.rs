//! A demand: every verb with a cost and an id, with and without async.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Clock, Control as _, Decision, Enforcement, Engine, Labels, Limiter, ManualClock, MemoryStore, OnOutage,
    Origin, Quota, RawCharge, RawName, Rule, Settled, Store, Timestamp, Verdict,
};

const KEEP: Duration = Duration::from_secs(60);

fn store() -> (Arc<MemoryStore>, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    (Arc::new(MemoryStore::with_clock(10_000, Arc::new(clock.clone()))), clock)
}

fn limiter(store: &Arc<MemoryStore>, quota: &str) -> Limiter<str> {
    let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas(quota);
    Limiter::builder_on(Arc::clone(store) as Arc<dyn Store>).rule(rule).build().unwrap()
}

fn left(decision: &ratekeeper::Decision) -> u32 {
    decision.verdicts()[0].remaining()
}

#[tokio::test]
async fn every_verb_takes_a_cost_and_an_id() {
    let (store, _) = store();
    let limiter = limiter(&store, "10/min");
    let once = |id: &'static str| limiter.demand("ann").cost(3).once(id, KEEP).unwrap();

    assert_eq!(left(&once("a").peek().await.unwrap()), 10, "a peek is remembered by nothing");
    assert_eq!(left(&once("a").check().await.unwrap()), 7);
    let again = once("a").check().await.unwrap();
    assert_eq!((left(&again), again.origin()), (7, Origin::Repeat));
    let peeked = once("a").peek().await.unwrap();
    assert_eq!((left(&peeked), peeked.origin()), (7, Origin::Repeat), "what a repetition would get");
    let explained = once("a").explain(Labels::default()).await.unwrap();
    assert!(
        explained.starts_with("repeated, charged once: allowed: per-user has 7 of 10 left"),
        "{explained}"
    );

    assert_eq!(left(&once("b").until_allowed(KEEP).await.unwrap()), 4);
    assert_eq!(left(&once("b").until_allowed(KEEP).await.unwrap()), 4, "charged once");
    let other = limiter.demand("ann").cost(4).once("b", KEEP).unwrap().check().await.unwrap_err();
    assert!(other.to_string().contains("for another check"), "{other}");
}

#[test]
fn every_verb_has_a_form_without_async() {
    let (store, _) = store();
    let limiter = limiter(&store, "5/min");
    let demand = limiter.demand("ann").cost(2);
    let decision = demand.now().check().unwrap();
    assert_eq!(left(&decision), 3);
    assert_eq!(left(&demand.now().peek().unwrap()), 3);
    demand.now().refund(&decision, 1).unwrap();
    assert_eq!(left(&demand.now().standing().unwrap()), 4);
    assert_eq!(left(&demand.now().peek().unwrap()), 4);
    assert_eq!(left(&demand.now().reserve("r", KEEP).unwrap()), 2);
    assert!(demand.now().explain(Labels::default()).unwrap().contains("2 of 5 left"));
    assert_eq!(limiter.settle_now("r", 3).unwrap(), Settled::Done);
    assert_eq!(left(&demand.now().peek().unwrap()), 1);
    let denial = demand.now().until_allowed(Duration::from_millis(1)).unwrap();
    assert!(!denial.is_allowed(), "that would take longer: {denial}");
    assert_eq!(demand.now().reset().unwrap(), 1);
    assert_eq!(left(&demand.now().reserve("s", KEEP).unwrap()), 3);
    assert_eq!(limiter.cancel_now("s").unwrap(), Settled::Done);
    assert_eq!(left(&demand.now().until_allowed(KEEP).unwrap()), 3);
}

#[test]
fn every_strict_verb_has_a_form_without_async() {
    let (store, _) = store();
    let limiter = limiter(&store, "5/min");
    let demand = limiter.demand("ann").cost(2);
    let strict = demand.strict().now();
    let decision = strict.check().unwrap();
    assert_eq!((left(&decision), strict.refund(&decision, 1).unwrap()), (3, 1));
    assert_eq!(left(&strict.peek().unwrap()), 4);
    assert!(strict.explain(Labels::default()).unwrap().contains("4 of 5 left"));
    assert_eq!(left(&strict.reserve("r", KEEP).unwrap()), 2);
    assert_eq!(left(&strict.until_allowed(KEEP).unwrap()), 0);
    assert!(!strict.until_allowed(Duration::from_millis(1)).unwrap().is_allowed());
}

#[test]
fn a_thread_waits_until_it_is_allowed() {
    let store = Arc::new(MemoryStore::new());
    let limiter = limiter(&store, "1/50ms");
    let demand = limiter.demand("ann");
    for turn in 0..3 {
        let decision = demand.now().until_allowed(KEEP).unwrap();
        assert!(decision.is_allowed(), "{turn}: {decision}");
    }
    // A leaky bucket asks to hold back, and who cannot wait so long is charged nothing.
    let queue = self::limiter(&store, "1/h leaky_bucket queue 4");
    assert!(queue.demand("ben").now().until_allowed(KEEP).unwrap().is_allowed());
    let before = left(&queue.demand("ben").now().peek().unwrap());
    assert!(!queue.demand("ben").now().until_allowed(Duration::ZERO).unwrap().is_allowed());
    assert_eq!(left(&queue.demand("ben").now().peek().unwrap()), before);
}

/// Refunds were paired with charges by position: the place stayed taken.
#[tokio::test]
async fn what_was_charged_comes_back_although_a_rule_was_switched_off() {
    let (store, _) = store();
    let first = Rule::new("first", |user: &str| Some(user.into())).quotas("10/min");
    let places = Rule::new("places", |user: &str| Some(user.into())).quotas("1/30s concurrency");
    let limiter = Limiter::builder_on(Arc::clone(&store) as Arc<dyn Store>);
    let limiter: Limiter<str> = limiter.rule(first).rule(places).build().unwrap();

    for off in ["first", "places"] {
        let decision = limiter.check("ann").await.unwrap();
        assert!(decision.is_allowed(), "{off}: {decision}");
        store.set_switch(off, "mode=off".parse().unwrap()).await.unwrap();
        limiter.refund("ann", &decision, 1).await.unwrap();
        store.clear_switch(off).await.unwrap();
    }
    let decision = limiter.check("ann").await.unwrap();
    assert!(decision.is_allowed(), "the place is free: {decision}");
    assert_eq!(left(&decision), 9, "and so is the quota");
}

/// A receipt gives back to its own counter alone.
#[tokio::test]
async fn a_decision_gives_nothing_back_to_another_counter() {
    let (store, _) = store();
    let limiter = limiter(&store, "5/min");
    let [ann, _] = [limiter.check("ann").await.unwrap(), limiter.check("bob").await.unwrap()];
    let mixed_up = limiter.refund("bob", &ann, 1).await.unwrap_err().to_string();
    assert!(mixed_up.starts_with("key: got a request with other keys in `per-user`; expected"), "{mixed_up}");
    assert_eq!(left(&limiter.peek("bob").await.unwrap()), 4);
    limiter.refund("ann", &ann, 1).await.unwrap();
    assert_eq!(left(&limiter.peek("ann").await.unwrap()), 5);
}

/// What a request was charged can be looked at and added to, without counting the request again.
#[tokio::test]
async fn more_is_charged_where_a_rule_takes_the_cost_it_is_given() {
    let (store, _) = store();
    let limiter = Limiter::builder_on(Arc::clone(&store) as Arc<dyn Store>);
    let tokens = Rule::new("tokens", |user: &str| Some(user.into())).quotas("10/min fixed_window");
    let requests = Rule::new("requests", |user: &str| Some(user.into())).quotas("5/min").per_request();
    let limiter: Limiter<str> = limiter.rule(tokens).rule(requests).build().unwrap();
    let demand = limiter.demand("ann").cost(3);
    let standing = |decision: Decision| -> Vec<u32> {
        assert!(decision.is_allowed());
        decision.verdicts().iter().map(Verdict::remaining).collect()
    };
    assert_eq!(standing(demand.standing().await.unwrap()), [10, 5]);
    demand.check().await.unwrap();
    assert_eq!(standing(demand.further(4).unwrap().check().await.unwrap()), [3]);
    assert_eq!(standing(demand.standing().await.unwrap()), [3, 4], "the request counts once");
    assert!(!demand.further(4).unwrap().check().await.unwrap().is_allowed());

    let flat: Limiter<str> =
        Limiter::builder_on(store).rule(Rule::global("all").quotas("5/min").per_request()).build().unwrap();
    let error = flat.demand("ann").further(4).unwrap_err().to_string();
    assert!(error.contains("all say themselves what a request costs"), "{error}");
}

/// The time that a store takes was not counted: a slow one made a caller wait far beyond its patience.
#[tokio::test(start_paused = true)]
async fn patience_counts_all_time() {
    let (store, _) = store();
    let limiter = limiter(&store, "1/s leaky_bucket queue 100");
    let clock = tokio::time::Instant::now();
    for _ in 0..3 {
        let decision = limiter.until_allowed("ann", Duration::from_secs(10)).await.unwrap();
        assert!(decision.is_allowed());
    }
    // The store's clock stands still, so the fourth in the queue has to hold back for three seconds.
    let held = clock.elapsed();
    assert_eq!(held, Duration::from_secs(3), "0, 1 and 2 seconds");
    let denied = limiter.until_allowed("ann", Duration::from_millis(2_900)).await.unwrap();
    assert!(!denied.is_allowed(), "{denied}");
    assert_eq!(clock.elapsed(), held, "a wait that would not suffice is not begun");
}

fn raw(name: &str, key: &str, quota: &str) -> RawCharge<'static> {
    let name = RawName::within("/limit", name.to_owned()).unwrap();
    RawCharge::new(name, key.to_owned(), quota.parse::<Quota>().unwrap())
}

#[tokio::test]
async fn raw_charges_keep_the_names_of_their_caller() {
    let (store, clock) = store();
    let engine = Arc::new(Engine::new(Arc::clone(&store) as Arc<dyn Store>));
    let charges = [raw("calls", "a", "5/min"), raw("tokens", "a", "2/min"), raw("calls", "b", "9/min")];
    let names: Vec<&str> = charges.iter().map(RawCharge::name).collect();
    let demand = engine.raw(&charges, OnOutage::Allow);
    let decision = demand.check().await.unwrap();
    let seen: Vec<(&str, u32)> =
        decision.verdicts().iter().map(|verdict| (Labels(&names).of(verdict), verdict.remaining())).collect();
    assert_eq!(seen, [("calls", 4), ("tokens", 1), ("calls", 8)]);
    demand.check().await.unwrap();
    let denied = demand.check().await.unwrap();
    assert!(
        denied.labelled(Labels(&names)).to_string().starts_with("denied by tokens: 0 of 2 left"),
        "{denied}"
    );

    // In another order, everything goes back to where it came from.
    let turned = [charges[2].clone(), charges[1].clone(), charges[0].clone()];
    engine.raw(&turned, OnOutage::Allow).refund(&decision, 1).await.unwrap();
    let kept = demand.into_owned();
    let left: Vec<u32> = kept.peek().await.unwrap().verdicts().iter().map(Verdict::remaining).collect();
    assert_eq!(left, [4, 1, 8]);
    assert_eq!(kept.reset().await.unwrap(), 3);
    clock.advance(Duration::from_secs(1));
    let watching = [raw("calls", "a", "1/min").enforcement(Enforcement::Shadow)];
    for _ in 0..2 {
        assert!(engine.raw(&watching, OnOutage::Deny).check().await.unwrap().is_allowed());
    }
    assert!(store.now() > Timestamp::from_secs(1_700_000_000) && clock.now() == store.now());
}

/// Whoever gives back what failed, and is asked again under the same id, gives it back once.
#[test]
fn a_repeated_decision_is_given_back_once() {
    let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas("10/h fixed_window");
    let limiter = Limiter::<str>::builder(MemoryStore::new()).rule(rule).build().unwrap();
    let other = limiter.demand("ann").cost(5);
    assert!(other.now().check().unwrap().is_allowed());
    let keep = std::time::Duration::from_secs(60);
    let demand = limiter.demand("ann").cost(5).once("order", keep).unwrap();
    let given = [(); 3].map(|()| {
        let decision = demand.now().check().unwrap();
        demand.now().refund(&decision, 5).unwrap()
    });
    assert_eq!(given, [5, 0, 0]);
    assert_eq!(other.now().peek().unwrap().verdicts()[0].remaining(), 5, "the other charge stays");
}

/// Only fixed windows, which keep their end, can be one counter: of others, a shorter window would end a longer one.
#[tokio::test]
async fn only_fixed_windows_share_a_counter_for_all_windows() {
    for (suffix, left_of_the_other) in [(" fixed_window", 10), (" sliding_window", 20), ("", 20)] {
        let engine = Arc::new(Engine::new(store().0 as Arc<dyn Store>));
        let ask = async |quota: &str, cost: u64| {
            let quota: Quota = format!("{quota}{suffix}").parse().unwrap();
            let charge = RawCharge::new(RawName::new("any").unwrap(), "key", quota).any_window();
            let charges = [charge.cost(cost).unwrap()];
            engine.raw(&charges, OnOutage::Deny).check().await.unwrap()
        };
        assert_eq!(left(&ask("10/h", 10).await), 0);
        assert_eq!(left(&ask("20/min", 0).await), left_of_the_other, "{suffix}");
        assert!(!ask("10/h", 1).await.is_allowed(), "{suffix}");
    }
}
