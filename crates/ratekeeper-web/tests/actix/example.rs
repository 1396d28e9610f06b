//! The example, started as anybody would start it, and asked over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The example while it runs.
struct Example {
    process: Child,
    address: String,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Example {
    fn start() -> Self {
        // Cargo puts examples beside the folder of the tests.
        let test = std::env::current_exe().unwrap();
        let path = test.parent().unwrap().parent().unwrap().join("examples/actix");
        assert!(path.is_file(), "run cargo test without --test, which builds examples, too");
        let mut command = Command::new(path);
        command.arg("127.0.0.1:0").env_remove("RATE_LIMIT_MODE").stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.next().unwrap().strip_prefix("listening on http://").unwrap().to_owned();
        assert!(lines.next().unwrap().contains("curl -i"));
        Self { process, address }
    }

    /// The status and all of the answer, fields in lower case.
    fn ask(&self, request: &str, project: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nx-project: {project}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
    }
}

#[test]
fn projects_have_limits_of_requests_and_of_elements() {
    let example = Example::start();
    let search = |project| example.ask("GET /datasets/7/search", project, "");
    for left in (0..5).rev() {
        let (status, text) = search("1/2");
        assert_eq!(status, 200);
        assert!(text.contains("\r\nratelimit-policy: \"requests\";q=5;w=60\r\n"), "{text}");
        assert!(text.contains(&format!("\r\nratelimit: \"requests\";r={left};t=")), "{text}");
    }
    let (status, text) = search("1/2");
    assert_eq!(status, 429);
    assert!(
        text.contains("\r\nretry-after: ") && text.contains(r#""violated-policies":["requests"]"#),
        "{text}"
    );
    assert_eq!(search("1/3").0, 200);
    // Nobody in particular is not limited.
    let (status, text) = search("");
    assert!(status == 200 && !text.contains("ratelimit"), "{text}");

    let batch =
        |count| example.ask("POST /geocode/batch", "1/2", &format!("[{}]", vec!["\"x\""; count].join(",")));
    let (status, text) = batch(80);
    assert_eq!(status, 200);
    let policies = "\r\nratelimit-policy: \"requests\";q=5;w=60, \"elements\";q=100;w=60\r\n";
    assert!(text.contains(policies) && text.contains("\"elements\";r=20;t="), "{text}");
    let (status, text) = batch(21);
    assert!(status == 429 && text.contains(policies) && text.contains(r#":["elements"]"#), "{text}");
    assert_eq!(batch(20).0, 200);
}
