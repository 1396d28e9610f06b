//! Spans of checks, and the mark of requests that are over a limit which only watches.

use axum::Router;
use axum::routing::get as on_get;
use ratekeeper_web::Gate;
use ratekeeper_web::axum::rate_limit;
use tower::ServiceExt as _;

use super::{Remote, Traces, gate, gate_on, get};

const ONE: &str = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\n";
const WATCHES: &str =
    "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/60s fixed_window'\nmode = 'monitor'\n";

fn app(gate: Gate) -> Router {
    Router::new().route("/", on_get(|| async { "ok" })).layer(rate_limit(gate))
}

#[tokio::test]
async fn every_check_is_a_span_with_its_outcome() {
    for remote in [false, true] {
        let (traces, _guard) = Traces::start();
        let gate_of = |rules| if remote { gate_on(Remote::new(), rules) } else { gate(rules).0 };
        let (denies, watches) = (app(gate_of(ONE).spans(true)), app(gate_of(WATCHES).spans(true)));
        for app in [&denies, &denies, &watches, &watches] {
            app.clone().oneshot(get("/")).await.unwrap();
        }
        let outcomes = ["allowed", "denied", "allowed", "over_limit"];
        let expected = outcomes.map(|outcome| format!("span ratelimit.check outcome=\"{outcome}\""));
        assert_eq!(traces.with("span ratelimit.check"), expected, "{remote}");
    }
}

#[tokio::test]
async fn there_are_no_spans_unless_they_are_asked_for() {
    let (traces, _guard) = Traces::start();
    app(gate(ONE).0).oneshot(get("/")).await.unwrap();
    assert!(traces.with("span ").is_empty());
}

/// Without OpenTelemetry, a span that declares the field is marked. It is the request's,
/// whoever notices and however deep.
#[tokio::test]
async fn being_over_a_limit_that_watches_marks_the_span_of_the_request() {
    use axum::extract::State;
    use ratekeeper_web::axum::{Apply, Refused};
    use std::sync::Arc;
    use tracing::Instrument as _;

    async fn applies(State(gate): State<Arc<Gate>>, apply: Apply) -> Result<&'static str, Refused> {
        apply.limit(&gate).instrument(tracing::info_span!("handler")).await.map(|_| "ok")
    }
    let free = "[[rules]]\nname = 'free'\nkeys = 'all'\nquota = '100/60s'\n";
    let by_handler = Router::new()
        .route("/", on_get(applies))
        .layer(rate_limit(gate(free).0))
        .with_state(Arc::new(gate(WATCHES).0));
    for app in [app(gate(WATCHES).0), app(gate(WATCHES).0.spans(true)), by_handler] {
        let (traces, _guard) = Traces::start();
        for _ in 0..2 {
            let root = tracing::info_span!("request", ratelimit.over_limit = tracing::field::Empty);
            app.clone().oneshot(get("/")).instrument(root).await.unwrap();
        }
        assert_eq!(traces.with("span request"), ["span request", "span request ratelimit.over_limit=true"]);
    }
}
