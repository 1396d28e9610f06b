//! The examples that are whole services, started as anybody would start them, and asked by a real HTTP client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/example.rs"]
mod example;

use std::process::Command;

use axum::body::Body;
use axum::http::{Request, Response};
use example::Example;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratekeeper_testkit::servers::{Flavour, Server};

struct Http(Client<HttpConnector, Body>);

impl Http {
    fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    async fn get(&self, example: &Example, path: &str, user: Option<&str>) -> Response<String> {
        let mut request = Request::get(format!("http://{}{path}", example.address));
        if let Some(user) = user {
            request = request.header("authorization", format!("Bearer {user}"));
        }
        let response = self.0.request(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Response::from_parts(parts, text)
    }

    async fn statuses(&self, example: &Example, path: &str, user: Option<&str>, asks: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..asks {
            statuses.push(self.get(example, path, user).await.status().as_u16());
        }
        statuses
    }
}

fn field<'r>(response: &'r Response<String>, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_whole_service_on_axum() {
    let redis = Server::start(Flavour::Redis7);
    let url = redis.url();
    let variables = [("REDIS_URL", url.as_str()), ("REDIS_DEADLINE_MS", "20000")];
    let [one, two] = [(); 2].map(|()| Example::start("axum_service", &variables, 2));
    assert!(one.tries[0].contains("/notes") && one.tries[1].contains("/export/12"));
    let http = Http::new();
    let first = http.get(&one, "/notes", Some("ann")).await;
    assert_eq!((first.status().as_u16(), first.body().as_str()), (200, "no notes\n"));
    let policies = r#""per-ip";q=50;w=1;ratekeeper-burst=100, "per-user";q=5;w=60"#;
    assert_eq!(field(&first, "ratelimit-policy"), policies);
    // Both instances count together, and a plan has its own limit.
    assert_eq!(http.statuses(&two, "/notes", Some("ann"), 5).await, [200, 200, 200, 200, 429]);
    let paid = http.get(&two, "/notes", Some("bob")).await;
    assert!(field(&paid, "ratelimit-policy").contains(r#""per-user";q=20;w=60"#), "{paid:?}");
    // Twelve pages are twelve units, and the fields tell what is left then.
    let export = http.get(&one, "/export/12", Some("bob")).await;
    assert_eq!((export.status().as_u16(), export.body().as_str()), (200, "12 pages\n"));
    assert!(field(&export, "ratelimit").contains(r#""per-user";r=7;"#), "{export:?}");
    let denied = http.get(&two, "/export/12", Some("bob")).await;
    assert_eq!(denied.status(), 429);
    assert!(denied.body().contains(r#""violated-policies":["per-user"]"#), "{denied:?}");
    assert_ne!(field(&denied, "retry-after"), "");
    assert_eq!(field(&http.get(&one, "/health", None).await, "ratelimit"), "", "not limited");
    // Asked to end while somebody waits for an answer: the answer comes, and then it ends well.
    let mut ending = two;
    let (answer, ()) = tokio::join!(http.get(&ending, "/slow/2000", None), async {
        // Once the health check is answered, the connection for the slow answer has been accepted as well.
        http.get(&ending, "/health", None).await;
        let told = Command::new("kill").args(["-TERM", &ending.id().to_string()]).status().unwrap();
        assert!(told.success());
    });
    assert_eq!(answer.body(), "done\n");
    drop(http);
    assert!(ending.ended_well(), "it says that it succeeded");
}

#[tokio::test]
async fn a_whole_service_on_actix_web() {
    let example = Example::start("actix_service", &[], 2);
    let http = Http::new();
    let first = http.get(&example, "/notes", Some("ann")).await;
    let policies = r#""per-ip";q=50;w=1;ratekeeper-burst=100, "per-user";q=5;w=60"#;
    assert_eq!((first.status().as_u16(), field(&first, "ratelimit-policy")), (200, policies));
    assert_eq!(http.statuses(&example, "/notes", Some("ann"), 5).await, [200, 200, 200, 200, 429]);
    let denied = http.get(&example, "/notes", Some("ann")).await;
    assert_eq!(field(&denied, "content-type"), "application/json");
    assert!(denied.body().starts_with(r#"{"error":"slow down","seconds":"#), "{denied:?}");
    let export = http.get(&example, "/export/12", Some("bob")).await;
    assert_eq!(export.body(), "12 of 12 pages\n");
    assert!(field(&export, "ratelimit").contains(r#""per-user";r=8;"#), "{export:?}");
    // As much as there is counts, because the work is done.
    let export = http.get(&example, "/export/12", Some("bob")).await;
    assert_eq!(export.body(), "8 of 12 pages\n");
    assert!(field(&export, "ratelimit").contains(r#""per-user";r=0;"#), "{export:?}");
}
