//! The files of `deploy`, held against the binary that they start.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ratekeeper::policy::{Entry, Format, Node, Value as NodeValue};
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::Value;

use crate::served::{STORE_DEADLINE, Served};
use crate::{command, ratekeeper, text};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// The documents of a YAML file.
fn yaml(name: &str) -> Vec<Value> {
    let text = read(name);
    let documents = text.split("\n---\n").map(|document| {
        let node = Node::parse(name, Format::Yaml, document.as_bytes());
        json(node.unwrap_or_else(|problems| panic!("deploy/{name}: {problems}")))
    });
    documents.collect()
}

fn json(node: Node) -> Value {
    match node.value {
        NodeValue::Null => Value::Null,
        NodeValue::Bool(truth) => truth.into(),
        NodeValue::Integer(number) => number.into(),
        NodeValue::Float(number) => number.into(),
        NodeValue::Text(text) | NodeValue::Date(text) => text.into(),
        NodeValue::List(nodes) => nodes.into_iter().map(json).collect(),
        NodeValue::Table(entries) => {
            entries.into_iter().map(|Entry { key, node, .. }| (key, json(node))).collect()
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().unwrap_or_else(|| panic!("a list: {list}"));
    items.iter().map(|item| item.as_str().expect("a text").to_owned()).collect()
}

/// Asserts that `serve` knows these arguments and variables.
#[track_caller]
fn known(arguments: &[String], variables: &[String]) {
    let help = text(&ratekeeper(&["serve", "--help"]).stdout);
    let words: Vec<&str> = help.split_whitespace().collect();
    let flags: BTreeSet<&str> = words.iter().copied().filter(|word| word.starts_with("--")).collect();
    let named = words.windows(2).filter(|pair| pair[0] == "[env:");
    let names: BTreeSet<&str> = named.map(|pair| pair[1].trim_end_matches([']', '='])).collect();
    assert!(flags.len() > 10 && names.len() > 10, "{flags:?} {names:?}");
    assert_eq!(arguments[0], "serve");
    for flag in arguments.iter().filter(|argument| argument.starts_with("--")) {
        assert!(flags.contains(flag.as_str()), "serve has no {flag}");
    }
    for variable in variables {
        assert!(names.contains(variable.as_str()), "serve does not look at {variable}");
    }
}

/// What follows a flag.
fn after<'a>(arguments: &'a [String], flag: &str) -> &'a str {
    let at = arguments.iter().position(|argument| argument == flag);
    &arguments[at.unwrap_or_else(|| panic!("{flag} in {arguments:?}")) + 1]
}

/// The instructions of the container file, continued lines joined.
fn container() -> Vec<(String, String)> {
    let text = read("Containerfile").replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').unwrap_or_else(|| panic!("an instruction: {line}")));
    pairs.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect()
}

fn instruction<'i>(instructions: &'i [(String, String)], name: &str) -> &'i str {
    let found = instructions.iter().rfind(|(known, _)| known == name);
    &found.unwrap_or_else(|| panic!("{name} in the Containerfile")).1
}

/// Variables that the image sets.
fn container_variables() -> Vec<(String, String)> {
    let instructions = container();
    let pairs = instruction(&instructions, "ENV").split_whitespace();
    pairs
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_policy_is_good_and_the_same_everywhere() {
    let path = file("policy/policy.toml");
    let output = ratekeeper(&["policy", "check", path.to_str().expect("a path")]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(yaml("kubernetes.yaml")[0]["data"]["policy.toml"], read("policy/policy.toml"));
}

#[test]
fn the_image_starts_the_binary_that_it_builds_as_nobody() {
    let instructions = container();
    let froms: Vec<&str> =
        instructions.iter().filter(|(name, _)| name == "FROM").map(|(_, rest)| rest.as_str()).collect();
    assert_eq!((froms.len(), froms[1]), (2, "scratch"), "nothing but what is copied");
    assert!(froms[0].ends_with(" AS build"), "{froms:?}");
    let build = "cargo build --release --locked -p ratekeeper-server --bin ratekeeper";
    assert!(instructions.iter().any(|(name, rest)| name == "RUN" && rest == build), "{instructions:?}");
    let entry: Value =
        serde_json::from_str(instruction(&instructions, "ENTRYPOINT")).expect("the form of a list");
    let copied = format!("--from=build /src/target/release/ratekeeper {}", texts(&entry)[0]);
    assert!(instructions.iter().any(|(name, rest)| name == "COPY" && *rest == copied), "{copied}");
    assert_eq!(texts(&entry).len(), 1);
    let user: Vec<&str> = instruction(&instructions, "USER").split(':').collect();
    assert!(
        user.iter().all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
        "a number, so that runAsNonRoot can tell"
    );

    let arguments: Value =
        serde_json::from_str(instruction(&instructions, "CMD")).expect("the form of a list");
    let variables = container_variables();
    known(&texts(&arguments), &variables.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    assert!(variables.contains(&("RATEKEEPER_NO_ADMIN".to_owned(), "true".to_owned())), "{variables:?}");
    let http = variables.iter().find(|(name, _)| name == "RATEKEEPER_HTTP").expect("an address");
    assert_eq!(http.1, format!("0.0.0.0:{}", instruction(&instructions, "EXPOSE")));
    assert_eq!(read("Containerfile.dockerignore"), ".git\n**/target\n");
}

#[test]
fn the_unit_starts_the_binary_and_may_do_little() {
    let unit = read("ratekeeper.service");
    let setting = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} in the unit"))
    };
    let start: Vec<String> = setting("ExecStart").split_whitespace().map(str::to_owned).collect();
    assert_eq!(start[0], "/usr/local/bin/ratekeeper");
    known(&start[1..], &[]);
    for (name, value) in [
        ("DynamicUser", "yes"),
        ("CapabilityBoundingSet", ""),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("MemoryDenyWriteExecute", "yes"),
        ("EnvironmentFile", "-/etc/ratekeeper/environment"),
        ("StateDirectory", "ratekeeper"),
        ("Environment", "RATEKEEPER_STORE=memory+dir:///var/lib/ratekeeper"),
    ] {
        assert_eq!(setting(name), value, "{name}");
    }
    // 10 seconds are what requests under way have.
    assert!(setting("TimeoutStopSec").parse::<u32>().expect("seconds") > 10);
    let files: u32 = setting("LimitNOFILE").parse().expect("a number");
    assert!(files > 16_384 + 100, "fewer than the connections that are served at once");
}

#[test]
fn compose_wires_a_server_to_a_store_that_doctor_likes() {
    let compose = yaml("compose.yaml").remove(0);
    let (server, store) = (&compose["services"]["ratekeeper"], &compose["services"]["valkey"]);
    let arguments = texts(&server["command"]);
    known(&arguments, &[]);
    assert_eq!(server["build"]["dockerfile"], "deploy/Containerfile");
    assert_eq!(server["build"]["context"], "..");
    let exposed = instruction(&container(), "EXPOSE").to_owned();
    assert_eq!(texts(&server["ports"]), [format!("127.0.0.1:{exposed}:{exposed}")]);
    assert_eq!(after(&arguments, "--store"), "redis://valkey:6379");
    assert_eq!(server["depends_on"]["valkey"]["condition"], "service_healthy");
    assert!(store["healthcheck"]["test"].is_array());
    let policy = after(&arguments, "--policy");
    // The folder: what is written anew in it is seen, while a file would stay the one that was mounted.
    let (folder, name) = policy.rsplit_once('/').expect("a path");
    assert_eq!(texts(&server["volumes"]), [format!("./policy:{folder}:ro")]);
    assert!(file("policy").join(name).is_file());
    assert_eq!(
        (&server["read_only"], texts(&server["cap_drop"])),
        (&Value::Bool(true), vec!["ALL".to_owned()])
    );

    let words = texts(&store["command"]);
    assert_eq!(words[0], "valkey-server");
    let directives: Vec<(&str, &str)> =
        words[1..].chunks_exact(2).map(|pair| (pair[0].trim_start_matches("--"), pair[1].as_str())).collect();
    let running = Server::start_with(Flavour::Valkey9, &directives);
    let path = file("policy/policy.toml");
    let mut doctor = command();
    doctor.args(["doctor", "--timeout", "20000", "--store", &running.url(), "--policy"]).arg(&path);
    let output = doctor.env(STORE_DEADLINE.0, STORE_DEADLINE.1).output().expect("it runs");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(!shown.lines().any(|line| line.starts_with("warning")), "{shown}");
}

#[test]
fn kubernetes_objects_fit_one_another_and_the_image() {
    let objects = yaml("kubernetes.yaml");
    let kinds: Vec<&str> = objects.iter().map(|object| object["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Service", "PodDisruptionBudget"]);
    let [policy, deployment, service, budget] = &objects[..] else { panic!("four objects") };
    let (spec, pod) = (&deployment["spec"], &deployment["spec"]["template"]["spec"]);
    let labels = &spec["template"]["metadata"]["labels"];
    for selector in [
        &spec["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &budget["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    let container = &pod["containers"][0];
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("ratekeeper:{version}");
    assert_eq!(container["image"], image);
    for name in ["Containerfile", "README.md", "kubernetes.yaml"] {
        let build = format!("docker build -f deploy/Containerfile -t {image} .");
        assert!(read(name).contains(&build), "deploy/{name} builds the image that is deployed: {build}");
    }
    let spread = &pod["topologySpreadConstraints"][0];
    assert_eq!(spread["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(&spread["labelSelector"]["matchLabels"], labels);

    let (arguments, variables) = (texts(&container["args"]), container["env"].as_array().expect("a list"));
    let names: Vec<String> =
        variables.iter().map(|variable| variable["name"].as_str().expect("a name").to_owned()).collect();
    known(&arguments, &names);
    let value = |name: &str| {
        variables.iter().find(|variable| variable["name"] == name).expect("the variable")["value"].clone()
    };
    let port = &container["ports"][0];
    assert_eq!(value("RATEKEEPER_HTTP"), format!("0.0.0.0:{}", port["containerPort"]));
    assert_eq!(value("RATEKEEPER_INSTANCES"), spec["replicas"].to_string());
    assert_eq!(
        spec["template"]["metadata"]["annotations"]["prometheus.io/port"],
        port["containerPort"].to_string()
    );
    for target in [
        &container["livenessProbe"]["httpGet"]["port"],
        &container["readinessProbe"]["httpGet"]["port"],
        &service["spec"]["ports"][0]["targetPort"],
    ] {
        assert_eq!(*target, port["name"]);
    }

    let mount = &container["volumeMounts"][0];
    assert_eq!(
        (&mount["mountPath"], &mount["name"]),
        (&after(&arguments, "--policy").into(), &pod["volumes"][0]["name"])
    );
    assert_eq!(pod["volumes"][0]["configMap"]["name"], policy["metadata"]["name"]);
    let number = |value: &Value| value.as_u64().expect("a number");
    let drain: u64 = after(&arguments, "--drain-seconds").parse().expect("seconds");
    assert!(number(&pod["terminationGracePeriodSeconds"]) > drain + 10, "time to drain, and to finish");
    assert!(
        number(&budget["spec"]["minAvailable"]) < number(&spec["replicas"]),
        "or no node could be emptied"
    );
    let user = pod["securityContext"]["runAsUser"].to_string();
    assert_eq!(instruction(&self::container(), "USER"), format!("{user}:{user}"));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
}

/// Variables and arguments as they are deployed, but for where to listen, where the policy is and
/// where counters are: those are the test's own.
fn deployed(arguments: &[String], variables: &[(String, String)], store: &str) -> Command {
    let mut command = command();
    let mut skip = false;
    for argument in arguments {
        let is_place = ["--policy", "--store"].contains(&argument.as_str());
        if !std::mem::replace(&mut skip, is_place) && !is_place {
            command.arg(argument);
        }
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.env("RATEKEEPER_STORE", store).env("RATEKEEPER_POLICY", file("policy/policy.toml"));
    command.env(STORE_DEADLINE.0, STORE_DEADLINE.1);
    // Still from outside, so that what that takes is in the deployed settings.
    command.env("RATEKEEPER_HTTP", "0.0.0.0:0").env("RATEKEEPER_DRAIN_SECONDS", "0");
    command
}

#[test]
fn a_server_as_it_is_deployed_is_healthy_and_ready() {
    let deployment = yaml("kubernetes.yaml").remove(1);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut arguments = texts(&container["args"]);
    // It would be waited for when it is told to stop.
    let drain = arguments.iter().position(|argument| argument == "--drain-seconds").expect("it drains");
    arguments[drain + 1] = "0".to_owned();
    let pairs = container["env"].as_array().expect("a list").iter().filter_map(|variable| {
        Some((variable["name"].as_str()?.to_owned(), variable["value"].as_str()?.to_owned()))
    });
    let compose = texts(&yaml("compose.yaml")[0]["services"]["ratekeeper"]["command"]);
    let probe = |name: &str| container[name]["httpGet"]["path"].as_str().expect("a path").to_owned();
    for (arguments, variables) in [(arguments, pairs.collect()), (compose, container_variables())] {
        let store = Server::start(Flavour::Valkey9);
        let served = Served::start(&mut deployed(&arguments, &variables, &store.url()));
        for path in [probe("livenessProbe"), probe("readinessProbe"), "/metrics".to_owned()] {
            let (status, body) = served.ask("GET", &path, "");
            assert_eq!(status, 200, "{path}: {body}");
        }
        assert_eq!(served.ask("GET", "/readyz/store", "").0, 200);
        // Operators' calls are closed unless somebody opens them.
        for (method, path) in [("GET", "/v1/switches"), ("GET", "/v1/policies"), ("POST", "/v1/modes/set")] {
            let (status, body) = served.ask(method, path, "");
            assert!([403, 404].contains(&status), "{path}: {status} {body}");
        }
        drop(store);
        let (status, body) = served.ask("GET", "/readyz/store", "");
        assert_eq!(status, 503, "without its store: {body}");
        let (status, body) = served.ask("GET", "/readyz", "");
        assert!(status == 200 && body.contains("degraded"), "without its store: {status} {body}");
        // No reason to start it again, nor to leave callers without anybody who decides.
        assert_eq!(served.ask("GET", &probe("livenessProbe"), "").0, 200);
        assert_eq!(served.ask("GET", &probe("readinessProbe"), "").0, 200);
        let (status, decision) = served.ask("POST", "/v1/check", r#"{"client": "192.0.2.1"}"#);
        assert!(status == 200 && decision.contains("\"origin\":\"outage\""), "{status} {decision}");
        assert!(served.stop(Duration::from_secs(20)).success());
    }
}
