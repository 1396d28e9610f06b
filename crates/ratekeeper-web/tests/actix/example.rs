//! The example, started as anybody would start it, and asked over HTTP.

#[path = "../common/example.rs"]
mod started;

use started::{Answer, Example};

fn ask(example: &Example, request: &str, project: &str, body: &str) -> Answer {
    let fields = format!("x-project: {project}\r\ncontent-type: application/json\r\n");
    example.ask(request, &fields, body)
}

#[test]
fn projects_have_limits_of_requests_and_of_elements() {
    let example = Example::start("actix", &[], 1);
    assert!(example.tries[0].contains("curl -i"));
    let search = |project| ask(&example, "GET /datasets/7/search", project, "");
    for left in (0..5).rev() {
        let answer = search("1/2");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.field("ratelimit-policy"), Some("\"requests\";q=5;w=60"));
        let told = answer.field("ratelimit").unwrap();
        assert!(told.starts_with(&format!("\"requests\";r={left};t=")), "{told}");
    }
    let denied = search("1/2");
    assert_eq!(denied.status(), 429);
    assert!(denied.field("retry-after").is_some(), "{}", denied.0);
    assert!(denied.0.contains(r#""violated-policies":["requests"]"#), "{}", denied.0);
    assert_eq!(search("1/3").status(), 200);
    let nobody = search("");
    assert_eq!((nobody.status(), nobody.field("ratelimit")), (200, None), "nobody is not limited");

    let batch = |count| {
        let body = format!("[{}]", vec!["\"x\""; count].join(","));
        ask(&example, "POST /geocode/batch", "1/2", &body)
    };
    let policies = Some("\"requests\";q=5;w=60, \"elements\";q=100;w=60");
    let answer = batch(80);
    assert_eq!((answer.status(), answer.field("ratelimit-policy")), (200, policies));
    assert!(answer.field("ratelimit").unwrap().contains("\"elements\";r=20;t="), "{}", answer.0);
    let denied = batch(21);
    assert_eq!((denied.status(), denied.field("ratelimit-policy")), (429, policies));
    assert!(denied.0.contains(r#":["elements"]"#), "{}", denied.0);
    assert_eq!(batch(20).status(), 200);
}
