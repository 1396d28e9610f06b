//! `ratekeeper doctor`, in front of servers that are well and servers that are not.

use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ratekeeper_testkit::servers::{BlackHole, Cluster, Flavour, SERVICE, SLOTS, Server, SlowWay};
use serde_json::Value;

use crate::served::STORE_DEADLINE;
use crate::{command, ratekeeper, text};

/// As doctor wants it.
const GOOD: [(&str, &str); 2] = [("appendonly", "yes"), ("maxmemory", "100mb")];
/// As `docs/redis.md` has it.
const USER: &str = "on >s3cret resetchannels ~rk:* ~ratelimit:* ~ratelimit_override:* ~ratelimit_org_override:* \
    +script|load +evalsha +eval +time +exists +get +mget +set +setrange +del +pexpire \
    +pttl +incrby +hmget +hgetall +llen +lindex +lset +rpush";

/// What was found.
struct Report {
    status: Option<i32>,
    json: Value,
}

impl Report {
    /// Of a doctor that gives the store time, whatever else the machine does.
    fn of(arguments: &[&str]) -> Self {
        let patience: &[&str] = if arguments.contains(&"--timeout") { &[] } else { &["--timeout", "20000"] };
        Self::read(
            &patient()
                .args(["doctor", "--format", "json"])
                .args(patience)
                .args(arguments)
                .output()
                .expect("it runs"),
        )
    }

    fn read(output: &Output) -> Self {
        assert_eq!(text(&output.stderr), "");
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {}", text(&output.stdout));
        });
        Self { status: output.status.code(), json }
    }

    fn findings(&self) -> &[Value] {
        self.json["findings"].as_array().expect("a list")
    }

    /// A line for each finding that is not good.
    fn amiss(&self) -> String {
        let amiss = self.findings().iter().filter(|finding| finding["severity"] != "ok");
        let line = |finding: &Value| {
            let part = |name: &str| finding[name].as_str().unwrap_or("-").to_owned();
            format!("{} {}: {} ({})\n", part("severity"), part("check"), part("found"), part("fix"))
        };
        amiss.map(line).collect()
    }

    #[track_caller]
    fn is(&self, check: &str, severity: &str, found: &str, fix: &str) {
        let holds = |finding: &&Value| {
            let part = |name: &str| finding[name].as_str().unwrap_or_default();
            part("check") == check
                && part("severity") == severity
                && part("found").contains(found)
                && part("fix").contains(fix)
        };
        assert!(
            self.findings().iter().any(|finding| holds(&finding)),
            "no {severity} {check} in {:#}",
            self.json
        );
    }
}

/// Holds latencies against a deadline that a busy machine keeps.
fn patient() -> Command {
    let mut command = command();
    command.env(STORE_DEADLINE.0, STORE_DEADLINE.1);
    command
}

fn look(server: &Server) -> Report {
    Report::of(&["--store", &server.url()])
}

#[test]
fn a_good_server_has_nothing_to_fix() {
    for flavour in Flavour::ALL {
        let server = Server::start_with(flavour, &GOOD);
        let report = look(&server);
        assert_eq!(report.status, Some(0), "{flavour}: {}", report.amiss());
        assert_eq!(report.json["ok"], true);
        let checks: Vec<&str> =
            report.findings().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
        let all = [
            "connection",
            "version",
            "role",
            "eviction",
            "memory",
            "persistence",
            "clock",
            "access",
            "script",
            "decision",
            "latency",
        ];
        assert_eq!(checks, all, "{flavour}");
        assert_eq!(report.amiss(), "", "{flavour}");
        assert_eq!(server.cli(&["DBSIZE"]), "0", "{flavour}: it leaves nothing behind");
    }
}

#[test]
fn each_of_several_servers_is_looked_at_and_named() {
    let good = Server::start_with(Flavour::Redis7, &GOOD);
    let mut down = Server::start_with(Flavour::Redis7, &GOOD);
    down.kill();
    let url = format!("{},{}", good.url(), down.url());
    let report = Report::of(&["--store", &url, "--timeout", "1000"]);
    assert_eq!(report.status, Some(1), "{}", report.amiss());
    report.is("servers", "note", "2 of them", "");
    let of = |server: &Server| -> Vec<&Value> {
        report.findings().iter().filter(|finding| finding["server"] == server.url()).collect()
    };
    assert!(
        of(&good).len() > 8 && of(&good).iter().all(|finding| finding["severity"] != "error"),
        "{:#}",
        report.json
    );
    let [only] = of(&down)[..] else { panic!("{:#}", report.json) };
    assert_eq!((&only["check"], &only["severity"]), (&"connection".into(), &"error".into()));
    let text = text(&command().args(["doctor", "--store", &url]).output().expect("it runs").stdout);
    assert!(
        text.contains(&format!("{}: ", good.url())) && text.contains(&format!("{}: ", down.url())),
        "{text}"
    );
}

#[test]
fn sentinels_are_asked_one_by_one() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let (server, other) = (Server::start_with(flavour, &GOOD), Server::start_with(flavour, &GOOD));
        let (sentinel, stranger) = (server.sentinel(1, &[]), other.sentinel(1, &[]));
        let at = |ports: &[u16], service: &str| {
            let places: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            let url = format!("redis+sentinel://:s3cret@{}/{service}", places.join(","));
            let report = Report::of(&["--timeout", "10000", "--store", &url]);
            assert!(!report.json.to_string().contains("s3cret"), "{:#}", report.json);
            report
        };
        let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:1/{SERVICE}", sentinel.port());
        let report = Report::of(&["--store", &url]);
        let says = format!("1 of 2 say 127.0.0.1:{}", server.port());
        report.is("sentinels", "ok", &says, "");
        report.is("sentinels", "warning", "127.0.0.1:1 is not there: nobody listens", "start it");
        report.is("connection", "ok", &format!("127.0.0.1:{} lets us in", server.port()), "");
        report.is("decision", "ok", "", "");
        assert_eq!(report.status, Some(0), "{flavour}: {}", report.amiss());

        let known = format!("knows no service \"other\", but \"{SERVICE}\"");
        let report = at(&[sentinel.port()], "other");
        report.is("sentinels", "error", &known, "correct the sentinels and the name of the service");
        assert_eq!(report.status, Some(1));
        at(&[server.port()], SERVICE).is("sentinels", "error", "is no sentinel but a server", "correct");
        at(&[sentinel.port(), stranger.port()], SERVICE).is(
            "sentinels",
            "error",
            "the sentinels disagree: ",
            "correct the sentinels",
        );
        let report = at(&[sentinel.port()], SERVICE);
        report.is("sentinels", "note", "the URL names one", "name all of them");
        report.is("connection", "error", &format!("127.0.0.1:{}: ", server.port()), "");
    }
}

#[test]
fn a_round_trip_is_held_against_the_deadline_of_the_services() {
    let server = Server::start_with(Flavour::Redis7, &GOOD);
    let way = SlowWay::to(server.port(), Duration::from_millis(60));
    let with = |deadline: &str| Report::of(&["--store", &way.url(), "--store-deadline", deadline]);
    let report = with("25");
    report.is(
        "latency",
        "error",
        "the deadline is 25 ms, so most checks would miss it",
        "--store-deadline MS",
    );
    assert_eq!(report.status, Some(1), "{}", report.amiss());
    let report = with("20000");
    report.is("latency", "ok", "ms for a round trip", "");
    assert_eq!(report.status, Some(0), "{}", report.amiss());
}

#[test]
fn people_read_lines_with_what_to_do() {
    let server =
        Server::start_with(Flavour::Redis7, &[("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")]);
    let output = patient().args(["doctor", "--timeout", "20000", "--store", &server.url()]).output();
    let output = output.expect("it runs");
    let (shown, words) = (text(&output.stdout), text(&output.stderr));
    let lines = "
error    eviction     allkeys-lru: an evicted counter is a fresh limit
                 fix: CONFIG SET maxmemory-policy noeviction, and the same in its configuration file
";
    assert!(shown.contains(lines), "{shown}");
    assert!(words.starts_with("\n1 to fix, "), "{words}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn counters_that_may_be_evicted_must_be_fixed() {
    for flavour in Flavour::ALL {
        for policy in ["allkeys-lru", "volatile-ttl"] {
            let server = Server::start_with(flavour, &[("maxmemory", "100mb"), ("maxmemory-policy", policy)]);
            let report = look(&server);
            report.is("eviction", "error", policy, "maxmemory-policy noeviction");
            assert_eq!((report.status, &report.json["ok"]), (Some(1), &Value::Bool(false)), "{flavour}");
            let _ = server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
            look(&server).is("eviction", "warning", "harmless without maxmemory", "noeviction");
            let _ = server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
            look(&server).is("eviction", "ok", "noeviction", "");
        }
    }
}

#[test]
fn what_a_restart_would_lose_is_told() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let report = look(&server);
        assert_eq!(report.status, Some(0), "{flavour}: {}", report.amiss());
        report.is(
            "persistence",
            "warning",
            "after a restart, overrides and switches are gone",
            "appendonly yes",
        );
        report.is("memory", "note", "without a bound", "maxmemory");
        let _ = server.cli(&["CONFIG", "SET", "save", "3600 1"]);
        look(&server).is("persistence", "ok", "snapshots", "");
    }
}

#[test]
fn a_server_without_memory_says_so() {
    for flavour in Flavour::ALL {
        let server = Server::start_with(flavour, &[("maxmemory", "1kb")]);
        let report = look(&server);
        report.is("memory", "warning", "of 1.00K used", "a larger maxmemory");
        report.is("decision", "error", "OOM", "more memory");
        assert_eq!(report.status, Some(1), "{flavour}");
    }
}

#[test]
fn a_user_that_lacks_something_is_told_what() {
    for flavour in Flavour::ALL {
        let server = Server::start_with(flavour, &GOOD);
        let set = |more: &str| {
            let words: Vec<&str> = ["ACL", "SETUSER", "limits", "reset"]
                .into_iter()
                .chain(USER.split_whitespace())
                .chain(more.split_whitespace())
                .collect();
            let _ = server.cli(&words);
            Report::of(&["--store", &server.url().replace("://", "://limits:s3cret@")])
        };
        let report = set("");
        assert_eq!(report.status, Some(0), "{flavour}: {}", report.amiss());
        report.is("server", "note", "info", "a user that may use INFO");
        report.is("access", "ok", "user limits may do all that decisions take", "");
        report.is("access", "note", "only operators do", "+hset +hdel +hlen +scan +lrange +ltrim");
        report.is("decision", "ok", "", "");

        let cases = ["evalsha", "eval", "rpush", "set", "del", "exists", "incrby"];
        for command in cases {
            let report = set(&format!("-{command}"));
            report.is("access", "error", &format!("+{command}"), &format!("ACL SETUSER limits +{command}"));
            assert_eq!(report.status, Some(1), "{flavour} {command}");
        }
        set("-script").is("access", "error", "+script|load", "ACL SETUSER limits +script|load");
        let report = set("-evalsha -mget");
        report.is("access", "error", "+evalsha +mget", "ACL SETUSER limits +evalsha +mget");
        let report = set("resetkeys ~rk:*");
        report.is("access", "warning", "may not touch overrides", "~ratelimit_override:*");
        let report = set("resetkeys ~other:*");
        report.is("access", "error", "~rk:*", "ACL SETUSER limits ~rk:*");
        let _ = server.cli(&["ACL", "DELUSER", "limits"]);
        // A key that a user may not delete is gone in a minute.
        let keys = server.cli(&["KEYS", "*"]);
        for key in keys.split_whitespace() {
            assert_ne!(server.cli(&["PTTL", key]), "-1", "{flavour}: {key}");
        }
    }
}

#[test]
fn a_server_that_is_down_or_silent_is_told_so() {
    let mut server = Server::start(Flavour::Redis7);
    server.kill();
    let report = look(&server);
    report.is("connection", "error", "nobody listens there", "start the server");
    assert_eq!((report.status, report.findings().len()), (Some(1), 1));

    let hole = BlackHole::start();
    let report = Report::of(&["--store", &hole.url(), "--timeout", "200"]);
    report.is("connection", "error", "did not answer within 200ms", "firewall");
    assert_eq!(report.status, Some(1));
}

#[test]
fn the_password_may_be_in_a_file() {
    let server = Server::start_with(Flavour::Redis7, &[("requirepass", "s3cret")]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    let path = file.to_str().expect("a path");
    let look = |url: &str| Report::of(&["--store", url, "--store-password-file", path]);
    std::fs::write(&file, "s3cret\n").expect("write");
    let report = look(&server.url());
    assert_eq!(report.status, Some(0), "{}", report.amiss());
    report.is("connection", "ok", "lets us in", "");
    let mut said_by_variable = patient();
    said_by_variable.args(["doctor", "--format", "json", "--timeout", "20000", "--store", &server.url()]);
    said_by_variable.env("RATEKEEPER_STORE_PASSWORD_FILE", path);
    let report = Report::read(&said_by_variable.output().expect("it runs"));
    assert_eq!(report.status, Some(0), "{}", report.amiss());

    std::fs::write(&file, "wr0ng").expect("write");
    let report = look(&server.url());
    report.is("connection", "error", "does not accept user and password", "");
    assert!(!report.json.to_string().contains("wr0ng"));
    let report = look(&server.url().replace("://", "://:s3cret@"));
    assert!(
        report.json["error"].to_string().contains("a password in the URL and elsewhere"),
        "{:#}",
        report.json
    );
    std::fs::remove_file(&file).expect("remove");
    let report = look(&server.url());
    assert!(report.json["error"].to_string().contains("the password in "), "{:#}", report.json);
    assert_eq!(report.status, Some(2));
}

#[test]
fn a_wrong_password_is_told_and_never_shown() {
    for flavour in Flavour::ALL {
        let server = Server::start_with(flavour, &[("requirepass", "s3cret")]);
        let store = |user: &str| server.url().replace("://", &format!("://{user}@"));
        for url in [store(":wr0ng"), store("ann:wr0ng")] {
            let output = ratekeeper(&["doctor", "--timeout", "20000", "--store", &url]);
            let shown = text(&output.stdout) + &text(&output.stderr);
            assert!(shown.contains("does not accept user and password"), "{flavour}: {shown}");
            assert!(!shown.contains("wr0ng"), "{flavour}: {shown}");
            assert_eq!(output.status.code(), Some(1), "{flavour}");
        }
        look(&server).is("connection", "error", "wants a password", "RATEKEEPER_STORE");
        let mut said_by_variable = patient();
        said_by_variable.args(["doctor", "--format", "json", "--timeout", "20000"]);
        let output = said_by_variable.env("RATEKEEPER_STORE", store(":s3cret")).output();
        let report = Report::read(&output.expect("it runs"));
        assert_eq!(report.status, Some(0), "{flavour}: {}", report.amiss());
        assert!(!report.json.to_string().contains("s3cret"), "{flavour}");
    }
}

#[test]
fn a_replica_is_no_place_for_counters() {
    for flavour in Flavour::ALL {
        let primary = Server::start(flavour);
        let port = primary.port().to_string();
        let replica = Server::start_with(flavour, &[("replicaof", &format!("127.0.0.1 {port}"))]);
        let end = Instant::now() + Duration::from_secs(30);
        while replica.info("master_link_status").as_deref() != Some("up") {
            assert!(Instant::now() < end, "{flavour}: the replica does not follow");
            sleep(Duration::from_millis(10));
        }
        let report = look(&replica);
        report.is("role", "error", "a replica", &format!("connect to its primary, 127.0.0.1:{port}"));
        report.is("decision", "error", "READONLY", "connect to the primary");
        report.is("access", "note", "not known of +hset +setrange +rpush", "run doctor again");
        assert_eq!(report.status, Some(1), "{flavour}");
        look(&primary).is("role", "ok", "primary, replicas: 1", "");
    }
}

#[test]
fn a_cluster_is_refused_before_keys_are_scattered() {
    let server = Server::start_with(Flavour::Redis7, &[("cluster-enabled", "yes")]);
    let report = look(&server);
    report.is("cluster", "error", "a node of a cluster", "redis+cluster://HOST:PORT,HOST:PORT");
    assert_eq!(report.status, Some(1));
}

#[test]
fn every_node_of_a_cluster_is_looked_at() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let (cluster, alone) = (Cluster::start(flavour), Server::start(flavour));
        let report = Report::of(&["--store", &cluster.url()]);
        report.is("cluster", "ok", "all 16384 slots are on 3 nodes", "");
        for node in &cluster.nodes[..3] {
            report.is("connection", "ok", &format!("127.0.0.1:{}: ", node.port()), "");
            report.is("access", "ok", &format!("127.0.0.1:{}: user default may do all", node.port()), "");
        }
        report.is("decision", "ok", "in every kind of counter", "");
        assert_eq!(report.status, Some(0), "{flavour}: {}", report.amiss());

        let wrong = format!("{},127.0.0.1:{},127.0.0.1:1", cluster.url(), alone.port());
        let report = Report::of(&["--store", &wrong]);
        report.is(
            "cluster",
            "error",
            &format!("127.0.0.1:{}: it is a server by itself", alone.port()),
            "take it out",
        );
        report.is("cluster", "warning", "127.0.0.1:1 is not there", "correct it in the URL");
        assert_eq!(report.status, Some(1), "{flavour}");

        cluster.uncover(0, SLOTS / 2 - 1);
        let report = Report::of(&["--store", &cluster.url()]);
        report.is("cluster", "error", "8192 of 16384 slots are on a node", "redis-cli --cluster check");
        assert_eq!(report.status, Some(1), "{flavour}");
    }
}

#[test]
fn certificates_are_checked() {
    let server = Server::start_tls(Flavour::Redis7);
    let ca = server.ca_file();
    let report = Report::of(&["--store", &server.tls_url(), "--store-ca", ca.to_str().expect("a path")]);
    assert_eq!(report.status, Some(0), "{}", report.amiss());
    let report = Report::of(&["--store", &server.tls_url()]);
    report.is("connection", "error", "certificate", "");
    assert_eq!(report.status, Some(1));
    let output = ratekeeper(&["doctor", "--store", &server.tls_url(), "--store-ca", "/nowhere.pem"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("hint: it is a file with certificates in PEM form"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn memory_needs_nothing() {
    for arguments in [&[][..], &["--store", "memory"]] {
        let report = Report::of(arguments);
        report.is("store", "note", "limits hold within one process", "--store redis://");
        assert_eq!((report.status, report.findings().len()), (Some(0), 1));
    }
}

#[test]
fn a_policy_is_looked_at_together_with_its_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start_with(Flavour::Valkey9, &GOOD);
    let policy = |service: &str, store: &str, quota: &str| {
        format!(
            "service = '{service}'\nstore = '{store}'\n[[rules]]\nname = 'r'\nkeys = 'all'\nquota = '{quota}'\n"
        )
    };
    let file = folder.path().join("a.toml");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a file");
    write("a.toml", policy("a", &server.url(), "1/s"));
    let report = Report::of(&["--policy", file.to_str().expect("a path")]);
    report.is("policy", "ok", "service a, rules: 1", "");
    report.is("version", "ok", "Valkey 9.", "");
    assert_eq!(report.status, Some(0), "{}", report.amiss());

    write("b.toml", policy("b", "memory", "1/s"));
    let both = folder.path().to_str().expect("a path");
    let report = Report::of(&["--policy", both]);
    report.is("policy", "note", "name 2 stores", "--store");

    write("a.toml", policy("a", "memory", "1000000001/s"));
    let report = Report::of(&["--policy", both]);
    report.is("policy", "error", "a.toml:6:", "expected a whole number from 0");
    assert_eq!(report.status, Some(1));
    Report::of(&["--policy", "/nowhere.toml"]).is("policy", "error", "no such file", "");
}

#[test]
fn what_is_beside_a_policy_that_is_not_there_is_named_if_it_may_be_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["good.toml", "package.json"] {
        std::fs::write(folder.path().join(name), "").expect("a file");
    }
    let fix = |name: &str| {
        let path = folder.path().join(name);
        let report = Report::of(&["--policy", path.to_str().expect("a path")]);
        let finding = report.findings().iter().find(|finding| finding["check"] == "policy");
        finding.expect("a finding")["fix"].clone()
    };
    assert_eq!(fix("goood.toml"), "beside it are good.toml");
    assert_eq!(fix("nope"), Value::Null);
}

#[test]
fn what_cannot_be_looked_at_is_told_to_programs_too() {
    for arguments in [&["--store", "bogus"][..], &["--store", "rediss://a", "--store-ca", "/dev/zero"]] {
        let output = ratekeeper(&[&["doctor", "--format", "json"], arguments].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), String::new()));
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let (error, hint) = (told["error"].as_str().expect("a reason"), told["hint"].as_str());
        assert!(error.starts_with("--store") && hint.is_some(), "{told}");
        assert!(!error.contains("store: store"), "{told}");
    }
}
