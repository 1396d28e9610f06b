//! One spelling of a path: the table of `testdata/paths.toml`.

use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpRequest, web};
use ratekeeper::policy::Facts as _;
use ratekeeper_testkit::paths::spellings;
use ratekeeper_web::actix::RequestRef;

use crate::support::text;

#[actix_web::test]
async fn every_spelling_of_the_table_is_one_path() {
    let seen = |request: HttpRequest| async move { RequestRef::new(&request).path().unwrap().to_owned() };
    let app = init_service(App::new().default_service(web::to(seen))).await;
    for row in spellings() {
        let response = call_service(&app, TestRequest::get().uri(&row.sent).to_request()).await;
        assert_eq!(text(response).await, row.on_actix(), "{}", row.sent);
    }
}
