//! Metrics as Prometheus reads them.

use prometheus_client::registry::Registry;
use ratekeeper::metrics::{Families, Family};

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics as text.
pub(crate) fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}
