//! The files of the dashboard, as they are in the binary.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::serve::api::Answer;

/// What a page may do: ask this server, and nothing else. No script or style within a page is run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file.
pub(in crate::serve) struct File {
    content_type: &'static str,
    text: &'static str,
}

impl File {
    pub(in crate::serve) fn answer(&self) -> Answer {
        let fields = [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            // Another version of the server has other files under the same names.
            ("cache-control", "no-cache"),
        ];
        let fields = fields.map(|(name, value)| (name, Cow::Borrowed(value)));
        Answer { fields: SmallVec::from_buf(fields), ..Answer::of(self.content_type, self.text) }
    }
}

const SCRIPT_TYPE: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($file:literal) => {
        File { content_type: SCRIPT_TYPE, text: include_str!(concat!("../../../assets/dashboard/", $file)) }
    };
}

pub(in crate::serve) const HTML: File = File {
    content_type: "text/html; charset=utf-8",
    text: include_str!("../../../assets/dashboard/index.html"),
};
pub(in crate::serve) const STYLE: File = File {
    content_type: "text/css; charset=utf-8",
    text: include_str!("../../../assets/dashboard/style.css"),
};
pub(in crate::serve) const MAIN: File = script!("main.js");
pub(in crate::serve) const SERVER: File = script!("server.js");
pub(in crate::serve) const DOM: File = script!("dom.js");
pub(in crate::serve) const CHART: File = script!("chart.js");
pub(in crate::serve) const VIEW: File = script!("view.js");
pub(in crate::serve) const ACTIONS: File = script!("actions.js");
