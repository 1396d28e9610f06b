//! What operators look at: who changed what, usage, inspection, explanation, counters, policies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::bounds::AUDIT_LINES_MAX;
use ratekeeper::store::open;
use ratekeeper::{OpenOptions, RedisStore, Store};
use ratekeeper_server::serve::{Admin, Role, Token};
use ratekeeper_testkit::servers::{Cluster, Flavour, Server};
use ratekeeper_testkit::wait;
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::rig::{RUNTIME, Rig, START, Setup};

const POLICY: &str = "service = 'search'\n\
     [[rules]]\nname = 'per-project'\nkeys = 'project:{identity.project}'\noverrides = true\nquota = '2/min'\n\
     [[rules]]\nname = 'per-user'\nwhen = \"path == '/search'\"\nkeys = 'user:{identity.user}'\noverrides = true\n\
     quotas = { rpm = '100/min fixed_window', rph = '900/h fixed_window' }\n\
     [rules.plans]\npaid = '6000/min'\n\
     [rules.custom]\n'user:vip' = '7000/min'\n\
     [[rules]]\nname = 'rare'\nwhen = \"path == '/rare'\"\nkeys = 'all'\nquota = '1/h'\n";

fn done(client: &mut Client, path: &str, call: &Json) -> Json {
    let reply = client.call(path, call);
    assert_eq!(reply.status, 200, "{path} {call}: {}", reply.text());
    reply.json()
}

fn entries(client: &mut Client) -> Vec<Json> {
    done(client, "/v1/audit", &json!({}))["entries"].as_array().unwrap().clone()
}

fn on_cluster(cluster: &Cluster) -> Arc<dyn Store> {
    let _within = RUNTIME.enter();
    let options = OpenOptions::new().redis(|redis| redis.deadline(Duration::from_secs(20)));
    open(&cluster.url().parse().unwrap(), &options).unwrap().store()
}

fn request() -> Json {
    json!({ "identity": { "org": "7", "project": "42", "user": "ann" } })
}

fn on_redis(server: &Server) -> Arc<dyn Store> {
    let _within = RUNTIME.enter();
    Arc::new(RedisStore::builder(&server.url()).deadline(Duration::from_secs(20)).build().unwrap())
}

#[test]
fn every_change_is_on_record_with_what_was_there_before() {
    let (rig, clock) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let scope = json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42" });
    let set = |limit: u32| {
        json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42", "limit": limit,
                "reason": "launch", "author": "ann" })
    };
    done(&mut client, "/v1/overrides/set", &set(5));
    clock.advance(Duration::from_secs(1));
    done(&mut client, "/v1/overrides/set", &set(9));
    done(&mut client, "/v1/overrides/delete", &scope);
    done(&mut client, "/v1/overrides/clear", &json!({ "organisation": "7" }));
    let mode = json!({ "rule": "search/*", "mode": "monitor", "reason": "trial", "author": "bob" });
    done(&mut client, "/v1/modes/set", &mode);
    done(&mut client, "/v1/modes/clear", &json!({ "rule": "search/*" }));
    done(&mut client, "/v1/emergencies/set", &json!({ "rule": "*", "emergency": "lift", "for": "1min" }));
    done(&mut client, "/v1/emergencies/clear", &json!({ "rule": "*" }));
    done(&mut client, "/v1/reset", &request());
    let mut found = entries(&mut client);
    found.reverse();
    let calls: Vec<&str> = found.iter().map(|entry| entry["call"].as_str().unwrap()).collect();
    assert_eq!(
        calls,
        [
            "/v1/overrides/set",
            "/v1/overrides/set",
            "/v1/overrides/delete",
            "/v1/overrides/clear",
            "/v1/modes/set",
            "/v1/modes/clear",
            "/v1/emergencies/set",
            "/v1/emergencies/clear",
            "/v1/reset"
        ]
    );
    assert_eq!((&found[0]["before"], &found[0]["after"]["limit"]), (&Json::Null, &json!(5)));
    assert_eq!((&found[1]["before"]["limit"], &found[1]["after"]["limit"]), (&json!(5), &json!(9)));
    assert_eq!((&found[1]["after"]["author"], &found[1]["by"]), (&json!("ann"), &json!("local")));
    assert_eq!(found[1]["at_us"], START.as_micros() + 1_000_000);
    assert_eq!((&found[2]["before"]["limit"], &found[2]["after"]), (&json!(9), &Json::Null));
    assert_eq!((&found[4]["reason"], &found[4]["author"]), (&json!("trial"), &json!("bob")));
    assert_eq!(
        (&found[5]["before"]["mode"], &found[7]["before"]["emergency"]),
        (&json!("monitor"), &json!("lift"))
    );
    assert_eq!(found[8]["about"][0], json!({ "rule": "search/per-project", "key": "project:42" }));
    // To look is no change.
    done(&mut client, "/v1/overrides/list", &json!({}));
    assert_eq!(entries(&mut client).len(), 9);
    let page = done(&mut client, "/v1/audit", &json!({ "skip": 8, "count": 5 }));
    assert_eq!((page["entries"].as_array().unwrap().len(), &page["next_skip"]), (1, &Json::Null));
    assert_eq!(done(&mut client, "/v1/audit", &json!({ "by": "nobody" }))["entries"], json!([]));
}

#[test]
fn the_name_of_the_token_is_on_record_and_is_the_author() {
    let token = Token::named("ann", Role::Operate, "0123456789abcdef").unwrap();
    let (rig, _) = Setup { admin: Admin::of_tokens([token]), ..Setup::policy(POLICY) }.in_memory();
    let bearer = [("authorization", "Bearer 0123456789abcdef")];
    let ask =
        |path: &str, body: Json| rig.client().ask("POST", path, &bearer, body.to_string().as_bytes()).json();
    let set = ask("/v1/overrides/set", json!({ "endpoint": "e", "organisation": "7", "limit": 5 }));
    assert_eq!(set["author"], "ann");
    assert_eq!(ask("/v1/audit", json!({}))["entries"][0]["by"], "ann");
}

/// What cannot be recorded is not done.
#[test]
fn nothing_is_changed_where_the_log_cannot_be_written() {
    let server = Server::start(Flavour::Valkey9);
    let rig = Setup::policy(POLICY).start(on_redis(&server));
    let mut client = rig.client();
    assert_eq!(server.cli(&["SET", "rk:audit", "something else"]), "OK");
    let set = json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42", "limit": 5 });
    let reply = client.call("/v1/overrides/set", &set);
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("nothing was changed"), "{}", reply.text());
    assert_eq!(done(&mut client, "/v1/overrides/list", &json!({})), json!({ "overrides": [] }));
}

#[test]
fn the_log_of_a_store_outlives_its_servers_and_is_that_of_all() {
    let server = Server::start(Flavour::Redis7);
    let first = Setup::policy(POLICY).start(on_redis(&server));
    let clear = json!({ "rule": "search/*" });
    done(&mut first.client(), "/v1/modes/clear", &clear);
    drop(first);
    let others: Vec<Rig> = (0..2).map(|_| Setup::policy(POLICY).start(on_redis(&server))).collect();
    done(&mut others[0].client(), "/v1/modes/clear", &clear);
    assert_eq!(entries(&mut others[1].client()).len(), 2);
    assert_eq!(server.cli(&["LLEN", "rk:audit"]), "2");
    assert_eq!(
        done(&mut others[1].client(), "/v1/audit", &json!({ "skip": AUDIT_LINES_MAX }))["entries"],
        json!([])
    );
}

#[test]
fn an_empty_bucket_stays_empty_under_a_raised_limit_unless_it_is_relieved() {
    // A unit comes back every half an hour, or under the override every six minutes.
    let policy: &str = POLICY.replace("'2/min'", "'2/h'").leak();
    for store in [None, Some(Server::start(Flavour::Redis62))] {
        let rig = match &store {
            None => Setup::policy(policy).in_memory().0,
            Some(server) => Setup::policy(policy).start(on_redis(server)),
        };
        let mut client = rig.client();
        let passed = |client: &mut Client| {
            (0..12).filter(|_| client.call("/v1/check", &request()).status == 200).count()
        };
        assert_eq!(passed(&mut client), 2);
        let mut set =
            json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42", "limit": 10 });
        let answer = done(&mut client, "/v1/overrides/set", &set);
        assert!(answer.get("relieved").is_none());
        assert_eq!(passed(&mut client), 0, "empty as before");
        set["relief"] = json!(true);
        let answer = done(&mut client, "/v1/overrides/set", &set);
        assert_eq!(answer["relieved"], 1, "{answer}");
        assert_eq!(passed(&mut client), 10);
        for (endpoint, what) in [
            ("search/per-user.rpm", "counts by more than organisation and project"),
            ("search/none", "which no rule looks for"),
        ] {
            set["endpoint"] = json!(endpoint);
            let reply = client.call("/v1/overrides/set", &set);
            assert_eq!((reply.status, &reply.json()["field"]), (422, &json!("relief")), "{}", reply.text());
            assert!(reply.text().contains(what), "{}", reply.text());
        }
        assert_eq!(
            done(&mut client, "/v1/overrides/list", &json!({}))["overrides"].as_array().unwrap().len(),
            1
        );
    }
}

#[test]
fn a_request_is_explained_with_the_rules_that_do_not_apply() {
    let (rig, clock) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let set = json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42", "limit": 1,
                      "author": "ann", "reason": "abuse" });
    done(&mut client, "/v1/overrides/set", &set);
    assert_eq!(client.call("/v1/check", &request()).status, 200);
    let why = done(&mut client, "/v1/explain/rules", &request());
    assert_eq!((&why["allowed"], &why["decided_by"]), (&json!(false), &json!("search/per-project")));
    let limit = &why["rules"][0]["limits"][0];
    assert_eq!(
        (&limit["level"], &limit["used"], &limit["remaining"]),
        (&json!("project"), &json!(1), &json!(0))
    );
    assert_eq!(
        (&limit["override"]["author"], &limit["override"]["reason"]),
        (&json!("ann"), &json!("abuse"))
    );
    assert_eq!(why["rules"][0]["key"], "project:42");
    let others = why["not_applied"].as_array().unwrap();
    let names: Vec<&str> = others.iter().map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert_eq!(names, ["search/per-user", "search/rare"]);
    assert!(others[0]["why"] == "its condition does not hold", "{why}");
    // At the instant it says, and not before.
    let passes_at = why["passes_at_us"].as_u64().unwrap();
    let now = START.as_micros();
    clock.advance(Duration::from_micros(passes_at - now - 1));
    assert_eq!(client.call("/v1/check", &request()).status, 429);
    clock.advance(Duration::from_micros(1));
    assert_eq!(client.call("/v1/check", &request()).status, 200);
    done(&mut client, "/v1/modes/set", &json!({ "rule": "search/per-project", "mode": "off" }));
    let why = done(&mut client, "/v1/explain/rules", &request());
    assert_eq!(
        (&why["allowed"], &why["not_applied"][0]["why"]),
        (&json!(true), &json!("it is switched off"))
    );
    let charges = json!({ "charges": [{ "key": "k", "quota": "1/h" }] });
    assert_eq!(client.call("/v1/explain/rules", &charges).status, 422);
}

#[test]
fn a_key_is_inspected_without_charging_it_in_memory_and_on_a_server() {
    for store in [None, Some(Server::start(Flavour::Valkey9))] {
        let rig = match &store {
            None => Setup::policy(POLICY).in_memory().0,
            Some(server) => Setup::policy(POLICY).start(on_redis(server)),
        };
        let mut client = rig.client();
        let mut search = request();
        search["path"] = json!("/search");
        assert_eq!(client.call("/v1/check", &search).status, 200);
        for _ in 0..2 {
            let told = done(&mut client, "/v1/inspect", &json!({ "key": "user:ann" }));
            let limits = &told["rules"][0]["limits"];
            assert_eq!(told["rules"].as_array().unwrap().len(), 1, "{told}");
            assert_eq!((&limits[0]["name"], &limits[0]["used"]), (&json!("search/per-user.rpm"), &json!(1)));
            assert_eq!((&limits[1]["remaining"], &limits[1]["limit"]), (&json!(899), &json!(900)));
            assert_eq!(told["stored"].is_array(), store.is_some(), "{told}");
        }
        let vip = done(&mut client, "/v1/inspect", &json!({ "key": "user:vip" }));
        assert_eq!(
            (&vip["rules"][0]["limits"][0]["level"], &vip["rules"][0]["limits"][0]["limit"]),
            (&json!("custom"), &json!(7000))
        );
        let listed = done(&mut client, "/v1/counters/list", &json!({ "service": "search" }));
        let Some(_) = &store else {
            assert_eq!(listed["names_are_kept"], false);
            continue;
        };
        let rules = listed["counters"].as_array().unwrap();
        let of_user = rules.iter().find(|found| found["key"] == "user:ann").unwrap();
        assert_eq!(
            (&of_user["rule"], of_user["counters"].as_array().unwrap().len()),
            (&json!("search/per-user"), 2)
        );
        assert_eq!(
            (&of_user["counters"][0]["name"], &of_user["counters"][0]["used"]),
            (&json!("rpm"), &json!(1))
        );
        let of_key = done(&mut client, "/v1/counters/list", &json!({ "key": "project:*" }));
        assert_eq!(of_key["counters"].as_array().unwrap().len(), 1, "{of_key}");
        let none = done(&mut client, "/v1/counters/list", &json!({ "service": "sear" }));
        assert_eq!((&none["counters"], &none["cursor"]), (&json!([]), &Json::Null));
    }
}

#[test]
fn a_key_is_reset_by_its_name_under_every_rule_or_one() {
    for store in [None, Some(Server::start(Flavour::Redis7))] {
        let rig = match &store {
            None => Setup::policy(POLICY).in_memory().0,
            Some(server) => Setup::policy(POLICY).start(on_redis(server)),
        };
        let mut client = rig.client();
        let mut search = request();
        search["path"] = json!("/search");
        assert_eq!(client.call("/v1/check", &search).status, 200);
        let used = |client: &mut Client| {
            let told = done(client, "/v1/inspect", &json!({ "key": "user:ann" }));
            told["rules"][0]["limits"][0]["used"].as_u64().unwrap()
        };
        assert_eq!(used(&mut client), 1);
        let elsewhere = json!({ "key": "user:ann", "rule": "search/per-project" });
        assert_eq!(client.call("/v1/counters/reset", &elsewhere).json()["field"], "key");
        let nobody = json!({ "key": "planet:mars" });
        assert_eq!(client.call("/v1/counters/reset", &nobody).status, 422);
        assert_eq!(used(&mut client), 1);
        let told = done(&mut client, "/v1/counters/reset", &json!({ "key": "user:ann" }));
        assert!(told["forgotten"].as_u64().unwrap() >= 1, "{told}");
        assert_eq!(used(&mut client), 0);
        let entry = &entries(&mut client)[0];
        assert_eq!(
            (&entry["call"], &entry["about"][0]),
            (&json!("/v1/counters/reset"), &json!({ "rule": "search/per-user", "key": "user:ann" }))
        );
        assert_eq!(client.call("/v1/check", &search).status, 200);
        let one = json!({ "key": "user:ann", "rule": "search/per-user" });
        done(&mut client, "/v1/counters/reset", &one);
        assert_eq!(used(&mut client), 0);
    }
}

/// Whichever server has it: each page of the store is of one.
#[test]
fn a_key_is_found_on_any_of_several_servers_and_it_is_said_on_which() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start(Flavour::Redis7)).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let store = {
        let _within = RUNTIME.enter();
        let options = OpenOptions::new().redis(|redis| redis.deadline(Duration::from_secs(20)));
        open(&urls.join(",").parse().unwrap(), &options).unwrap().store()
    };
    let policy =
        "service = 'search'\n[[rules]]\nname = 'per-user'\nkeys = 'user:{identity.user}'\nquota = '9/h'\n";
    let rig = Setup::policy(policy).start(store);
    let mut client = rig.client();
    let mut seen = std::collections::BTreeSet::new();
    for user in 0..12 {
        let check = json!({ "identity": { "user": format!("u{user}") } });
        assert_eq!(client.call("/v1/check", &check).status, 200);
        let told = done(&mut client, "/v1/inspect", &json!({ "key": format!("user:u{user}") }));
        let stored = told["stored"].as_array().unwrap();
        assert_eq!((stored.len(), &told["cursor"]), (1, &Json::Null), "{told}");
        seen.insert(stored[0]["server"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, urls.into_iter().collect());
}

#[test]
fn counters_are_listed_a_page_at_a_time() {
    let server = Server::start(Flavour::Redis7);
    let rig = Setup::policy(POLICY).start(on_redis(&server));
    let mut client = rig.client();
    const KEYS: usize = 2_500;
    let checks: Vec<Json> = (0..KEYS)
        .map(|user| json!({ "charges": [{ "key": format!("user:{user}"), "quota": "9/h" }] }))
        .collect();
    for some in checks.chunks(500) {
        assert_eq!(client.call("/v1/limit/batch", &json!({ "checks": some })).status, 200);
    }
    let (mut cursor, mut found, mut pages) = (Json::Null, std::collections::BTreeSet::new(), 0);
    loop {
        let call = json!({ "rule": "/limit/limit", "count": 100, "cursor": cursor });
        let page = done(&mut client, "/v1/counters/list", &call);
        let keys = page["counters"].as_array().unwrap();
        assert!(keys.len() <= 2_000, "{}", keys.len());
        found.extend(keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()));
        pages += 1;
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(found.len() == KEYS && pages >= 3, "{} in {pages} pages", found.len());
    assert_eq!(client.call("/v1/counters/list", &json!({ "cursor": "x" })).status, 422);
}

const TENANTS: &str = "service = 'search'\n\
     [[rules]]\nname = 'per-org'\nkeys = 'org:{identity.org}'\nquota = '900/h'\n\
     [[rules]]\nname = 'per-project'\nkeys = 'project:{identity.org}:{identity.project}'\nquota = '90/h'\n\
     [[rules]]\nname = 'shared'\nkeys = '/search:{identity.org}:{identity.project}'\n\
     overrides = { endpoint = '/search' }\nquota = '9/h fixed_window'\n";

/// All pages of a list.
fn listed(client: &mut Client, mut call: Json) -> (Vec<Json>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = done(client, "/v1/counters/list", &call);
        found.extend(page["counters"].as_array().unwrap().iter().cloned());
        pages += 1;
        if page["cursor"].is_null() {
            return (found, pages);
        }
        call["cursor"] = page["cursor"].clone();
    }
}

/// On one server Application Kit's own counters, on a cluster those that stand for them.
#[test]
fn counters_of_a_tenant_are_those_of_application_kit_and_of_rules_by_its_name() {
    const PROJECTS: usize = 40;
    let (server, cluster) = (Server::start(Flavour::Redis7), Cluster::start(Flavour::Valkey9));
    for store in [on_redis(&server), on_cluster(&cluster)] {
        let rig = Setup::policy(TENANTS).start(store);
        let mut client = rig.client();
        for (organisation, projects) in [("7", PROJECTS), ("8", 1)] {
            for project in 0..projects {
                let who = json!({ "org": organisation, "project": (100 + project).to_string() });
                assert_eq!(client.call("/v1/check", &json!({ "identity": who })).status, 200);
            }
        }
        let named = |found: &[Json]| -> std::collections::BTreeSet<(String, String)> {
            let text = |of: &Json| of.as_str().unwrap().to_owned();
            found.iter().map(|found| (text(&found["rule"]), text(&found["key"]))).collect()
        };
        let name = |rule: &str, key: &str| (rule.to_owned(), key.to_owned());
        let (found, _) = listed(&mut client, json!({ "organisation": "7", "project": "103" }));
        let own = [name("search/per-org", "org:7"), name("search/per-project", "project:7:103")];
        assert_eq!(named(&found), [&own[..], &[name("/search", "7:103")]].concat().into_iter().collect());
        let kit = found.iter().find(|found| found["rule"] == "/search").unwrap();
        assert!(kit["used"] == 1 && kit["ends_after_us"].as_u64().unwrap() > 0, "{kit}");
        let of_org = found.iter().find(|found| found["key"] == "org:7").unwrap();
        assert_eq!(of_org["counters"][0]["used"], json!(PROJECTS), "{of_org}");

        let (found, _) = listed(&mut client, json!({ "organisation": "7", "count": 5 }));
        assert_eq!(found.iter().filter(|found| found["rule"] == "/search").count(), PROJECTS);
        assert_eq!(found.len(), PROJECTS + 1, "and that of the organisation once");
        let (found, _) = listed(&mut client, json!({ "organisation": "9" }));
        assert_eq!(found, Vec::<Json>::new());

        // All of the service, on whichever node.
        let (found, pages) = listed(&mut client, json!({ "service": "search", "count": 10 }));
        assert_eq!((named(&found).len(), found.len()), (PROJECTS + 3, PROJECTS + 3), "in {pages} pages");
        let nodes: std::collections::BTreeSet<_> = found.iter().map(|of| of["server"].to_string()).collect();
        let is_cluster = !found[0]["server"].is_null();
        assert!(if is_cluster { pages >= 3 && nodes.len() == 3 } else { nodes.len() == 1 }, "{nodes:?}");
    }
    let both = json!({ "organisation": "7", "rule": "search/per-org" });
    let rig = Setup::policy(TENANTS).in_memory().0;
    assert_eq!(rig.client().call("/v1/counters/list", &both).json()["field"], "organisation");
}

#[test]
fn the_policy_in_force_is_shown_with_its_limits_and_its_history() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let told = done(&mut client, "/v1/policies/get", &json!({}));
    let user = &told["rules"][1];
    assert_eq!(user["quotas"]["search/per-user.rpm"], "100/min fixed_window");
    assert_eq!((&user["plans"][0]["of"], &user["custom"][0]["of"]), (&json!("paid"), &json!("user:vip")));
    assert_eq!((&user["keys"], &user["custom_count"]), (&json!(["user:{identity.user}"]), &json!(1)));
    let policies = rig.api.limiter().policies();
    let read = |text: &str| {
        ratekeeper::policy::PolicySpec::read("new", ratekeeper::policy::Format::Toml, text.as_bytes())
    };
    policies.install("new", read("service = 'search'\nrules = 7\n"), Some("search")).unwrap_err();
    policies.install("new", read(&POLICY.replace("'2/min'", "'3/min'")), None).unwrap();
    let history = done(&mut client, "/v1/policies/get", &json!({}))["history"].clone();
    let of = |index: usize| (history[index]["in_force"].clone(), history[index]["digest"].is_string());
    assert_eq!(
        (of(0), of(1), of(2)),
        ((json!(true), true), (json!(false), false), (json!(true), true)),
        "{history}"
    );
    assert_ne!(history[0]["digest"], history[2]["digest"]);
    assert_eq!(client.call("/v1/policies/get", &json!({ "service": "other" })).status, 422);
}

/// Three servers on one Redis.
#[test]
fn every_change_reaches_three_servers_within_a_second() {
    let server = Server::start(Flavour::Redis7);
    reaches_three(POLICY, || on_redis(&server));
}

/// The same on a cluster, where overrides and switches are on different nodes.
#[test]
fn every_change_reaches_three_servers_on_a_cluster_within_a_second() {
    let cluster = Cluster::start(Flavour::Valkey9);
    // An override is beside its counters, so the key names the organisation.
    let policy =
        POLICY.replace("'project:{identity.project}'", "'project:{identity.org}:{identity.project}'");
    let policy: &str =
        policy.replace("'user:{identity.user}'\noverrides = true", "'user:{identity.user}'").leak();
    reaches_three(policy, || on_cluster(&cluster));
}

/// What is said of it.
const WITHIN: Duration = Duration::from_secs(1);
/// A busy machine may be late, and is not each time.
const ROUNDS_MAX: usize = 5;

/// A change, what is asked on each server then, and what becomes of that.
struct Followed {
    change: (&'static str, Json),
    asked: (&'static str, Json),
    status: u16,
}

/// Changes that can be made again once the last of them is made.
fn changes() -> Vec<Followed> {
    let check = || ("/v1/check", request());
    let limit =
        |key: &str, quota: &str| ("/v1/limit", json!({ "charges": [{ "key": key, "quota": quota }] }));
    let (used, free) = (|| limit("used", "1/365d"), || limit("free", "1000000/s"));
    let scope = |limit: u32| json!({ "endpoint": "search/per-project", "organisation": "7", "project": "42", "limit": limit });
    let lift = |rule: &str| json!({ "rule": rule, "emergency": "lift", "for": "1h" });
    let of = |rule: &str| json!({ "rule": rule });
    let key = json!({ "rule": "*", "key": "free" });
    let block = json!({ "rule": "*", "key": "free", "emergency": "block", "for": "1h" });
    let all = [
        ("/v1/overrides/set", scope(0), check(), 429),
        ("/v1/emergencies/set", lift("search/per-project"), check(), 200),
        ("/v1/emergencies/clear", of("search/per-project"), check(), 429),
        ("/v1/modes/set", json!({ "rule": "search/*", "mode": "monitor" }), check(), 200),
        ("/v1/modes/clear", of("search/*"), check(), 429),
        ("/v1/overrides/set", scope(1_000_000), check(), 200),
        ("/v1/emergencies/set", lift("*"), used(), 200),
        ("/v1/emergencies/clear", of("*"), used(), 429),
        ("/v1/emergencies/set", block, free(), 429),
        ("/v1/emergencies/clear", key, free(), 200),
    ];
    all.map(|(path, call, asked, status)| Followed { change: (path, call), asked, status }).into()
}

fn reaches_three(policy: &'static str, store: impl Fn() -> Arc<dyn Store>) {
    let rigs: Vec<Rig> = (0..3).map(|_| Setup::policy(policy).start(store())).collect();
    let mut clients: Vec<Client> = rigs.iter().map(Rig::client).collect();
    let changes = changes();
    let used = &changes[7].asked;
    wait::until("the limit is used up", || clients[0].call(used.0, &used.1).status == 429);
    let mut best = vec![Duration::MAX; changes.len()];
    let mut rounds = 0;
    while rounds < ROUNDS_MAX && best.iter().any(|took| *took > WITHIN) {
        for (Followed { change: (path, call), asked, status }, best) in changes.iter().zip(&mut best) {
            let start = Instant::now();
            done(&mut clients[rounds % rigs.len()], path, call);
            for client in &mut clients {
                wait::until(path, || client.call(asked.0, &asked.1).status == *status);
            }
            *best = start.elapsed().min(*best);
        }
        rounds += 1;
    }
    for (Followed { change, .. }, best) in changes.iter().zip(&best) {
        assert!(*best <= WITHIN, "{change:?}: {best:?} at best of {rounds} times");
    }
    assert_eq!(entries(&mut clients[2]).len(), changes.len() * rounds);
}
