//! Requests that nobody should send.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, web};
use ratekeeper_web::actix::RateLimit;

use crate::support::{field, fields, gate};

const BY_HEADER: &str =
    "[[rules]]\nname = 'h'\nkeys = 'key:{header.x-api-key}'\nquota = '5/60s fixed_window'\n";

macro_rules! app {
    ($rules:expr) => {{
        let app = App::new().wrap(RateLimit::new(gate($rules)));
        init_service(app.default_service(web::to(|| async { "ok" }))).await
    }};
}

fn with(name: &'static str, value: &[u8]) -> TestRequest {
    let name = HeaderName::from_static(name);
    TestRequest::get().uri("/").insert_header((name, HeaderValue::from_bytes(value).unwrap()))
}

#[actix_web::test]
async fn header_values_of_any_length_count_like_others() {
    let app = app!(BY_HEADER);
    let (long, other) = ("k".repeat(100_000), format!("{}!", "k".repeat(99_999)));
    for (value, left) in [("short", 4), (&long, 4), (&long, 3), (&other, 4), ("short", 3)] {
        let response = call_service(&app, with("x-api-key", value.as_bytes()).to_request()).await;
        assert_eq!(field(&response, "ratelimit"), Some(format!(r#""h";r={left};t=60"#).as_str()));
    }
}

#[actix_web::test]
async fn headers_that_are_not_text_are_no_key() {
    let app = app!(BY_HEADER);
    for value in [&b"\xff\xfe"[..], b"\xc3\x28", b"ok\x80"] {
        let response = call_service(&app, with("x-api-key", value).to_request()).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, 0));
    }
}

#[actix_web::test]
async fn addresses_that_are_lies_are_no_trouble() {
    let rules = "trusted_proxies = ['192.0.2.0/24']\n[[rules]]\nname = 'ip'\nkeys = 'ip:{client.ip}'\n\
                 quota = '5/60s fixed_window'\n";
    let app = app!(rules);
    let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 5));
    let long = "1.2.3.4, ".repeat(10_000);
    for value in ["", ",,,,", "unknown", "[::1", "999.1.1.1", "1.2.3.4:99999999", &long, "\u{1f980}"] {
        let request = with("x-forwarded-for", value.as_bytes()).peer_addr(peer);
        let response = call_service(&app, request.to_request()).await;
        assert!(response.status().is_success() || response.status() == 429, "{value}");
    }
    let response =
        call_service(&app, with("x-forwarded-for", b"198.51.100.7").peer_addr(peer).to_request()).await;
    assert_eq!(field(&response, "ratelimit"), Some(r#""ip";r=4;t=60"#));
}

#[actix_web::test]
async fn many_lines_of_one_header_and_odd_queries_are_looked_at_in_bounded_time() {
    let rules =
        "[[rules]]\nname = 'c'\nkeys = 'c:{cookie.session}:{query.q}'\nquota = '5/60s fixed_window'\n";
    let app = app!(rules);
    let mut request = TestRequest::get().uri(&format!("/?{}q=1&q=%ff&%ff=%00", "a=b&".repeat(5_000)));
    for number in 0..5_000 {
        request = request.append_header(("cookie", format!("a{number}=b")));
    }
    request = request.append_header(("cookie", "session=me"));
    let response = call_service(&app, request.to_request()).await;
    assert_eq!(field(&response, "ratelimit"), Some(r#""c";r=4;t=60"#));
}

/// What a client or a handler claims about limits is replaced by what is true.
#[actix_web::test]
async fn fields_that_others_made_up_are_replaced() {
    let app = App::new().wrap(RateLimit::new(gate(crate::support::TWO)));
    let lies =
        || async { actix_web::HttpResponse::Ok().append_header(("RateLimit", "\"all\";r=999")).finish() };
    let app = init_service(app.default_service(web::to(lies))).await;
    let response = call_service(&app, with("ratelimit", b"\"all\";r=999").to_request()).await;
    let told: Vec<_> = response.headers().get_all("ratelimit").collect();
    assert_eq!(told, [&HeaderValue::from_static(r#""all";r=1;t=60"#)]);
}

/// actix decodes paths before it routes them: another spelling is no other path.
#[actix_web::test]
async fn a_path_that_is_spelled_otherwise_is_the_same_path() {
    let rules = [
        "keys = 'path:{path}'",
        "keys = 'all'\nwhen = \"route == '/hook'\"",
        "keys = 'all'\nwhen = \"path == '/hook'\"",
    ];
    for rule in rules {
        let rules = format!("[[rules]]\nname = 'p'\n{rule}\nquota = '1/60s fixed_window'\n");
        let app =
            App::new().wrap(RateLimit::new(gate(&rules))).route("/hook", web::get().to(|| async { "ok" }));
        let app = init_service(app).await;
        for (path, status) in
            [("/hook", 200), ("/hook", 429), ("/%68ook", 429), ("/h%6fok", 429), ("/hoo%6B", 429)]
        {
            let response = call_service(&app, TestRequest::get().uri(path).to_request()).await;
            assert_eq!(response.status(), status, "{path} under {rule}");
        }
    }
}
