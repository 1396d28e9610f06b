//! The examples, started as anybody would start them, and asked over HTTP and gRPC.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/example.rs"]
mod example;

use example::Example;
use ratekeeper_testkit::servers::{Flavour, Server};
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[test]
fn axum_with_three_layers() {
    let example = Example::start("axum_layers", &[], 1);
    assert!(example.tries[0].contains("curl -i") && example.tries[0].contains("/reports/1"));
    let ann = "authorization: Bearer ann\r\n";
    for left in [1, 0] {
        let answer = example.ask("GET /reports/1", ann, "");
        assert_eq!(answer.status(), 200);
        let policies = r#""per-ip";q=50;w=1;ratekeeper-burst=100, "per-user";q=10;w=60, "reports";q=2;w=60"#;
        assert_eq!(answer.field("ratelimit-policy"), Some(policies));
        assert!(answer.field("ratelimit").unwrap().contains(&format!(r#""reports";r={left};"#)));
    }
    let denied = example.ask("GET /reports/1", ann, "");
    assert_eq!(denied.status(), 429);
    assert!(denied.field("retry-after").is_some() && denied.0.contains(r#""violated-policies":["reports"]"#));
    assert_eq!(example.ask("GET /reports/1", "authorization: Bearer bob\r\n", "").status(), 200);
    // Seven of ten are left for Ann, wherever it is not expensive.
    let statuses: Vec<u16> = (0..8).map(|_| example.ask("GET /", ann, "").status()).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 429]);
    // Nobody in particular: by address alone.
    let anonymous = example.ask("GET /", "", "");
    assert_eq!(anonymous.field("ratelimit-policy"), Some(r#""per-ip";q=50;w=1;ratekeeper-burst=100"#));
}

#[test]
fn axum_on_redis_with_overrides() {
    let redis = Server::start(Flavour::Redis7);
    let url = redis.url();
    let variables = [("REDIS_URL", url.as_str()), ("REDIS_DEADLINE_MS", "20000")];
    let [one, two] = [(); 2].map(|()| Example::start("axum_redis", &variables, 2));
    assert!(one.tries[1].contains("curl -X PUT"));
    let search = |example: &Example, project| {
        example.ask("GET /datasets/7/search", &format!("x-project: {project}\r\n"), "")
    };
    // Two instances, one counter.
    let statuses = [&one, &two, &one, &two].map(|example| search(example, "1/2").status());
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(one.ask("PUT /limits/1/2/1000", "", "").status(), 200);
    let answer = search(&two, "1/2");
    assert_eq!((answer.status(), answer.field("ratelimit-policy")), (200, Some(r#""requests";q=1000;w=60"#)));
    assert!(answer.field("ratelimit").unwrap().starts_with(r#""requests";r=996;"#));
    let other = search(&two, "1/3");
    assert_eq!(other.field("ratelimit-policy"), Some(r#""requests";q=3;w=60"#));
    assert_eq!(one.ask("PUT /limits/1/2/0", "", "").status(), 200);
    assert_eq!(search(&two, "1/2").status(), 429, "0 is a limit, too");
    assert_eq!(one.ask("PUT /limits/1/2/1000000001", "", "").status(), 400);
    assert_eq!(one.ask("GET /datasets/7/search", "", "").field("ratelimit"), None, "nobody is not limited");
}

#[tokio::test]
async fn grpc_with_tonic() {
    let example = Example::start("tonic", &[], 2);
    assert!(example.tries[0].contains("grpc_health_probe"));
    let channel =
        Channel::from_shared(format!("http://{}", example.address)).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    for left in [2, 1, 0] {
        let answer = client.check(HealthCheckRequest::default()).await.unwrap();
        let told = answer.metadata().get("ratelimit").unwrap().to_str().unwrap();
        assert!(told.starts_with(&format!(r#""per-ip";r={};"#, 97 + left)), "{told}");
        assert!(told.contains(&format!(r#", "checks";r={left};"#)), "{told}");
    }
    let status = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("The policy 'checks' has no room"), "{}", status.message());
    assert!(
        status.metadata().contains_key("ratelimit-policy") && status.metadata().contains_key("retry-after")
    );
    // Another method of the same service has no limit, and streams.
    let mut watched = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert!(watched.message().await.unwrap().is_some());
}
