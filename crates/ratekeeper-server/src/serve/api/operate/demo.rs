//! The load that the dashboard offers, where the settings allow it.

use serde::Deserialize;

use super::read;
use crate::serve::api::object::only_objects;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::Text;
use crate::serve::api::{Answer, Api, answered};

/// `/v1/demo`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct DemoCall<'a> {
    #[serde(borrow)]
    load: Text<'a>,
}

only_objects!(DemoCall);

impl Api {
    /// `POST /v1/demo`: starts the load that the dashboard offers, or stops it. For operators of servers that were
    /// started with `--demo-load`.
    pub fn demo(&self, body: &[u8]) -> Answer {
        let told = || {
            let call: DemoCall<'_> = read(body)?;
            let demo = self.shown.demo.get().ok_or_else(|| {
                Problem::new(404, "there is no such load: the settings of this server have no demo-load")
            })?;
            match call.load.as_str() {
                "start" => demo.start(),
                "stop" => demo.stop(),
                _ => return Err(Problem::wrong("load", "start or stop")),
            }
            Ok(Answer::json(&demo.told()))
        };
        answered(told())
    }
}
