//! One spelling of a path: the table of `testdata/paths.toml`, and what a stranger tries.

use axum::Router;
use axum::extract::Path;
use axum::routing::get as on_get;
use http::StatusCode;
use ratekeeper::policy::Facts as _;
use ratekeeper_testkit::paths::spellings;
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::ready::PathLimit;
use ratekeeper_web::tower::RequestRef;
use tower::ServiceExt as _;

use super::{gate, get, store, text};

#[tokio::test]
async fn every_spelling_of_the_table_is_one_path() {
    for row in spellings() {
        let request = get(&row.sent);
        assert_eq!(RequestRef::of(&request).path(), Some(&*row.path), "{}", row.sent);
        let (parts, _) = request.into_parts();
        assert_eq!(RequestRef::new(&parts).path(), Some(&*row.path), "{}", row.sent);
    }
}

/// The route of a gRPC call is its path, in the same spelling.
#[test]
fn the_route_of_a_grpc_call_has_one_spelling() {
    for path in ["/shop.v1.Orders/Place", "/shop.v1.Orders/%50lace", "/shop%2Ev1.Orders/Plac%65"] {
        let request = http::Request::post(path).header("content-type", "application/grpc").body(()).unwrap();
        assert_eq!(RequestRef::of(&request).route(), Some("/shop.v1.Orders/Place"), "{path}");
    }
}

/// axum routes by the path as it was sent, and gives handlers what it decodes to.
#[tokio::test]
async fn another_spelling_has_no_counter_of_its_own() {
    let rules =
        |rule: &str| gate(&format!("[[rules]]\nname = 'p'\n{rule}\nquota = '1/60s fixed_window'\n")).0;
    let gates = [
        rules("keys = 'path:{path}'"),
        rules("keys = 'all'\nwhen = \"path == '/hooks/abc'\""),
        rules("keys = 'all'\nwhen = \"path.startsWith('/hooks/a')\""),
        PathLimit::new(1).gate(store().0).unwrap(),
    ];
    for gate in gates {
        let hook = on_get(|Path(name): Path<String>| async move { name });
        let app = Router::new().route("/hooks/{name}", hook).layer(rate_limit(gate));
        let first = app.clone().oneshot(get("/hooks/abc")).await.unwrap();
        assert_eq!((first.status(), text(first).await.as_str()), (StatusCode::OK, "abc"));
        for path in ["/hooks/abc", "/hooks/%61bc", "/hooks/a%62c", "/hooks/%61%62%63"] {
            let response = app.clone().oneshot(get(path)).await.unwrap();
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
        }
    }
}
