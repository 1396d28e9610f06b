//! More is asked at once than a server can answer: that takes its time, and is no outage.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ratekeeper::{Charge, Charges, Key, Name, Quota, RedisStore, Store, StoreError, StoreErrorKind};
use ratekeeper_testkit::servers::{Flavour, Server};

use super::rig::{RULE, Rig, quota, server};
use super::{PATIENCE, logs, until};

/// Far more than are answered within a deadline.
const CROWD: usize = 20_000;
/// So many that twice the deadline, which a busy machine may need for one answer, is not enough either.
const LARGE_CROWD: usize = 50_000;
const DEADLINE: Duration = Duration::from_secs(1);
const LIMIT: u64 = 100;
const SHARED: &str = "crowd";
/// Charges of each check beside the one that matters, so that it takes its time.
const BESIDES: usize = 63;

/// Checks in as many batches as may be under way at once.
const UNDER_WAY_MAX: u64 = 32 * 64;

/// How a call ended: what was left, if it was admitted.
type Outcome = Result<Option<u32>, StoreErrorKind>;

struct Ended {
    outcome: Outcome,
    from: Instant,
    to: Instant,
}

async fn ask(store: &RedisStore, quota: &Quota, besides: usize) -> Result<Option<u32>, StoreError> {
    let large: Quota = "1000000/h".parse().unwrap();
    let others: Vec<String> = (0..besides).map(|number| format!("beside-{number}")).collect();
    let mut charges = Charges::new();
    charges.push(Charge::new(Key::new(Name::new(RULE).unwrap(), SHARED).unwrap(), quota)).unwrap();
    for other in &others {
        charges.push(Charge::new(Key::new(Name::new(RULE).unwrap(), other).unwrap(), &large)).unwrap();
    }
    let decision = store.check(&charges.check().unwrap()).await?;
    Ok(decision.is_allowed().then(|| decision.verdicts()[0].remaining()))
}

/// All ask at once, each in a task of its own; `meanwhile` is done when they have begun to.
fn crowd(rig: &Rig, count: usize, besides: usize, meanwhile: impl FnOnce()) -> Vec<Ended> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (store, quota) = (rig.store.clone(), rig.quota);
            rig.runtime.spawn(async move {
                let from = Instant::now();
                let outcome = ask(&store, &quota, besides).await.map_err(|error| error.kind());
                Ended { outcome, from, to: Instant::now() }
            })
        })
        .collect();
    meanwhile();
    rig.runtime.block_on(async {
        let mut all = Vec::with_capacity(count);
        for task in tasks {
            all.push(task.await.unwrap());
        }
        all
    })
}

fn rig(title: &str, server: &Server, limit: u64, total: Duration) -> Rig {
    rig_with(title, server, limit, DEADLINE, total)
}

fn rig_with(title: &str, server: &Server, limit: u64, deadline: Duration, total: Duration) -> Rig {
    let settings = |builder: ratekeeper::RedisStoreBuilder| {
        builder.deadline(deadline).queue_max(LARGE_CROWD).total(total)
    };
    Rig::with(title, server.port(), limit, settings).connected()
}

#[test]
fn a_crowd_gets_what_there_is_and_no_more() {
    let server = server(Flavour::Redis7, &[]);
    let rig = rig_with("a crowd", &server, LIMIT, 2 * DEADLINE, 3 * PATIENCE);
    let start = Instant::now();
    let all = crowd(&rig, LARGE_CROWD, BESIDES, || {});
    rig.say(&format!("{LARGE_CROWD} answers in {:?}", start.elapsed()));
    let count = |outcome: fn(&Outcome) -> bool| all.iter().filter(|ended| outcome(&ended.outcome)).count();
    let (admitted, failed) = (count(|it| matches!(it, Ok(Some(_)))) as u64, count(Result::is_err));
    rig.say(&format!("{admitted} admitted, {failed} failed: {:?}", rig.health()));
    // A machine that is busy with other things may keep the server from answering some of them in time;
    // all but those of the first two seconds would fail if waiting were an outage.
    assert!(failed < LARGE_CROWD / 4, "{failed} of {LARGE_CROWD} failed on a healthy server");
    assert_eq!(rig.used(SHARED), LIMIT);
    assert!(admitted <= LIMIT && admitted + failed as u64 >= LIMIT, "{admitted} admitted, {failed} failed");
}

/// Whoever waits in the queue when a server falls silent waits a deadline from then on,
/// like those whom the server has not answered.
#[test]
fn a_queue_ends_with_a_server_that_falls_silent() {
    let server = server(Flavour::Redis7, &[]);
    let rig = rig("a crowd, and SIGSTOP", &server, 1_000_000, 3 * PATIENCE);
    let before = rig.health();
    let all = crowd(&rig, CROWD, 0, || {
        until("an answer", || rig.health().batches > before.batches);
        server.pause();
    });
    let last = all.iter().filter(|ended| ended.outcome.is_ok()).map(|ended| ended.to).max().unwrap();
    let mut failed = 0;
    for ended in all.iter().filter(|ended| ended.outcome.is_err()) {
        failed += 1;
        let waited = ended.to.saturating_duration_since(ended.from.max(last));
        // The rest of the bound is for the machine, which has thousands to wake.
        let late = rig.control.lateness(ended.from, ended.to);
        assert!(waited < 3 * DEADLINE + late, "{waited:?} for {:?}, late by {late:?}", ended.outcome);
        let expected = [Err(StoreErrorKind::Timeout), Err(StoreErrorKind::Unavailable)];
        assert!(expected.contains(&ended.outcome), "{:?}", ended.outcome);
    }
    rig.say(&format!("{failed} of {CROWD} failed"));
    assert!(failed > 0 && rig.health().overloads == 0);
    let answered = all.iter().filter(|ended| ended.outcome.is_ok()).count() as u64;
    let sent = rig.health().batched - before.batched;
    // As many batches as may be under way, which a busy machine makes a server far away; and as many as take their places
    // until the breaker opens. All others had not been sent, so they were not charged.
    assert!(sent - answered <= 2 * UNDER_WAY_MAX, "{answered} of {sent} answered");
    server.resume();
    let used = rig.used(SHARED);
    assert!((answered..=sent).contains(&used), "{answered} answered, {used} charged, {sent} sent");
}

/// What waits too long is not sent, and says that it was our queue and not the server.
#[test]
fn an_overload_is_told_apart_from_an_outage() {
    let server = server(Flavour::Redis7, &[]);
    let rig = rig("overload", &server, 1_000_000, DEADLINE);
    let skipped = logs::all().len();
    let all = crowd(&rig, CROWD, BESIDES, || {});
    let count = |outcome: fn(&Outcome) -> bool| all.iter().filter(|ended| outcome(&ended.outcome)).count();
    let (answered, late) = (count(Result::is_ok), count(|it| *it == Err(StoreErrorKind::Overloaded)));
    let unanswered = CROWD - answered - late;
    rig.say(&format!("{answered} answered, {late} waited too long, {unanswered} were not answered"));
    assert!(late > 0, "the machine is too fast for this test");
    let unanswered_calls = all.iter().filter(|ended| ended.outcome.is_err());
    let longest = rig.assert_ended_within(DEADLINE, unanswered_calls.map(|ended| (ended.from, ended.to)));
    rig.say(&format!("the longest without an answer took {longest:?}"));
    let (used, answered) = (rig.used(SHARED), answered as u64);
    assert!((answered..=answered + unanswered as u64).contains(&used), "what was not sent is not charged");
    assert_eq!(rig.health().overloads, late as u64);
    let told = || logs::about(server.port(), skipped).into_iter().filter(|line| line.contains("overload"));
    until("the end of it", || told().next_back().is_some_and(|line| line.starts_with("INFO")));
    for (number, line) in told().enumerate() {
        let expected = ["WARN message=overload: rules decide", "INFO message=overload is over"][number % 2];
        assert!(line.starts_with(expected), "{line}");
    }
    assert!(told().count() <= 4, "{:?}", told().collect::<Vec<_>>());
}

/// One caller's checks are decided in the order in which it asked, also where several calls
/// to the server carry them.
#[test]
fn what_is_asked_first_is_decided_first() {
    let server = server(Flavour::Redis7, &[]);
    // This is about the order: a server that a busy machine holds up may take its time.
    let rig = rig_with("order", &server, 1_000_000, PATIENCE, 3 * PATIENCE);
    let sizes = [2, 2, 2, 3, 10, 65, 130, 600];
    for (round, size) in sizes.into_iter().cycle().take(400).enumerate() {
        let (store, quota) = (rig.store.clone(), quota(1_000_000));
        let task = rig.runtime.spawn(async move {
            let asked: Vec<_> = (0..size).map(|_| ask(&store, &quota, 0)).collect();
            join_all(asked).await
        });
        let left: Vec<u32> = rig
            .runtime
            .block_on(task)
            .unwrap()
            .into_iter()
            .map(|answer| answer.unwrap().expect("room"))
            .collect();
        assert!(left.is_sorted_by(|one, next| *one == next + 1), "{size} in round {round}: {left:?}");
    }
}
