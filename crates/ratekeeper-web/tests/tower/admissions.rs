//! What handlers charge and give back on the layer's own limits, and what the response tells then.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::{Request, StatusCode};
use ratekeeper::{Limiter, Rule, Store};
use ratekeeper_web::axum::{Admission, Apply, Refused, global, limit_by, rate_limit};
use ratekeeper_web::{DenialBody, Gate, Identity};
use tower::ServiceExt as _;

use super::{Remote, field, gate_on, store, text};

/// Ten a minute, which requests and what they turn out to cost share.
const TEN: &str = "[[rules]]\nname = 'tokens'\nkeys = 'all'\nquota = '10/min fixed_window'\n";

/// What a handler does, what is charged in the end, and what the response tells.
type Case = (&'static [(&'static str, u64)], &'static str, &'static str);

fn post_with(steps: &[(&str, u64)]) -> Request<Body> {
    let json = serde_json::to_vec(steps).unwrap();
    Request::post("/").header("content-type", "application/json").body(Body::from(json)).unwrap()
}

/// Does what the body says, and answers with what was charged in the end.
async fn work(admission: Admission, Json(steps): Json<Vec<(String, u64)>>) -> Result<String, Refused> {
    for (verb, units) in steps {
        match verb.as_str() {
            "charge" => admission.charge(units).await?,
            "refund" => drop(admission.refund(u32::try_from(units).unwrap()).await?),
            _ => drop(admission.settle(units).await?),
        }
    }
    Ok(admission.charged().to_string())
}

#[tokio::test]
async fn a_handler_charges_and_gives_back_and_the_fields_tell_the_final_numbers() {
    let stores: [Arc<dyn Store>; 2] = [store().0, Remote::new()];
    for store in stores {
        let app = Router::new().route("/", post(work)).layer(rate_limit(gate_on(store, TEN)));
        let cases: [Case; 5] = [
            (&[("charge", 3)], "4", r#""tokens";r=6;t=60"#),
            (&[("charge", 4), ("refund", 2)], "3", r#""tokens";r=3;t=60"#),
            (&[("refund", 5)], "0", r#""tokens";r=3;t=60"#),
            (&[("settle", 2)], "2", r#""tokens";r=1;t=60"#),
            // Only one is left. What is done is done, so as much as there is counts.
            (&[("settle", 9), ("refund", 1)], "0", r#""tokens";r=1;t=60"#),
        ];
        for (steps, charged, told) in cases {
            let response = app.clone().oneshot(post_with(steps)).await.unwrap();
            assert_eq!(field(&response, "ratelimit"), Some(told), "{steps:?}");
            assert_eq!(field(&response, "ratelimit-policy"), Some(r#""tokens";q=10;w=60"#), "one name");
            assert_eq!(text(response).await, charged, "{steps:?}");
        }
        // The layer takes the last; more is denied by the same limit, and nothing of it is charged.
        let response = app.oneshot(post_with(&[("charge", 1)])).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&response, "ratelimit"), Some(r#""tokens";r=0;t=60"#));
        assert_eq!(field(&response, "retry-after"), Some("60"));
        assert!(text(response).await.contains(r#""violated-policies":["tokens"]"#));
    }
}

/// Middleware of the program's own may look at the same request as its handler.
#[tokio::test]
async fn whoever_extracts_it_gives_the_charge_back_once() {
    async fn handler(one: Admission, other: Admission) -> Result<String, Refused> {
        one.charge(6).await?;
        let mut given = vec![one.refund(4).await?, other.refund(4).await?];
        let decision = one.decision().clone();
        given.extend([one.refund(10).await?, other.refund(10).await?]);
        // The decision itself was given back, too.
        assert_eq!(decision.not_given_back(), 0);
        Ok(format!("{given:?} {} {}", one.charged(), other.charged()))
    }
    let stores: [Arc<dyn Store>; 2] = [store().0, Remote::new()];
    for store in stores {
        let layer = || rate_limit(gate_on(Arc::clone(&store), TEN));
        // Two units of others, which are not to come back.
        let plain = Router::new().route("/", post(work)).layer(layer());
        assert_eq!(text(plain.oneshot(post_with(&[("charge", 1)])).await.unwrap()).await, "2");
        let app = Router::new().route("/", post(handler)).layer(layer());
        let response = app.oneshot(post_with(&[])).await.unwrap();
        assert_eq!(field(&response, "ratelimit"), Some(r#""tokens";r=8;t=60"#));
        assert_eq!(text(response).await, "[4, 3, 0, 0] 0 0");
    }
}

#[tokio::test]
async fn a_decision_that_was_given_back_by_itself_is_not_given_back_again() {
    use http::request::Parts;
    async fn handler(
        State(limiter): State<Arc<Limiter<Parts>>>,
        parts: Parts,
        admission: Admission,
    ) -> Result<String, Refused> {
        admission.charge(3).await?;
        assert_eq!(limiter.refund(&parts, admission.decision(), 1).await.unwrap(), 1);
        let charged = admission.charged();
        Ok(format!("{charged} {}", admission.refund(9).await?))
    }
    let store: Arc<dyn Store> = store().0;
    let limiter = || {
        let rule = Rule::new("all", |_: &Parts| Some("all".into())).quotas("10/min fixed_window");
        Limiter::builder_on(Arc::clone(&store)).rule(rule).build().unwrap()
    };
    let others = Router::new().route("/", post(work)).layer(limit_by(limiter()));
    assert_eq!(text(others.oneshot(post_with(&[])).await.unwrap()).await, "1");
    let app =
        Router::new().route("/", post(handler)).with_state(Arc::new(limiter())).layer(limit_by(limiter()));
    let response = app.oneshot(post_with(&[])).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""all";r=9;t=60"#));
    assert_eq!(text(response).await, "3 3");
}

#[tokio::test]
async fn a_request_that_has_changed_since_is_an_error_that_says_so() {
    async fn handler(mut request: axum::extract::Request) -> Result<&'static str, Refused> {
        use axum::extract::FromRequestParts as _;
        request.extensions_mut().insert(Identity::new().user("ann"));
        let (mut parts, _) = request.into_parts();
        Admission::from_request_parts(&mut parts, &()).await?.refund(1).await?;
        Ok("given back")
    }
    let rules =
        "[[rules]]\nname = 'users'\nkeys = 'user:{identity.user}'\nfallback = 'nobody'\nquota = '10/min'\n";
    let app = Router::new().route("/", post(handler)).layer(rate_limit(gate_on(store().0, rules)));
    let response = app.oneshot(post_with(&[])).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = text(response).await;
    assert!(body.contains("a request with other keys in `users`"), "{body}");
}

#[tokio::test]
async fn what_was_found_in_a_body_is_charged_again_without_the_body() {
    let rules = "[[rules]]\nname = 'tenants'\nkeys = 'tenant:{body.0.0}'\nquota = '10/min fixed_window'\n";
    let app = Router::new().route("/", post(work)).layer(rate_limit(gate_on(store().0, rules)));
    let response = app.clone().oneshot(post_with(&[("charge", 3)])).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""tenants";r=6;t=60"#));
    let other = app.oneshot(post_with(&[("refund", 1)])).await.unwrap();
    assert_eq!(field(&other, "ratelimit"), Some(r#""tenants";r=10;t=0"#));
}

#[tokio::test]
async fn without_a_layer_there_is_nothing_to_charge() {
    let app = Router::new().route("/", post(work));
    let response = app.oneshot(post_with(&[("charge", 3)])).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text(response).await.contains("a layer or middleware with limits around it"));
}

#[tokio::test]
async fn what_apply_has_charged_can_be_settled_too() {
    async fn handler(State(gate): State<Arc<Gate>>, apply: Apply) -> Result<(Apply, String), Refused> {
        let estimate = apply.cost(&gate, 6).await?;
        estimate.settle(2).await?;
        let charged = estimate.charged().to_string();
        Ok((apply, charged))
    }
    let gate = Arc::new(gate_on(store().0, TEN));
    let app = Router::new().route("/", post(handler)).with_state(gate);
    let response = app.oneshot(post_with(&[])).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""tokens";r=8;t=60"#));
    assert_eq!(text(response).await, "2");
}

/// Of a place, nothing is given back while the request is under way, however much is charged beside it.
#[tokio::test]
async fn places_are_held_until_the_end() {
    async fn handler(State(gate): State<Arc<Gate>>, apply: Apply) -> Result<&'static str, Refused> {
        let place = apply.limit(&gate).await?;
        place.charge(2).await?;
        place.refund(5).await?;
        assert!(apply.limit(&gate).await.is_err(), "both places are not free");
        drop(place);
        apply.limit(&gate).await.map(|_| "ok")
    }
    let rules = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/30s concurrency'\n";
    let gate = Arc::new(gate_on(store().0, rules));
    let app = Router::new().route("/", post(handler)).with_state(gate);
    // A charge on a rule for places takes another place for a moment, which there is not.
    assert_eq!(app.oneshot(post_with(&[])).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn denials_have_the_body_that_the_service_writes() {
    let own = |denial: &ratekeeper_web::Denial<'_>| {
        let name = denial.decision().strictest()?.name();
        Some(DenialBody::json(format!(r#"{{"slow_down":"{}"}}"#, name.label())))
    };
    let limits = global("1/min fixed_window").unwrap().denial_body(own).unwrap();
    let app = Router::new().route("/", post(|| async { "ok" })).layer(limits);
    assert_eq!(app.clone().oneshot(post_with(&[])).await.unwrap().status(), StatusCode::OK);
    let denied = app.oneshot(post_with(&[])).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&denied, "content-type"), Some("application/json"));
    assert_eq!(field(&denied, "retry-after"), Some("60"));
    assert_eq!(text(denied).await, r#"{"slow_down":"global"}"#);
    // In a handler, too; and `None` is the usual one.
    for (own, part) in [(true, "slow_down"), (false, "quota-exceeded")] {
        let gate = gate_on(store().0, &TEN.replace("10/min", "0/min"));
        let gate = Arc::new(gate.denial_body(move |_| own.then(|| DenialBody::json("\"slow_down\""))));
        let handler = |State(gate): State<Arc<Gate>>, apply: Apply| async move {
            apply.limit(&gate).await.map(|_| "ok")
        };
        let app = Router::new().route("/", post(handler)).with_state(gate);
        let body = text(app.oneshot(post_with(&[])).await.unwrap()).await;
        assert!(body.contains(part), "{body}");
    }
}

/// Rules in code look at the parts of a request, and are a layer like others.
#[tokio::test]
async fn rules_in_code_are_a_layer() {
    use http::request::Parts;
    fn key(request: &Parts) -> Option<&str> {
        request.headers.get("x-key")?.to_str().ok()
    }
    let stores: [Arc<dyn Store>; 2] = [store().0, Remote::new()];
    for store in stores {
        let limiter = Limiter::builder_on(store)
            .rule(
                Rule::new("per-key", |request: &Parts| key(request).map(Into::into))
                    .quotas("4/min fixed_window"),
            )
            .build()
            .unwrap();
        let app = Router::new().route("/", post(work)).layer(limit_by(limiter));
        let by = |key: Option<&'static str>| {
            let mut request = post_with(&[("charge", 1)]);
            if let Some(key) = key {
                request.headers_mut().insert("x-key", key.parse().unwrap());
            }
            app.clone().oneshot(request)
        };
        let first = by(Some("a")).await.unwrap();
        assert_eq!(field(&first, "ratelimit"), Some(r#""per-key";r=2;t=60"#));
        let statuses = [by(Some("a")).await, by(Some("a")).await, by(Some("b")).await];
        assert_eq!(statuses.map(|response| response.unwrap().status().as_u16()), [200, 429, 200]);
        assert_eq!(field(&by(None).await.unwrap(), "ratelimit"), None, "no rule applies");
    }
}

#[tokio::test]
async fn rules_in_code_about_other_requests_are_told_loudly() {
    let limiter = Limiter::<String>::builder(ratekeeper::MemoryStore::new())
        .rule(Rule::global("all").quotas("1/s"))
        .build()
        .unwrap();
    let (traces, _guard) = super::Traces::start();
    let app = Router::new().route("/", post(work)).layer(rate_limit(Gate::of_limiter(limiter)));
    for _ in 0..2 {
        let response = app.clone().oneshot(post_with(&[])).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    assert_eq!(traces.with("another kind of request").len(), 1);
}
