//! The cluster that other tests run does what they ask of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ratekeeper_testkit::servers::{Answer, Cluster, ClusterOptions, Flavour, SLOTS, Server};
use ratekeeper_testkit::wait::until;

const FLAVOURS: [Flavour; 2] = [Flavour::Redis7, Flavour::Valkey9];

fn keys_of_one_slot(cluster: &Cluster, count: u32) -> u16 {
    let slot = cluster.slot_of(b"{tag}");
    let mut client = cluster.client(cluster.owner(slot).unwrap());
    for number in 0..count {
        assert_eq!(client.call(&[b"SET", format!("{{tag}}\r\n{number}").as_bytes(), b"v"]), ok());
    }
    slot
}

fn ok() -> Answer {
    Answer::Status("OK".to_owned())
}

#[test]
fn slots_are_shared_moved_and_uncovered() {
    for flavour in FLAVOURS {
        let cluster = Cluster::start(flavour);
        assert!(cluster.is_settled(), "{flavour}");
        assert_eq!([0, 6_000, SLOTS - 1].map(|slot| cluster.owner(slot)), [0, 1, 2].map(Some), "{flavour}");
        let slot = keys_of_one_slot(&cluster, 5);
        let from = cluster.owner(slot).unwrap();
        let to = (from + 1) % 3;

        let moving = cluster.begin_move(slot, to);
        assert_eq!(cluster.move_keys(&moving, 2), 2, "{flavour}");
        let count = |node| cluster.ask(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
        assert_eq!([from, to].map(count), ["3", "2"], "{flavour}");
        let asked = cluster.try_ask(from, &["GET", "{tag}gone"]).unwrap_err();
        assert!(asked.contains("ASK"), "{flavour}: {asked}");

        cluster.end_move(moving);
        assert_eq!([from, to].map(count), ["0", "5"], "{flavour}");
        assert_eq!(cluster.owner(slot), Some(to), "{flavour}");
        let moved = cluster.try_ask(from, &["GET", "{tag}gone"]).unwrap_err();
        assert!(moved.contains("MOVED"), "{flavour}: {moved}");

        cluster.flush_scripts();
        cluster.uncover(0, SLOTS / 2);
        until("a cluster that finds slots without a node", || !cluster.is_ok(2));
    }
}

#[test]
fn replicas_take_over_on_request_and_from_the_dead() {
    for flavour in FLAVOURS {
        let mut cluster = Cluster::start(flavour);
        let slot = keys_of_one_slot(&cluster, 1);
        let first = cluster.owner(slot).unwrap();
        let second = cluster.fail_over(first);
        assert_eq!(cluster.owner(slot), Some(second), "{flavour}");
        cluster.until_settled();

        cluster.nodes[second].kill();
        assert_eq!(cluster.replace_the_dead(second), first, "{flavour}");
        cluster.restart(second);
        cluster.until_settled();
        assert_eq!(cluster.replica_of(first), Some(second), "{flavour}");
        let ids: Vec<u32> = cluster.nodes.iter().map(Server::pid).collect();
        drop(cluster);
        assert!(!ids.into_iter().any(|pid| std::path::Path::new(&format!("/proc/{pid}/comm")).exists()));
    }
}

#[test]
fn passwords_users_and_tls_hold_for_all_nodes() {
    const USERS: &[(&str, &str)] = &[("user", "alice on >word ~* &* +@all")];
    for flavour in FLAVOURS {
        let options = ClusterOptions {
            password: Some("pass"),
            directives: USERS,
            tls: flavour.has_tls(),
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start_with(flavour, options);
        let slot = keys_of_one_slot(&cluster, 3);
        cluster.move_slot(slot, (cluster.owner(slot).unwrap() + 1) % 3);
        let name = cluster.nodes[5].cli(&["--user", "alice", "--pass", "word", "ACL", "WHOAMI"]);
        assert_eq!(name, "alice", "{flavour}");
        let refused = cluster.nodes[0].try_cli(&["CLUSTER", "INFO"]).unwrap_err();
        assert!(refused.contains("NOAUTH"), "{flavour}: {refused}");
        if flavour.has_tls() {
            let node = &cluster.nodes[4];
            let (port, authority) = (node.tls_port().to_string(), cluster.nodes[0].ca_file());
            let tls = ["--no-auth-warning", "-a", "pass", "-p", &port, "--tls", "--cacert"];
            let seen = node.cli(&[&tls[..], &[authority.to_str().unwrap(), "CLUSTER", "SLOTS"]].concat());
            assert!(seen.contains(&port), "{seen}");
            assert!(cluster.url().starts_with("rediss+cluster://:pass@127.0.0.1:"), "{}", cluster.url());
        }
    }
}
