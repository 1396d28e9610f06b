//! `ratekeeper policy check`: what it prints, to the letter.

use std::io::Write;
use std::process::{Output, Stdio};

use tempfile::TempDir;

use crate::{assert_printed, command, text};

const GOOD: &str = "\
service = 'search'

[[rules]]
name = 'per-ip'
keys = 'ip:{client.ip}'
quota = '100/s burst 200'

[[rules]]
name = 'per-user'
when = 'path.startsWith(\"/api/\")'
keys = 'user:{identity.user}'
rps = 10
rpd = 50_000
";

/// Two mistakes in the second rule.
fn bad() -> String {
    GOOD.replace("rps = 10", "rps = -5").replace("rpd", "rdp")
}

/// A folder with a policy that is good and one that is not.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in [("good.toml", GOOD), ("bad.toml", &bad())] {
        std::fs::write(folder.path().join(name), content).expect("a file");
    }
    folder
}

fn check(folder: &TempDir, arguments: &[&str], input: &str) -> Output {
    check_with(folder, arguments, input, &[])
}

fn check_with(folder: &TempDir, arguments: &[&str], input: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = command();
    command.args(["policy", "check"]).args(arguments).current_dir(folder);
    command.envs(environment.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // It may have read no more than it needed.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("the binary ends")
}

#[test]
fn a_good_policy_is_a_line() {
    let output = check(&folder(), &["good.toml"], "");
    let line = "ok good.toml: service search, 2 rules, 3 quotas; needs identity, client address\n";
    assert_printed(&output, 0, line, "");
}

#[test]
fn every_problem_of_a_bad_policy_is_a_line() {
    let output = check(&folder(), &["bad.toml"], "");
    let lines = "\
bad.toml:12:7: rules[1].rps: got -5; expected a whole number from 0 to 1000000000
bad.toml:13:1: rules[1].rdp: got an unknown field; expected a field of a rule; did you mean `rpd`?

1 of 1 policy is wrong: 2 problems
";
    assert_printed(&output, 1, "", lines);
}

#[test]
fn expressions_are_checked_where_they_stand() {
    let mistaken = GOOD.replace("path.startsWith", "path.beginsWith");
    let output = check(&folder(), &["--syntax", "toml", "-"], &mistaken);
    let shown = text(&output.stderr);
    assert!(shown.starts_with("stdin:10:") && shown.contains(": rules[1].when: got "), "{shown}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_hardly_meant_is_a_warning() {
    let never = GOOD.replace("path.startsWith(\"/api/\")", "false");
    let output = check(&folder(), &["--syntax", "toml", "-"], &never);
    let line = "ok stdin: service search, 2 rules, 3 quotas; needs identity, client address\n";
    let warning = "stdin:10:8: warning: rules[1].when: got a condition that no request meets; expected one that some request meets\n";
    assert_printed(&output, 0, line, warning);
}

#[test]
fn what_cannot_be_read_is_told_with_a_hint() {
    let folder = folder();
    let output = check(&folder, &["missing.toml"], "");
    let lines = "error: missing.toml: no such file\nhint: beside it are bad.toml, good.toml\n";
    assert_printed(&output, 2, "", lines);

    std::fs::write(folder.path().join("policy.conf"), GOOD).expect("a file");
    let output = check(&folder, &["policy.conf"], "");
    let lines = "\
error: policy.conf: its ending says no format; expected .toml, .yaml, .yml or .json
hint: --syntax toml, yaml or json says what it is written in
";
    assert_printed(&output, 2, "", lines);
    assert_eq!(check(&folder, &["--syntax", "toml", "policy.conf"], "").status.code(), Some(0));

    std::fs::create_dir(folder.path().join("empty")).expect("a folder");
    let output = check(&folder, &["empty"], "");
    let lines = "error: empty: has no policies\nhint: policies end in .toml, .yaml, .yml or .json\n";
    assert_printed(&output, 2, "", lines);
}

#[test]
fn standard_input_needs_a_syntax() {
    let output = check(&folder(), &["-"], GOOD);
    let lines = "error: stdin: nothing says what it is written in\nhint: add --syntax toml, yaml or json\n";
    assert_printed(&output, 2, "", lines);
    let yaml = "{service: s, rules: [{name: r, keys: all, quota: 1/s}]}";
    let output = check(&folder(), &["-", "--syntax", "yaml"], yaml);
    assert_printed(&output, 0, "ok stdin: service s, 1 rule, 1 quota\n", "");
}

#[test]
fn a_folder_is_all_of_its_policies() {
    let folder = folder();
    std::fs::write(folder.path().join("more.toml"), GOOD).expect("a file");
    let output = check(&folder, &["."], "");
    let line = "ok ./good.toml: service search, 2 rules, 3 quotas; needs identity, client address\n";
    let lines = "\
./bad.toml:12:7: rules[1].rps: got -5; expected a whole number from 0 to 1000000000
./bad.toml:13:1: rules[1].rdp: got an unknown field; expected a field of a rule; did you mean `rpd`?
./more.toml: service: got \"search\", which has its policy in ./good.toml; expected a service without one: one file for each. Put all rules of the service into one of the two files, or remove one

2 of 3 policies are wrong: 3 problems
";
    assert_printed(&output, 1, line, lines);
}

#[test]
fn programs_read_an_object_for_each_policy() {
    let output = check(&folder(), &["--format", "json", "good.toml", "bad.toml", "missing.toml"], "");
    let lines = r#"
{"file":"good.toml","ok":true,"service":"search","rules":2,"quotas":3,"needs":["identity","client address"],"problems":[],"warnings":[]}
{"file":"bad.toml","ok":false,"problems":[{"line":12,"column":7,"field":"rules[1].rps","got":"-5","expected":"a whole number from 0 to 1000000000"},{"line":13,"column":1,"field":"rules[1].rdp","got":"an unknown field","expected":"a field of a rule; did you mean `rpd`?"}],"warnings":[]}
{"file":"missing.toml","ok":false,"error":"no such file","problems":[],"warnings":[]}
"#;
    assert_printed(&output, 2, lines.trim_start(), "");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let (folder, force) = (folder(), ("CLICOLOR_FORCE", "1"));
    let colours = |environment: &[(&str, &str)]| {
        let output = check_with(&folder, &["good.toml", "bad.toml"], "", environment);
        [output.stdout, output.stderr].map(|shown| text(&shown).contains('\u{1b}'))
    };
    assert_eq!(colours(&[force]), [true, true]);
    assert_eq!(colours(&[]), [false, false], "not into a pipe");
    assert_eq!(colours(&[("NO_COLOR", "1")]), [false, false]);
}

const SHEET: &str =
    "domain: shop\ndescriptors:\n- key: a\n  rate_limit: { unit: second, requests_per_unit: 1 }\n";

#[test]
fn files_of_one_domain_are_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = SHEET.replace("key: a", "key: b");
    for (name, content) in [("1.yaml", SHEET), ("2.yaml", &more)] {
        std::fs::write(folder.path().join(name), content).expect("a file");
    }
    let output = check(&folder, &["."], "");
    assert_printed(&output, 0, "ok ./1.yaml, ./2.yaml: service shop, 2 rules, 2 quotas\n", "");
    std::fs::write(folder.path().join("2.yaml"), SHEET).expect("a file");
    let lines = "\
./2.yaml:3:3: descriptors[0]: got \"a\" again, as in ./1.yaml:3; expected each key with a value once among its neighbours

1 of 1 policy is wrong: 1 problem
";
    assert_printed(&check(&folder, &["."], ""), 1, "", lines);
}

#[test]
fn limits_of_others_are_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, content: &str| std::fs::write(folder.path().join(name), content).expect("a file");
    let convert = |arguments: &[&str]| {
        let mut command = command();
        command.args(["policy", "convert"]).args(arguments).current_dir(&folder);
        command.output().expect("the binary runs")
    };
    write("1.yaml", &SHEET.replace("  rate_limit", "  detailed_metric: true\n  rate_limit"));
    let warning = "1.yaml:4:20: descriptors[0].detailed_metric: got `detailed_metric`, which is left out; \
                   expected nothing: metrics are by rule, and `ratekeeper top` shows single keys";
    let policy = format!(
        "# Converted from 1.yaml.\n# Warning: {warning}\nservice = \"shop\"\n\n[[rules]]\nname = \"a\"\n\
         when = \"descriptor_keys == 'a'\"\nkeys = \"a:{{descriptor.a}}\"\nquota = \"1/s fixed_window aligned\"\n"
    );
    let told = warning.replacen(" descriptors", " warning: descriptors", 1);
    assert_printed(&convert(&["1.yaml"]), 0, &policy, &format!("{told}\n"));

    write(
        "limits.yaml",
        "- { namespace: a, max_value: 1, seconds: 5 }\n- { namespace: b, max_value: 1, seconds: 5 }\n",
    );
    let several = "error: 2 services; a policy is of one: --service NAME\nhint: there are limits of a, b\n";
    assert_printed(&convert(&["limits.yaml"]), 2, "", several);
    let output = convert(&["limits.yaml", "--service", "b"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert!(text(&output.stdout).contains("service = \"b\"\n"));
    let unknown = "error: there are no limits of `c`\nhint: there are limits of a, b\n";
    assert_printed(&convert(&["limits.yaml", "--service", "c"]), 2, "", unknown);

    write("bad.yaml", "domain: shop\ndescriptor: []\n");
    let lines = "\
bad.yaml:1:1: got no descriptors; expected at least one limit under `descriptors`
bad.yaml:2:1: descriptor: got an unknown field; expected a field of a configuration of envoyproxy/ratelimit; did you mean `descriptors`?
";
    assert_printed(&convert(&["bad.yaml"]), 1, "", lines);
    let ending = "error: limits: its ending says no format; expected .yaml, .yml or .json\n\
                  hint: --syntax yaml or json says what it is written in\n";
    assert_printed(&convert(&["limits"]), 2, "", ending);
}
