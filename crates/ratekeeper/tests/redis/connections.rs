//! The ways to a server, and what those hear who are not let in.

use std::time::Duration;

use ratekeeper::{RedisStore, RedisStoreBuilder, StoreErrorKind};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::builder;
use crate::outages::logs;
use crate::setup::{ask, charge, is_allowed, keys, quota, until};

/// Stands in every URL here, and must not stand anywhere else.
const SECRET: &str = "hunter2";

/// A store that works: it counts.
async fn counts(builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.build().unwrap();
    assert!(is_allowed(&store, &charge("q", "s", quota("1/h"))).await);
    assert!(!is_allowed(&store, &charge("q", "s", quota("1/h"))).await);
    store
}

#[tokio::test]
async fn by_port_by_socket_and_in_any_database() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let urls = [
            (server.url(), "0"),
            (format!("{}/3", server.url()), "3"),
            (format!("{}?db=4", server.unix_url()), "4"),
            (format!("{}?db=5", server.unix_url().replace("redis+unix", "unix")), "5"),
        ];
        for (url, database) in urls {
            let _store = counts(builder(&url)).await;
            assert_eq!(server.cli(&["-n", database, "--scan"]), "rk:c:q:s", "{url}");
            assert_eq!(server.cli(&["-n", database, "DEL", "rk:c:q:s"]), "1");
        }
        let _store = counts(builder(&server.unix_url()).connections(3)).await;
        assert_eq!(keys(&server), ["rk:c:q:s"]);
    }
}

#[tokio::test]
async fn with_a_password_or_as_a_user() {
    for flavour in Flavour::ALL {
        let server = Server::start_with(flavour, &[("requirepass", SECRET)]);
        let address = format!("127.0.0.1:{}", server.port());
        let _store = counts(builder(&format!("redis://:{SECRET}@{address}"))).await;
        let hello = ["--no-auth-warning", "-a", SECRET];
        let user = ["ACL", "SETUSER", "ann", "on", ">p@ss:w/rd", "~*", "+@all"];
        assert_eq!(server.cli(&[hello.as_slice(), &user].concat()), "OK");
        let _store = counts(builder(&format!("redis://ann:p%40ss%3Aw%2Frd@{address}/1"))).await;
        for wrong in ["redis://", "redis://ann:hunter2@", "redis://:wrong@"] {
            let store = builder(&format!("{wrong}{address}")).build().unwrap();
            let error = store.ping().await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Permission, "{wrong} on {flavour}: {error}");
            assert!(!error.is_transient());
            // A check and everything else hear the same.
            let error = ask(&store, &charge("q", "s", quota("1/h"))).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Permission, "{wrong} on {flavour}: {error}");
        }
    }
}

/// A user's password is changed and the connections are closed: new ones log in with what the file says by then.
#[tokio::test]
async fn a_password_can_be_changed_while_a_store_is_open() {
    let before = logs::begin();
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let change = |password: &str| {
            let user = ["ACL", "SETUSER", "ann", "on", "resetpass", &format!(">{password}"), "~*", "+@all"];
            assert_eq!(server.cli(&user), "OK");
        };
        let hang_up = || assert_ne!(server.cli(&["CLIENT", "KILL", "USER", "ann"]), "0");
        change("first-hunter2");
        std::fs::write(&file, "first-hunter2\n").unwrap();
        let url = format!("redis://ann@127.0.0.1:{}", server.port());
        let from_file = counts(builder(&url).password_file(&file).connections(2)).await;
        let read = file.clone();
        let from_code = builder(&url)
            .password_from(move || std::fs::read_to_string(&read).map(|text| text.trim_end().to_owned()));
        let from_code = from_code.build().unwrap();
        from_code.ping().await.unwrap();

        change("second-hunter2");
        hang_up();
        until("a refusal", async || {
            from_file.ping().await.is_err_and(|error| error.kind() == StoreErrorKind::Permission)
        })
        .await;
        std::fs::write(&file, "second-hunter2\n").unwrap();
        for store in [&from_file, &from_code] {
            until("the new password", async || store.ping().await.is_ok()).await;
        }
        assert!(!format!("{from_file:?} {:?}", builder(&url).password_file(&file)).contains(SECRET));
        // Nobody logs in with the old one any more.
        hang_up();
        until("new connections", async || from_file.ping().await.is_ok()).await;
    }
    let both = builder(&format!("redis://ann:{SECRET}@127.0.0.1:1")).password_from(|| Ok("other".to_owned()));
    let error = both.build().unwrap_err().to_string();
    assert!(error.contains("got a password in the URL and elsewhere; expected"), "{error}");
    let missing = builder("redis://127.0.0.1:1").password_file("/there/is/no/such");
    let error = missing.build().unwrap_err().to_string();
    assert!(error.contains("/there/is/no/such") && error.contains("; expected"), "{error}");
    logs::all()[before..].iter().for_each(|line| assert!(!line.contains(SECRET), "{line}"));
}

#[tokio::test]
async fn by_tls_to_whom_the_authority_vouches_for() {
    let before = logs::begin();
    let (server, other) = (Server::start_tls(Flavour::Redis7), Server::start_tls(Flavour::Redis7));
    assert_eq!(server.cli(&["CONFIG", "SET", "requirepass", SECRET]), "OK");
    let url = format!("rediss://:{SECRET}@localhost:{}/1", server.tls_port());
    let _store = counts(builder(&url).certificate_authority(server.ca_pem())).await;
    let both = other.ca_pem() + &server.ca_pem();
    builder(&url).certificate_authority(both).build().unwrap().ping().await.unwrap();

    let plain = url.replace("rediss:", "redis:");
    let no_tls_there = url.replace(&server.tls_port().to_string(), &server.port().to_string());
    let doubtful = [
        ("another authority", builder(&url).certificate_authority(other.ca_pem())),
        ("the system's authorities", builder(&url)),
        ("no TLS", builder(&plain)),
        ("TLS to the plain port", builder(&no_tls_there).certificate_authority(server.ca_pem())),
    ];
    for (what, builder) in doubtful {
        let builder = builder.deadline(Duration::from_secs(2));
        let shown = format!("{builder:?}");
        let store = builder.build().unwrap();
        let error = store.ping().await.unwrap_err();
        let timeout_or = matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::Timeout);
        assert!(timeout_or && error.is_transient(), "{what}: {error}");
        for text in [shown, format!("{store:?}"), format!("{error:?}"), error.to_string()] {
            assert!(!text.contains(SECRET), "{what}: {text}");
        }
    }
    let lines = logs::all().split_off(before);
    let place = format!("localhost:{}", server.tls_port());
    let is_told = |line: &String| line.contains("circuit breaker open") && line.contains(&place);
    assert!(lines.iter().any(is_told), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(SECRET)), "{lines:?}");
}

#[tokio::test]
async fn what_is_wrong_with_an_url_or_a_setting_is_said_without_the_password() {
    let secret = |url: &str| url.replace("SECRET", SECRET);
    let urls = [
        "",
        "SECRET",
        "http://ann:SECRET@localhost",
        "redis://ann:SECRET@localhost:port",
        "redis://ann:SECRET@localhost:99999",
        "redis://ann:SECRET@localhost/name",
        "redis://ann:SECRET@localhost/0?protocol=resp9",
        "redis://ann:SECRET@",
        "redis://:SECRET@[::1",
        "redis+unix://",
        "memory",
        "redis+sentinel://ann:SECRET@localhost",
        "redis+sentinel://ann:SE/SECRET@localhost/service",
        "redis+sentinel://localhost/service?password=SECRET",
    ];
    let url = "redis://, rediss://, redis+unix://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster://, \
               rediss+cluster://, valkey://, valkeys://, valkey+unix://, valkey+sentinel://, valkeys+sentinel://, \
               valkey+cluster:// or valkeys+cluster://, such as redis://user:password@host:6379/0, \
               redis+sentinel://user:password@host:26379,host:26379/service/0 or \
               redis+cluster://user:password@host:6379,host:6379; several servers each with its scheme: \
               redis://host,redis://other";
    let mut wrong: Vec<(String, RedisStoreBuilder, &str)> =
        urls.map(|text| (secret(text), builder(&secret(text)), url)).into();
    let good = builder(&secret("redis://ann:SECRET@localhost"));
    let tls = builder(&secret("rediss://ann:SECRET@localhost"));
    let authority = "rediss:// or valkeys://, and certificates in PEM form, with a certificate authority";
    let settings = [
        ("prefix", good.clone().prefix(&"x".repeat(129)), "a prefix of at most 128 printable characters"),
        ("prefix", good.clone().prefix("a b"), "a prefix of at most 128 printable characters"),
        ("deadline", good.clone().deadline(Duration::ZERO), "a deadline from 1 ms to 60 s"),
        ("deadline", good.clone().deadline(Duration::from_secs(61)), "a deadline from 1 ms to 60 s"),
        ("queue", good.clone().queue_max(0), "a queue of at least 1"),
        ("connections", good.clone().connections(0), "1 to 64 connections"),
        ("connections", good.clone().connections(65), "1 to 64 connections"),
        ("plain", good.certificate_authority("-----BEGIN CERTIFICATE-----"), authority),
        ("empty", tls.clone().certificate_authority(""), authority),
        ("not PEM", tls.clone().certificate_authority("garbage"), authority),
    ];
    wrong.extend(settings.map(|(what, builder, expected)| (what.to_owned(), builder, expected)));
    for (what, builder, expected) in wrong {
        let shown = format!("{builder:?}");
        let error = builder.build().unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("store: got ") && text.ends_with(&format!("; expected {expected}")),
            "{text}"
        );
        for text in [shown, text, format!("{error:?}")] {
            assert!(!text.contains(SECRET), "{what}: {text}");
        }
    }
    let broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let error = tls.certificate_authority(broken).build().unwrap_err().to_string();
    assert!(error.contains("certificates"), "{error}");
}

#[test]
fn outside_of_a_runtime_there_is_no_store() {
    let error = builder("redis://localhost").build().unwrap_err().to_string();
    assert_eq!(error, "store: got no tokio runtime; expected a store that is made inside of one");
}
