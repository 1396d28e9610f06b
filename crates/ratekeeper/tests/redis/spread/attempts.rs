//! Attempts under one id that meet: what one was told of, no other gives back.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{Charge, Charges, Decision, ManualClock, Origin, Reservation, Store, StoreError, Timestamp};
use tokio::task::JoinHandle;

use super::rig::Rig;
use crate::setup::{charge, keys, quota, together, until};

/// Longer than the clock of the tests goes on.
const KEEP: Duration = Duration::from_secs(86_400);
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A request with a counter on the first server that has room, and one on the second that is full for an hour. The id
/// is on the third.
struct Meeting {
    rig: Rig,
    clock: ManualClock,
    room: Charge<'static>,
    full: Charge<'static>,
    id: &'static str,
}

impl Meeting {
    async fn new() -> Self {
        let clock = ManualClock::starting_at(START);
        let given = Arc::new(clock.clone());
        let rig = Rig::with(|builder| builder.clock(given)).await;
        let room = charge("room", rig.on(0, 0), quota("5/24h fixed_window"));
        let full = charge("full", rig.on(1, 0), quota("1/h fixed_window"));
        let id = rig.on(2, 0);
        assert!(rig.ask(&[full]).await.unwrap().is_allowed());
        Self { rig, clock, room, full, id }
    }

    /// On this thread, which sends what it asks all servers before it hears from one.
    fn attempt(&self) -> JoinHandle<Result<Decision, StoreError>> {
        let (store, id) = (self.rig.store.clone(), self.id);
        let charges: Charges<'static> = together(&[self.room, self.full]);
        tokio::spawn(async move {
            let under = Reservation::once(id, KEEP).unwrap();
            store.reserve(&charges.check().unwrap(), &under).await
        })
    }

    /// A first attempt that has charged the first server, and waits for the second to deny.
    async fn half_charged(&self) -> JoinHandle<Result<Decision, StoreError>> {
        self.rig.servers[1].pause();
        let answered = self.answered();
        let first = self.attempt();
        until("the first server charged", async || self.answered() > answered).await;
        first
    }

    /// How many charges servers have answered.
    fn answered(&self) -> u64 {
        self.rig.store.health().batched
    }

    /// From now on there is room on the second server, too.
    fn an_hour_later(&self) {
        self.clock.advance(Duration::from_secs(7_200));
    }

    async fn left(&self) -> [u32; 2] {
        [self.rig.left(&self.room).await, self.rig.left(&self.full).await]
    }

    /// How often a script by its text was asked for where the id is.
    fn scripts(&self) -> u64 {
        let told = self.rig.servers[2].cli(&["INFO", "commandstats"]);
        let calls = told.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }
}

/// The first is denied and would give back what the second was told of.
#[tokio::test]
async fn a_denied_attempt_gives_nothing_back_that_another_was_told_of() {
    let meeting = Meeting::new().await;
    let (rig, first) = (&meeting.rig, meeting.half_charged().await);
    meeting.an_hour_later();
    let answered = meeting.answered();
    let second = meeting.attempt();
    until("the second told of the first's charge", async || meeting.answered() > answered).await;
    rig.servers[1].resume();
    assert!(!first.await.unwrap().unwrap().is_allowed());
    let second = second.await.unwrap().unwrap();
    assert!(second.is_allowed());
    assert_eq!(meeting.left().await, [4, 0], "what was admitted is charged");
    assert_eq!(rig.counts()[1..], [0, 1], "nothing was given back, and that is counted");
    // Both are one request, whoever asks again.
    let again = meeting.attempt().await.unwrap().unwrap();
    assert_eq!((again.is_allowed(), again.origin()), (true, Origin::Repeat));
    assert_eq!(meeting.left().await, [4, 0]);
    assert!(keys(&rig.servers[2]).iter().any(|key| key.contains("rk:n:")), "it is noted still");
}

#[tokio::test]
async fn an_attempt_waits_for_one_that_gives_back() {
    let meeting = Meeting::new().await;
    let (rig, first) = (&meeting.rig, meeting.half_charged().await);
    rig.servers[0].pause();
    let before = meeting.scripts();
    rig.servers[1].resume();
    until("the id closed", async || meeting.scripts() > before).await;
    meeting.an_hour_later();
    let second = meeting.attempt();
    until("the second asks again and again", async || meeting.scripts() > before + 3).await;
    rig.servers[0].resume();
    assert!(!first.await.unwrap().unwrap().is_allowed());
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.is_allowed(), second.origin()), (true, Origin::Store), "it was charged anew");
    assert_eq!((meeting.left().await, rig.counts()[1..].to_vec()), ([4, 0], vec![1, 0]));
}
