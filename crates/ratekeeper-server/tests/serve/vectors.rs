//! The decision tables through the HTTP API, on memory and on Redis.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Algorithm, Check, Decision, DecisionParts, Emergency, Enforcement, Key, Level, ManualClock, Name, Origin,
    Outcome, Override, OverrideScope, Receipt, RedisStore, Reservation, Settled, Timestamp, VerdictParts,
    Wait,
};
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::{Engine, vectors};
use serde_json::{Value as Json, json};

use crate::client::{Client, PATIENCE, Reply};
use crate::rig::{RUNTIME, Rig, START, Setup};

/// All that the tables hold: fewer were not all.
const STEPS_MIN: usize = 900;

#[test]
fn tables_hold_over_http_on_memory() {
    let steps = vectors::run_all(|| {
        let (rig, clock) = Setup::default().in_memory();
        OverHttp::new(rig, clock)
    });
    assert!(steps >= STEPS_MIN, "{steps} steps");
}

#[test]
fn tables_hold_over_http_on_redis() {
    let server = Server::start(Flavour::Redis7);
    let mut cases = 0;
    let steps = vectors::run_all(|| {
        cases += 1;
        let clock = ManualClock::starting_at(START);
        let store = {
            let _within = RUNTIME.enter();
            let builder = RedisStore::builder(&server.url()).prefix(&format!("case{cases}:"));
            builder.deadline(PATIENCE).clock(Arc::new(clock.clone())).build().unwrap()
        };
        OverHttp::new(Setup::default().start(Arc::new(store)), clock)
    });
    assert!(steps >= STEPS_MIN, "{steps} steps");
}

struct OverHttp {
    rig: Rig,
    client: Client,
    clock: ManualClock,
    /// Decisions come back as they were told.
    told: Vec<(Decision, Json)>,
}

impl OverHttp {
    fn new(rig: Rig, clock: ManualClock) -> Self {
        let client = rig.client();
        Self { rig, client, clock, told: Vec::new() }
    }

    fn decide(&mut self, path: &str, call: &Json) -> Result<Decision, String> {
        let reply = self.client.call(path, call);
        let told = answer(&reply)?;
        let decision = decision(&told);
        let status = if decision.is_allowed() || path == "/v1/peek" { 200 } else { 429 };
        assert_eq!(reply.status, status, "{told}");
        assert_eq!(
            reply.header("retry-after").is_some(),
            status == 429 && !decision.retry_after().is_never()
        );
        assert!(
            reply.header("ratelimit").is_some() && reply.header("ratelimit-policy").is_some(),
            "{reply:?}"
        );
        self.told.push((decision.clone(), told));
        Ok(decision)
    }
}

impl Engine for OverHttp {
    fn set_now(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String> {
        // A cost of 0 is a peek by itself.
        let is_peek = check.is_peek() && check.charges().iter().any(|charge| charge.units() > 0);
        let path = if is_peek { "/v1/peek" } else { "/v1/limit" };
        self.decide(path, &json!({ "charges": charges(check) }))
    }

    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String> {
        if check.is_peek() {
            // There is no such call: whoever peeks has nothing to repeat.
            return self.check(check);
        }
        let id = std::str::from_utf8(reservation.id()).unwrap();
        match reservation.held_for() {
            Some(hold) => {
                let call = json!({ "charges": charges(check), "id": id, "hold_seconds": hold.as_secs() });
                self.decide("/v1/reserve", &call)
            }
            None => {
                let keep = reservation.keep().as_secs();
                let call = json!({ "charges": charges(check), "id": id, "keep_seconds": keep });
                self.decide("/v1/limit", &call)
            }
        }
    }

    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String> {
        let id = std::str::from_utf8(id).unwrap();
        let reply = match actual {
            Some(actual) => self.client.call("/v1/settle", &json!({ "id": id, "actual": actual })),
            None => self.client.call("/v1/cancel", &json!({ "id": id })),
        };
        match reply.status {
            404 => Ok(Settled::Unknown),
            410 => Ok(Settled::Lapsed),
            _ => match answer(&reply)?["settled"].as_str() {
                Some("done") => Ok(Settled::Done),
                Some("already") => Ok(Settled::Already),
                other => panic!("{other:?}"),
            },
        }
    }

    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String> {
        let told = self.told.iter().find(|(known, _)| known == decision);
        let told = &told.expect("a decision that was told").1;
        let call = json!({ "charges": charges(check), "decision": told, "units": units });
        let answer = answer(&self.client.call("/v1/refund", &call))?;
        let units = answer["units"].as_u64().expect("how many units");
        assert_eq!(answer["refunded"], json!(units > 0), "{answer}");
        Ok(units)
    }

    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String> {
        let charge = json!({
            "name": key.scope().label(),
            "key": std::str::from_utf8(key.subject()).unwrap(),
            "quota": "1/s",
            "algorithm": algorithm.as_str(),
        });
        let answer = answer(&self.client.call("/v1/reset", &json!({ "charges": [charge] })))?;
        Ok(answer["forgotten"].as_u64().expect("how many counters") > 0)
    }

    /// Overrides are for operators, whose calls come with an issue of their own.
    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String> {
        let overrides = self.rig.store.overrides();
        RUNTIME.block_on(async {
            match to {
                Some(to) => overrides.set(scope, to).await.map_err(|error| reason(&error)),
                None => overrides.delete(scope).await.map(drop).map_err(|error| reason(&error)),
            }
        })
    }
}

fn reason(error: &ratekeeper::StoreError) -> String {
    let source = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    format!("{error}: {source}")
}

fn answer(reply: &Reply) -> Result<Json, String> {
    let told = reply.json();
    match reply.status {
        200 | 429 => Ok(told),
        400..=499 => {
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
            assert_eq!(told["status"], reply.status);
            Err(told["detail"].as_str().expect("a detail").to_owned())
        }
        _ => panic!("{reply:?}"),
    }
}

/// The charges of a check as a caller writes them.
fn charges(check: &Check<'_>) -> Json {
    let charges = check.charges().iter().map(|charge| {
        let quota = charge.quota().to_string();
        let mut call = json!({
            "name": charge.key().scope().label(),
            "key": std::str::from_utf8(charge.key().subject()).unwrap(),
            "quota": quota,
            "cost": charge.units(),
            "shadow": charge.enforced() == Enforcement::Shadow,
            "flat": charge.is_flat(),
        });
        match charge.switched() {
            Emergency::Off => {}
            Emergency::Lift => call["emergency"] = "lift".into(),
            Emergency::Block => call["emergency"] = "block".into(),
        }
        if let Some(scope) = charge.override_scope() {
            call["overrides"] =
                json!({ "endpoint": scope.endpoint(), "organisation": scope.organisation_id() });
            if let Some(project) = scope.project_id() {
                call["overrides"]["project"] = project.into();
            }
        }
        call
    });
    charges.collect()
}

/// A decision as it was told, as one of the library.
fn decision(told: &Json) -> Decision {
    let wait = |wait: &Json| wait.as_u64().map_or(Wait::NEVER, Wait::micros);
    let verdicts = told["limits"].as_array().unwrap().iter().map(|limit| {
        let text = |member: &str| limit[member].as_str().unwrap();
        let whole = |member: &str| u32::try_from(limit[member].as_u64().unwrap()).unwrap();
        let levels = [
            Level::Default,
            Level::Plan,
            Level::Custom,
            Level::Organisation,
            Level::Project,
            Level::Emergency,
        ];
        let receipt = limit["receipt"].as_str().map(|receipt| {
            let parts: Vec<&str> = receipt.split('.').collect();
            Receipt { at: parts[0].parse().unwrap(), detail: parts[1].parse().unwrap() }
        });
        let enforced = limit["enforced"].as_bool().unwrap();
        VerdictParts {
            level: levels.into_iter().find(|level| level.as_str() == text("level")).unwrap(),
            enforcement: if enforced { Enforcement::Enforce } else { Enforcement::Shadow },
            cost: whole("cost"),
            remaining: whole("remaining"),
            reset_after: Duration::from_micros(limit["reset_after_us"].as_u64().unwrap()),
            retry_after: wait(&limit["retry_after_us"]),
            receipt,
            ..VerdictParts::new(Name::new(text("name")).unwrap(), text("quota").parse().unwrap())
        }
    });
    let origin = match told["origin"].as_str().unwrap() {
        "store" => Origin::Store,
        "repeat" => Origin::Repeat,
        other => panic!("{other}"),
    };
    let parts = DecisionParts {
        outcome: if told["allowed"].as_bool().unwrap() { Outcome::Allow } else { Outcome::Deny },
        origin,
        at: Timestamp::from_micros(told["at_us"].as_u64().unwrap()),
        retry_after: wait(&told["retry_after_us"]),
        proceed_after: Duration::from_micros(told["proceed_after_us"].as_u64().unwrap()),
        verdicts: verdicts.collect(),
    };
    parts.into()
}
