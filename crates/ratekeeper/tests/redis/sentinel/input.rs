//! Sentinels that are wrong, silent, strict or of two minds.

use std::time::Duration;

use ratekeeper::{RedisStore, RedisStoreBuilder, StoreError, StoreErrorKind};
use ratekeeper_testkit::servers::{BlackHole, Flavour, SERVICE, Server};

use super::{SECRET, url, url_at, usual};
use crate::engine::builder;
use crate::outages::logs;
use crate::setup::{charge, is_allowed, quota, until};

/// A port where nobody listens.
const CLOSED: u16 = 1;
/// Long enough for a busy machine, and short enough to wait for a sentinel that is silent.
const DEADLINE: Duration = Duration::from_secs(1);

async fn counts(builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.build().unwrap();
    until("a connection", async || store.ping().await.is_ok()).await;
    assert!(is_allowed(&store, &charge("q", "s", quota("1/h"))).await);
    assert!(!is_allowed(&store, &charge("q", "s", quota("1/h"))).await);
    store
}

/// The error of a store that cannot be asked, once somebody has found out why.
async fn refused(builder: RedisStoreBuilder, why: &str) -> StoreError {
    let shown = format!("{builder:?}");
    let store = builder.build().unwrap();
    let mut found = None;
    until(why, async || {
        let error = store.ping().await.expect_err(why);
        let is_it = error.to_string().contains(why);
        found = Some(error);
        is_it
    })
    .await;
    let error = found.unwrap();
    for text in [shown, format!("{store:?} {error:?} {error}")] {
        assert!(!text.contains(SECRET), "{text}");
    }
    error
}

#[tokio::test]
async fn what_is_wrong_with_who_is_asked_is_said() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let server = Server::start(flavour);
        let sentinel = server.sentinel(1, &[]);
        let port = sentinel.port();
        let cases = [
            (
                url_at(&[port], "other"),
                format!("127.0.0.1:{port} knows no service \"other\", but \"{SERVICE}\""),
            ),
            (url_at(&[server.port()], SERVICE), "is no sentinel but a server: name the sentinels".to_owned()),
            (url_at(&[CLOSED], SERVICE), "127.0.0.1:1 is not there: nobody listens".to_owned()),
        ];
        for (url, why) in cases {
            let error = refused(usual(&url).deadline(DEADLINE), &why).await;
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
    }
}

/// One that answers is enough, whatever the others do; and the log says what they do.
#[tokio::test]
async fn one_that_knows_is_enough() {
    let before = logs::begin();
    let (server, hole) = (Server::start(Flavour::Redis7), BlackHole::start());
    let sentinel = server.sentinel(1, &[]);
    let url = url_at(&[hole.port(), CLOSED, server.port(), sentinel.port()], SERVICE);
    let store = counts(usual(&url).deadline(DEADLINE)).await;
    let (answers, primary) = store.sentinels().await.unwrap();
    assert_eq!(answers.len(), 4);
    let says: Vec<String> = answers
        .iter()
        .map(|answer| answer.primary.as_ref().map_or_else(ToString::to_string, Clone::clone))
        .collect();
    assert!(says[0].contains("did not answer within") && says[1].contains("nobody listens"), "{says:?}");
    assert!(says[2].contains("is no sentinel"), "{says:?}");
    assert_eq!(says[3], format!("127.0.0.1:{}", server.port()));
    let primary = primary.unwrap();
    assert_eq!((primary.host.as_str(), primary.port), ("127.0.0.1", server.port()));
    let is_told = |line: &String| {
        line.contains(&format!("127.0.0.1:{}", hole.port())) && line.contains("some sentinels do not answer")
    };
    until("a line", async || logs::all()[before..].iter().any(is_told)).await;
}

/// Two groups that call different servers by the same name.
#[tokio::test]
async fn sentinels_that_disagree_are_not_believed() {
    let servers = [Server::start(Flavour::Redis7), Server::start(Flavour::Redis7)];
    let sentinels = [servers[0].sentinel(1, &[]), servers[1].sentinel(1, &[])];
    let both = url(&[&sentinels[0], &sentinels[1]]);
    let says = format!("127.0.0.1:{} says 127.0.0.1:{}", sentinels[0].port(), servers[0].port());
    let error = refused(usual(&both).deadline(DEADLINE), &says).await;
    assert!(error.to_string().contains("the sentinels disagree: "), "{error}");
    assert!(error.to_string().contains("sentinels of one group only"), "{error}");
}

/// A sentinel may name a server that is a replica by now.
#[tokio::test]
async fn a_replica_is_not_used_until_it_is_a_primary() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let (server, hole) = (Server::start(flavour), BlackHole::start());
        let sentinel = server.sentinel(1, &[]);
        let store = counts(usual(&url(&[&sentinel])).deadline(DEADLINE)).await;
        let replica_of = ["REPLICAOF", "127.0.0.1", &hole.port().to_string()];
        assert_eq!(server.cli(&replica_of), "OK");
        // It does not hang up; what it refuses to write is enough to ask who it is.
        until("a replica that is left", async || {
            let _ = crate::setup::ask(&store, &charge("q", "t", quota("1/h"))).await;
            store.ping().await.is_err_and(|error| error.to_string().contains("it is no primary"))
        })
        .await;
        let error = refused(usual(&url(&[&sentinel])).deadline(DEADLINE), "its role is slave").await;
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
        until("a primary", async || store.ping().await.is_ok()).await;
    }
}

#[tokio::test]
async fn passwords_and_users_of_servers_and_sentinels() {
    let before = logs::begin();
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        let app = "app on >app-hunter2 resetchannels ~rk:* ~ratelimit:* ~ratelimit_override:* ~ratelimit_org_override:* \
            +script|load +evalsha +eval +time +exists +get +mget +set +setrange +del +pexpire \
            +pttl +incrby +hmget +hgetall +llen +lindex +lset +rpush";
        let server = Server::start_with(flavour, &[("requirepass", "server-hunter2"), ("user", app)]);
        let scout =
            "scout on >scout-hunter2 +sentinel|master +sentinel|masters +sentinel|get-master-addr-by-name";
        let sentinel = server.sentinel(1, &[("requirepass", "sentinel-hunter2"), ("user", scout)]);
        let plain = url(&[&sentinel]);
        let with = |login: &str, query: &str| plain.replace("://", &format!("://{login}")) + query;
        let own = "?sentinel_password=sentinel-hunter2";

        let _store = counts(builder(&with(":server-hunter2@", own))).await;
        let as_scout = with(":server-hunter2@", "?sentinel_user=scout&sentinel_password=scout-hunter2");
        builder(&as_scout).build().unwrap().ping().await.unwrap();
        let files =
            usual(&plain).deadline(DEADLINE).sentinel_password_from(|| Ok("sentinel-hunter2".to_owned()));
        let files = files.password_from(|| Ok("server-hunter2".to_owned())).build().unwrap();
        until("passwords from elsewhere", async || files.ping().await.is_ok()).await;

        let wrong = [
            (
                with(":server-hunter2@", ""),
                "wants a password: ?sentinel_password= at the end of the URL has it",
            ),
            (
                with(":server-hunter2@", "?sentinel_password=hunter2"),
                "does not accept sentinel_user and sentinel_password",
            ),
            (with("", own), "Authentication required"),
            (with("app:app-hunter2@", own), "'role'"),
        ];
        for (url, why) in wrong {
            let error = refused(usual(&url).deadline(DEADLINE), why).await;
            assert_eq!(error.kind(), StoreErrorKind::Permission, "{url}: {error}");
        }
        let hello = ["--no-auth-warning", "-a", "server-hunter2", "ACL", "SETUSER", "app", "+role"];
        assert_eq!(server.cli(&hello), "OK");
        builder(&with("app:app-hunter2@", own)).build().unwrap().ping().await.unwrap();
    }
    let both = builder("redis+sentinel://127.0.0.1/s?sentinel_password=hunter2")
        .sentinel_password_from(|| Ok("x".to_owned()));
    let error = both.build().unwrap_err().to_string();
    assert!(error.contains("got a password in the URL and elsewhere"), "{error}");
    let none = builder("redis://127.0.0.1").sentinel_password_from(|| Ok("x".to_owned()));
    let error = none.build().unwrap_err().to_string();
    assert!(error.contains("got a password for sentinels; expected redis+sentinel://"), "{error}");
    logs::all()[before..].iter().for_each(|line| assert!(!line.contains(SECRET), "{line}"));
}

#[tokio::test]
async fn by_tls_to_sentinels_and_server() {
    let server = Server::start_tls(Flavour::Redis7);
    let sentinel = server.sentinel(1, &[]);
    let tls = format!("rediss+sentinel://127.0.0.1:{}/{SERVICE}/1", sentinel.tls_port());
    let _store = counts(builder(&tls).certificate_authority(server.ca_pem())).await;
    assert_eq!(server.cli(&["-n", "1", "--scan"]), "rk:c:q:s");
    let plain = format!("redis+sentinel://127.0.0.1:{}/{SERVICE}", sentinel.port());
    let error = builder(&plain).certificate_authority(server.ca_pem()).build().unwrap_err().to_string();
    assert!(error.contains("expected rediss+sentinel:// or valkeys+sentinel://"), "{error}");
    refused(usual(&tls).deadline(DEADLINE), "no sentinel says where the primary is").await;
}
