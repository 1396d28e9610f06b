//! The examples of docs/http.md are what is really sent.

use ratekeeper_core::{Decision, Name, Origin, Outcome};
use ratekeeper_http::{
    Body, Denial, Draft, Field, HttpOptions, Legacy, MEMBERS_MAX, PARTITION_BYTES_MAX, Reset, Tally, field,
};

use crate::support::{NOW, Plan, decide, plan};

const DOCS: &str = include_str!("../../../../docs/http.md");

/// Two tiers and a limit on how many are under way.
fn plans() -> [Plan; 3] {
    let rule = Name::within("search", "per-user").unwrap();
    let tier = |tier, quota| Plan { name: Name::joined(rule, tier).unwrap(), ..plan("any", quota) };
    [tier("rps", "2/s burst 3"), tier("rpd", "1000/d fixed_window"), plan("slots", "8/30s concurrency")]
}

fn response(decision: &Decision, options: &HttpOptions) -> String {
    let told = Tally::of(decision).fields(options);
    match Denial::of(decision, options) {
        None => written("200 OK", told, ""),
        Some(denial) => {
            let status =
                if denial.status() == 429 { "429 Too Many Requests" } else { "503 Service Unavailable" };
            written(status, denial.fields().chain(told), &denial.body())
        }
    }
}

fn written(status: &str, fields: impl Iterator<Item = Field>, body: &str) -> String {
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}: {value}")).collect();
    let text = format!("HTTP/1.1 {status}\n{}\n\n{body}", fields.join("\n"));
    format!("```http\n{}\n```\n", text.trim_end())
}

fn shown(example: &str) {
    assert!(DOCS.contains(example), "docs/http.md lacks\n{example}");
}

#[test]
fn examples_are_real() {
    let (options, denied) = (HttpOptions::default(), decide(&plans(), 3));
    shown(&response(&decide(&plans(), 0), &options));
    shown(&response(&denied, &options));
    shown(&response(&Decision::without_store(Outcome::Deny, Origin::Outage, NOW), &options));
    shown(&response(&decide(&plans(), 0), &options.draft(Draft::Next)));
    let legacy = options.without_standard().legacy(Legacy::XRateLimit).legacy_reset(Reset::Epoch);
    shown(&response(&denied, &legacy.body(Body::Detail)));
    let grpc = Denial::of(&denied, &options).unwrap();
    shown(&written("200 OK", grpc.grpc_fields().chain(Tally::of(&denied).fields(&options)), ""));
}

#[test]
fn bounds_and_names_are_told() {
    shown(&format!("```text\n{}\n```\n", field::EXPOSE));
    assert!(DOCS.contains(&format!("{MEMBERS_MAX} policies")));
    assert!(DOCS.contains(&format!("{PARTITION_BYTES_MAX} bytes")));
    for method in [
        "draft",
        "without_standard",
        "legacy",
        "legacy_reset",
        "body",
        "outage_retry_after",
        "retry_after_spread",
    ] {
        assert!(DOCS.contains(&format!("| `{method}(")), "docs/http.md lacks {method}");
    }
}
