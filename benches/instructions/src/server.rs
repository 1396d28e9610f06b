//! The calls of the server, without sockets.

use std::sync::Arc;

use futures_util::FutureExt as _;
use ratekeeper::{MemoryStore, Store};
use ratekeeper_server::serve::api::Api;

use crate::{PLENTY, Result, Run, keys, of, policy};

/// `POST /v1/limit` with one charge: from the bytes of the call to those of the answer.
pub(super) fn limit(run: &Run) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let api = Api::new(policy::limiter(store)?);
    let call = |key: &String| {
        format!(r#"{{"charges": [{{"name": "per-user", "key": "{key}", "quota": "{PLENTY}"}}]}}"#)
    };
    let calls: Vec<String> = keys("user").iter().map(call).collect();
    run.count(|number| {
        let answer = api.limit(of(&calls, number).as_bytes()).now_or_never();
        answer.is_some_and(|answer| answer.status == 200 && !answer.body.is_empty())
    })
}
