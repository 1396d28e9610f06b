//! What a check of many quotas in one value takes the server, counted in records that are read and made.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::bounds::CHARGES_MAX;
use ratekeeper::{Charge, Charges, Key, ManualClock, Name, RedisStore, Reservation, Store, Timestamp};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{builder, script};
use crate::layout::calls;
use crate::setup::{quota, together};

/// So many records may be read and made for each charge, whatever else is in the value.
const RECORDS_MAX: usize = 16;

/// A script that says by a command whenever it reads a record, and whenever it makes one anew.
fn counting() -> String {
    let heads = [
        "local function record(value, count, i)\n",
        "  local function keep(at, name, tag, window, a, b, c, e, limit, burst)\n",
    ];
    heads.into_iter().fold(script(), |script, head| {
        assert_eq!(script.matches(head).count(), 1, "{head}");
        script.replace(head, &format!("{head}  redis.call('ECHO', 'record')\n"))
    })
}

/// A server, and what is asked of it.
struct Counted {
    server: Server,
    store: RedisStore,
    clock: ManualClock,
    ids: u32,
}

impl Counted {
    async fn start() -> Self {
        let server = Server::start(Flavour::Redis7);
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        let store =
            builder(&server.url()).script(&counting()).clock(Arc::new(clock.clone())).build().unwrap();
        store.ping().await.unwrap();
        Self { server, store, clock, ids: 0 }
    }

    /// Asks for all of them under an id of its own, which the short way does not know.
    async fn ask(&mut self, what: &str, charges: &Charges<'_>) {
        self.ids += 1;
        let id = self.ids.to_string();
        let (check, before) = (charges.check().unwrap(), calls(&self.server, "echo"));
        let once = Reservation::once(&id, Duration::from_secs(60)).unwrap();
        assert!(self.store.reserve(&check, &once).await.unwrap().is_allowed(), "{what}");
        self.is_bounded(what, before);
    }

    #[track_caller]
    fn is_bounded(&self, what: &str, before: usize) {
        let records = calls(&self.server, "echo") - before;
        println!("{records:>6} records: {what}");
        assert!(records <= RECORDS_MAX * CHARGES_MAX, "{what}: {records} records for {CHARGES_MAX} charges");
    }
}

fn tiers(from: usize, count: usize) -> Charges<'static> {
    let rule = Name::new("many").unwrap();
    let charges: Vec<Charge<'_>> = (from..from + count)
        .map(|index| {
            let name = Name::joined(rule, &format!("q{index}")).unwrap();
            Charge::new(Key::new(name, "s").unwrap(), quota("1000/h"))
        })
        .collect();
    together(&charges)
}

#[tokio::test]
async fn each_of_many_quotas_takes_bounded_work() {
    let mut counted = Counted::start().await;
    let all = tiers(0, CHARGES_MAX);
    counted.ask("on a new key", &all).await;
    counted.ask("again", &all).await;
    let check = all.check().unwrap();
    let decision = counted.store.check(&check).await.unwrap();
    let before = calls(&counted.server, "echo");
    assert_eq!(counted.store.refund(&check, &decision, 1).await.unwrap(), CHARGES_MAX as u64);
    counted.is_bounded("given back", before);
    counted.clock.advance(Duration::from_secs(7_200));
    counted.ask("when all of it is over", &all).await;
    // As many others as there may be, behind them.
    for from in [64, 128] {
        let others = tiers(from, 64);
        assert!(counted.store.check(&others.check().unwrap()).await.unwrap().is_allowed());
    }
    let others = tiers(192, 63);
    assert!(counted.store.check(&others.check().unwrap()).await.unwrap().is_allowed());
    assert!(counted.store.check(&check).await.unwrap().is_allowed());
    assert_eq!(counted.store.stored_counters("many", b"s").await.unwrap().len(), 255);
    counted.ask("beside 191 others", &all).await;
    counted.ask("beside 191 others, again", &all).await;
}
