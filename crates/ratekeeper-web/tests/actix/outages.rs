//! Stores that are away.

use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, web};
use ratekeeper_web::actix::RateLimit;

use crate::remote::Remote;
use crate::support::{TWO, field, fields, gate_on, text};

#[actix_web::test]
async fn in_an_outage_the_rule_says_what_happens() {
    for (on_outage, status) in [("allow", 200), ("deny", 503), ("local", 200)] {
        let rules = format!("{TWO}on_outage = '{on_outage}'\n");
        let app = App::new().wrap(RateLimit::new(gate_on(Remote::away(), &rules)));
        let app = init_service(app.route("/", web::get().to(|| async { "ok" }))).await;
        let response = call_service(&app, TestRequest::get().uri("/").to_request()).await;
        assert_eq!(response.status().as_u16(), status, "{on_outage}");
        match on_outage {
            "allow" => assert_eq!(fields(&response), 0),
            "local" => assert_eq!(fields(&response), 2),
            _ => {
                assert_eq!((field(&response, "retry-after"), fields(&response)), (Some("1"), 1));
                assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
                assert!(text(response).await.contains("temporary-reduced-capacity"));
            }
        }
    }
}

#[actix_web::test]
async fn a_process_that_counts_for_itself_denies_with_429() {
    let rules = format!("{TWO}on_outage = 'local'\n");
    let app = App::new().wrap(RateLimit::new(gate_on(Remote::away(), &rules)));
    let app = init_service(app.route("/", web::get().to(|| async { "ok" }))).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(call_service(&app, TestRequest::get().uri("/").to_request()).await.status());
    }
    assert_eq!(statuses, [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]);
}
