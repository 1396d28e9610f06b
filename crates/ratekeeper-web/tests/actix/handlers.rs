//! What handlers ask: the decision, a second counter, a cost of their own.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpRequest, HttpResponse, web};
use ratekeeper::{Limiter, Rule};
use ratekeeper_web::actix::{Admission, Apply, Limits, RateLimit, Refused};
use ratekeeper_web::ready::{OnMissingIdentity, PathLimit, ProjectLimit};
use ratekeeper_web::{DenialBody, Gate, HttpOptions, Legacy};

use crate::support::{ONE_AT_A_TIME, field, fields, gate, store, text};

async fn count(
    gate: web::Data<Gate>,
    apply: Apply,
    items: web::Json<Vec<u32>>,
) -> Result<HttpResponse, Refused> {
    apply.cost(&gate, items.len() as u64).await?;
    let mut response = HttpResponse::Ok().body("counted");
    apply.tell(&mut response);
    Ok(response)
}

fn batch(items: usize) -> TestRequest {
    TestRequest::post().uri("/batch").set_json(vec![1; items])
}

fn elements() -> PathLimit {
    PathLimit::new(1_000).expiry(Duration::from_secs(60)).key_suffix("/elements")
}

#[actix_web::test]
async fn requests_and_elements_are_two_counters_of_one_endpoint_and_in_one_header() {
    let store = store();
    let requests = PathLimit::new(100).expiry(Duration::from_secs(60)).gate(store.clone()).unwrap();
    let app = App::new()
        .wrap(RateLimit::new(requests))
        .app_data(web::Data::new(elements().gate(store).unwrap()))
        .route("/batch", web::post().to(count));
    let app = init_service(app).await;
    let response = call_service(&app, batch(600).to_request()).await;
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""requests";q=100;w=60, "elements";q=1000;w=60"#)
    );
    assert_eq!(field(&response, "ratelimit"), Some(r#""requests";r=99;t=60, "elements";r=400;t=60"#));
    // What would cross the boundary is denied and costs no element.
    let response = call_service(&app, batch(401).to_request()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "ratelimit"), Some(r#""requests";r=98;t=60, "elements";r=400;t=60"#));
    assert_eq!(field(&response, "retry-after"), Some("60"));
    assert!(text(response).await.contains(r#""violated-policies":["elements"]"#));
    let response = call_service(&app, batch(400).to_request()).await;
    assert_eq!(field(&response, "ratelimit"), Some(r#""requests";r=97;t=60, "elements";r=0;t=60"#));
}

#[actix_web::test]
async fn without_a_middleware_the_handlers_answer_tells_in_the_words_of_its_gate() {
    let options = HttpOptions::default().legacy(Legacy::RateLimit);
    let elements = elements().gate(store()).unwrap().options(options);
    let app = App::new().app_data(web::Data::new(elements)).route("/batch", web::post().to(count));
    let app = init_service(app).await;
    for (items, status, left) in
        [(999, 200, "1"), (2, 429, "1"), (usize::from(u16::MAX), 429, "1"), (1, 200, "0")]
    {
        let response = call_service(&app, batch(items).to_request()).await;
        assert_eq!(
            (response.status().as_u16(), field(&response, "ratelimit-remaining")),
            (status, Some(left))
        );
        let told = field(&response, "ratelimit").unwrap();
        // More than the limit never passes, so there is no time to tell.
        let time = if items > 1_000 { "" } else { ";t=" };
        assert!(told.starts_with(&format!(r#""elements";r={left}{time}"#)), "{told}");
        assert_eq!(told.contains(";t="), items <= 1_000, "{told}");
    }
}

#[actix_web::test]
async fn a_handler_reads_what_was_decided() {
    async fn handler(limits: Limits) -> String {
        let policies = limits.tally().fields(&HttpOptions::default()).next();
        let decided = limits.decision().map(|decision| decision.is_allowed());
        format!("{decided:?} {}", policies.map_or_else(String::new, |(_, value)| value.into_owned()))
    }
    let app = App::new()
        .service(web::resource("/free").to(handler))
        .service(web::resource("/limited").wrap(RateLimit::new(gate(crate::support::TWO))).to(handler));
    let app = init_service(app).await;
    for (path, expected) in [("/free", "None "), ("/limited", r#"Some(true) "all";q=2;w=60"#)] {
        let response = call_service(&app, TestRequest::get().uri(path).to_request()).await;
        assert_eq!(text(response).await, expected);
    }
}

#[actix_web::test]
async fn a_handler_holds_a_place_as_long_as_it_keeps_the_admission() {
    async fn handler(gate: web::Data<Arc<Gate>>, apply: Apply) -> Result<String, Refused> {
        let held = apply.limit(&gate).await?;
        let second = apply.limit(&gate).await;
        drop(held);
        let third = apply.limit(&gate).await;
        let refused = second.unwrap_err();
        assert!(refused.decision().is_some_and(|decision| !decision.is_allowed()));
        Ok(format!("{} {}", refused, third.is_ok()))
    }
    let gate = Arc::new(gate(ONE_AT_A_TIME));
    let app = App::new().app_data(web::Data::new(gate)).route("/", web::get().to(handler));
    let app = init_service(app).await;
    for _ in 0..2 {
        let response = call_service(&app, TestRequest::get().uri("/").to_request()).await;
        assert!(text(response).await.ends_with(" true"));
    }
}

#[actix_web::test]
async fn nobody_is_refused_by_a_handler_that_insists() {
    async fn handler(gate: web::Data<Gate>, apply: Apply) -> Result<&'static str, Refused> {
        apply.limit(&gate).await?;
        Ok("never")
    }
    let gate = ProjectLimit::new(1).on_missing_identity(OnMissingIdentity::Refuse).gate(store()).unwrap();
    let app = App::new().app_data(web::Data::new(gate)).route("/", web::get().to(handler));
    let app = init_service(app).await;
    let response: ServiceResponse<_> = call_service(&app, TestRequest::get().uri("/").to_request()).await;
    assert_eq!((response.status(), fields(&response)), (StatusCode::INTERNAL_SERVER_ERROR, 0));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert!(text(response).await.contains("need to know who is calling"));
}

#[actix_web::test]
async fn a_handler_charges_and_gives_back_and_the_fields_tell_the_final_numbers() {
    async fn work(admission: Admission, steps: web::Json<Vec<(String, u64)>>) -> Result<String, Refused> {
        for (verb, units) in steps.into_inner() {
            match verb.as_str() {
                "charge" => admission.charge(units).await?,
                "refund" => drop(admission.refund(u32::try_from(units).unwrap()).await?),
                _ => drop(admission.settle(units).await?),
            }
        }
        Ok(admission.charged().to_string())
    }
    let rules = "[[rules]]\nname = 'tokens'\nkeys = 'all'\nquota = '10/min fixed_window'\n";
    let app = App::new().wrap(RateLimit::new(gate(rules))).route("/", web::post().to(work));
    let app = init_service(app).await;
    type Case = (&'static [(&'static str, u64)], u16, &'static str, &'static str);
    let cases: [Case; 4] = [
        (&[("charge", 3)], 200, "4", r#""tokens";r=6;t=60"#),
        (&[("charge", 4), ("refund", 2)], 200, "3", r#""tokens";r=3;t=60"#),
        (&[("settle", 0)], 200, "0", r#""tokens";r=3;t=60"#),
        (&[("charge", 3)], 429, "violated-policies", r#""tokens";r=2;t=60"#),
    ];
    for (steps, status, body, told) in cases {
        let response = call_service(&app, TestRequest::post().uri("/").set_json(steps).to_request()).await;
        assert_eq!(response.status().as_u16(), status, "{steps:?}");
        assert_eq!(field(&response, "ratelimit"), Some(told), "{steps:?}");
        assert!(text(response).await.contains(body), "{steps:?}");
    }
    let bare = init_service(App::new().route("/", web::post().to(work))).await;
    let response = call_service(&bare, TestRequest::post().uri("/").set_json([0; 0]).to_request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[actix_web::test]
async fn rules_in_code_are_a_middleware_and_denials_have_a_body_of_ones_own() {
    let limiter = Limiter::builder_on(store())
        .rule(
            Rule::new("per-key", |request: &HttpRequest| {
                Some(request.headers().get("x-key")?.to_str().ok()?.to_owned().into())
            })
            .quotas("1/min fixed_window"),
        )
        .build()
        .unwrap();
    let gate = Gate::of_limiter(limiter).denial_body(|denial| {
        Some(DenialBody::new("text/plain", format!("again in {:?} s", denial.retry_after())))
    });
    let app = App::new().wrap(RateLimit::new(gate)).route("/", web::get().to(|| async { "ok" }));
    let app = init_service(app).await;
    for (key, status) in [("a", 200), ("a", 429), ("b", 200)] {
        let request = TestRequest::get().uri("/").insert_header(("x-key", key)).to_request();
        let response = call_service(&app, request).await;
        assert_eq!(response.status().as_u16(), status, "{key}");
        if status == 429 {
            assert_eq!(field(&response, "content-type"), Some("text/plain"));
            assert_eq!(text(response).await, "again in Some(60) s");
        }
    }
}
