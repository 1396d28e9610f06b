//! Metrics and spans in the JSON encoding of OTLP: 64-bit numbers are text, ids are hex.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::Span;
use super::resource::Resource;
use crate::serve::metrics::{Family, Kind, Sample, Value};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u8 = 2;
/// `SPAN_KIND_SERVER`
const SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`
const ERROR: u8 = 2;
/// What a method that is not known is called.
pub(super) const OTHER_METHOD: &str = "_OTHER";

pub(super) fn metrics(from: &Resource, families: &[Family], started: SystemTime, now: SystemTime) -> Json {
    let metrics: Vec<Json> = families.iter().map(|family| metric(family, started, now)).collect();
    json!({ "resourceMetrics": [{
        "resource": from.json(),
        "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
    }] })
}

pub(super) fn traces(from: &Resource, spans: &[Span], dropped: u64) -> Json {
    let spans: Vec<Json> = spans.iter().map(span).collect();
    let mut scope = scope();
    if dropped > 0 {
        scope["attributes"] =
            json!([{ "key": "ratekeeper.spans_dropped", "value": { "intValue": dropped.to_string() } }]);
    }
    json!({ "resourceSpans": [{
        "resource": from.json(),
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

fn scope() -> Json {
    json!({ "name": "ratekeeper", "version": env!("CARGO_PKG_VERSION") })
}

pub(super) fn text(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn nanos(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn metric(family: &Family, started: SystemTime, now: SystemTime) -> Json {
    let points: Vec<Json> = family.samples.iter().map(|sample| point(sample, started, now)).collect();
    // UCUM: what is counted has no dimension.
    let unit = if family.name.ends_with("_seconds") { "s" } else { "1" };
    let mut metric = json!({ "name": family.name, "description": family.help, "unit": unit });
    match family.kind {
        Kind::Counter => {
            metric["sum"] =
                json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points });
        }
        Kind::Gauge => metric["gauge"] = json!({ "dataPoints": points }),
        Kind::Histogram => {
            metric["histogram"] = json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points });
        }
    }
    metric
}

fn point(sample: &Sample, started: SystemTime, now: SystemTime) -> Json {
    let attributes: Vec<Json> = sample.labels.iter().map(|(name, value)| text(name, value)).collect();
    let mut point = json!({
        "attributes": attributes,
        "startTimeUnixNano": nanos(started),
        "timeUnixNano": nanos(now),
    });
    match &sample.value {
        Value::Whole(value) => point["asInt"] = value.to_string().into(),
        Value::Buckets(sum, buckets) => {
            let ends = buckets.iter().map(|(end, _)| *end).filter(|end| end.is_finite());
            point["explicitBounds"] = ends.collect();
            point["bucketCounts"] = buckets.iter().map(|(_, count)| count.to_string()).collect();
            point["count"] = buckets.iter().map(|(_, count)| count).sum::<u64>().to_string().into();
            point["sum"] = (*sum).into();
        }
    }
    point
}

fn span(span: &Span) -> Json {
    let method = span.call.method;
    // Of what is nowhere, nothing is told: it is whatever somebody sent.
    let route = span.call.endpoint.call().map(|call| call.path);
    let mut name = if method == OTHER_METHOD { "HTTP".to_owned() } else { method.to_owned() };
    let status =
        json!({ "key": "http.response.status_code", "value": { "intValue": span.status.to_string() } });
    let mut attributes = vec![text("http.request.method", method), status];
    if let Some(route) = route {
        name = format!("{name} {route}");
        attributes.push(text("http.route", route));
    }
    let mut told = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": name,
        "kind": SERVER,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.start + span.took),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = format!("{parent:016x}").into();
    }
    if span.status >= 500 {
        told["status"] = json!({ "code": ERROR });
    }
    told
}
