//! Names as operators may choose them: nothing gets out of its quotes.

use ratekeeper_core::{Charge, Charges, Key, Labels, Model, NAME_BYTES_MAX, Name, Quota, RawName};
use ratekeeper_http::{Denial, HttpOptions, Tally};

use crate::support::{NOW, Plan, by_name, decide, denied_body, members, plan};

#[test]
fn hostile_names_stay_names() {
    let quotes = "\"".repeat(NAME_BYTES_MAX);
    let slashes = "\\".repeat(NAME_BYTES_MAX - 1) + "\"";
    let printable: String = (' '..='~').collect();
    let names = [
        quotes.as_str(),
        &slashes,
        &printable,
        r#"";r=999, "x"#,
        r#"","violated-policies":["y"]}"#,
        " ",
        "%41",
    ];
    let plans: Vec<Plan> = names.iter().map(|name| plan(name, "1/min")).collect();
    let (options, decision) = (HttpOptions::default(), decide(&plans, 1));
    for value in by_name(Tally::of(&decision).fields(&options)).values() {
        let told: Vec<String> = members(value).into_iter().map(|told| told.name).collect();
        assert_eq!(told, names);
    }
    assert_eq!(denied_body(&decision, &options)["violated-policies"], serde_json::json!(names));
    for name in names {
        let decision = decide(&[plan(name, "1/min")], 1);
        let detail = format!(
            "The policy '{name}' has no room for this request; the same request passes in 60 seconds."
        );
        assert_eq!(denied_body(&decision, &options)["detail"], detail);
        let grpc = by_name(Denial::of(&decision, &options).unwrap().grpc_fields());
        assert_eq!(grpc["grpc-message"], detail.replace('%', "%25"));
    }
}

#[test]
fn the_service_is_not_told() {
    let rule = Name::within("search", "per-user").unwrap();
    let tiers = [("rps", "1/s"), ("rpd", "1000/d")];
    let plans =
        tiers.map(|(tier, quota)| Plan { name: Name::joined(rule, tier).unwrap(), ..plan("any", quota) });
    let fields = by_name(Tally::of(&decide(&plans, 1)).fields(&HttpOptions::default()));
    assert_eq!(fields["ratelimit-policy"], r#""per-user.rps";q=1;w=1, "per-user.rpd";q=1000;w=86400"#);
}

#[test]
fn raw_charges_have_the_names_of_their_caller() {
    // The first two differ in nothing but their names; the third is the first for another key.
    let names = ["calls", "tokens", "calls"];
    let raw = names.map(|name| RawName::within("/raw", name).unwrap());
    let (quota, mut charges, mut model) =
        ("1/min".parse::<Quota>().unwrap(), Charges::new(), Model::default());
    for ((name, subject), index) in raw.iter().zip(["ann", "ann", "bob"]).zip(0..) {
        charges.push(Charge::new(Key::raw(name, subject).unwrap(), &quota).at_index(index)).unwrap();
    }
    let check = charges.check().unwrap();
    assert!(model.check(&check, NOW).unwrap().is_allowed());
    let (decision, labels, options) =
        (model.check(&check, NOW).unwrap(), Labels(&names), HttpOptions::default());
    let fields = by_name(Tally::labelled(&decision, labels).fields(&options));
    assert_eq!(fields["ratelimit-policy"], r#""calls";q=1;w=60, "tokens";q=1;w=60"#);
    assert_eq!(fields["ratelimit"], r#""calls";r=0;t=60, "tokens";r=0;t=60"#);
    let denial = Denial::of(&decision, &options).expect("a denial").labelled(labels);
    let body: serde_json::Value = serde_json::from_str(&denial.body()).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["calls", "tokens"]));
    assert!(denial.grpc_message().starts_with("The policy 'calls' has no room"), "{}", denial.grpc_message());
    let unnamed = by_name(Tally::of(&decision).fields(&options));
    assert_eq!(unnamed["ratelimit"], r#""limit";r=0;t=60"#, "without labels they are one policy");
}
