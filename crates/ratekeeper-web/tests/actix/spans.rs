//! Spans of checks, and the mark of requests that are over a limit which only watches.

use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, web};
use ratekeeper_web::Gate;
use ratekeeper_web::actix::RateLimit;
use tracing::Instrument as _;

use crate::remote::Remote;
use crate::support::{gate, gate_on};
use crate::traces::Traces;

const ONE: &str = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\n";
const WATCHES: &str =
    "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\nmode = 'monitor'\n";

/// Asks twice, each time within a span of its own.
async fn ask_twice(gate: Gate) {
    let app = App::new().wrap(RateLimit::new(gate)).route("/", web::get().to(|| async { "ok" }));
    let app = init_service(app).await;
    for _ in 0..2 {
        let root = tracing::info_span!("request", ratelimit.over_limit = tracing::field::Empty);
        call_service(&app, TestRequest::get().uri("/").to_request()).instrument(root).await;
    }
}

#[actix_web::test]
async fn every_check_is_a_span_with_its_outcome() {
    for remote in [false, true] {
        let (traces, _guard) = Traces::start();
        let gate_of = |rules| if remote { gate_on(Remote::new(), rules) } else { gate(rules) };
        ask_twice(gate_of(ONE).spans(true)).await;
        ask_twice(gate_of(WATCHES).spans(true)).await;
        let outcomes = ["allowed", "denied", "allowed", "over_limit"];
        let expected = outcomes.map(|outcome| format!("span ratelimit.check outcome=\"{outcome}\""));
        assert_eq!(traces.with("span ratelimit.check"), expected, "{remote}");
    }
}

#[actix_web::test]
async fn there_are_no_spans_unless_they_are_asked_for() {
    let (traces, _guard) = Traces::start();
    ask_twice(gate(ONE)).await;
    assert!(traces.with("span ratelimit.check").is_empty());
}

#[actix_web::test]
async fn being_over_a_limit_that_watches_marks_the_span_of_the_request() {
    for gate in [gate(WATCHES), gate(WATCHES).spans(true), gate_on(Remote::new(), WATCHES)] {
        let (traces, _guard) = Traces::start();
        ask_twice(gate).await;
        assert_eq!(traces.with("span request"), ["span request", "span request ratelimit.over_limit=true"]);
    }
}
