//! Whether a server is there and lets us in.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError, TlsCertificates,
};

use super::finding::Finding;
use crate::commands::opened::Address;
use crate::failure::Failure;

/// What others on the way could read.
pub(super) fn transport(address: &Address) -> Result<Vec<Finding>, Failure> {
    let info = address
        .url
        .as_str()
        .into_connection_info()
        .map_err(|error| Failure::new(format!("--store: {error}")))?;
    let has_password = info.redis_settings().password().is_some();
    let ConnectionAddr::Tcp(host, _) = info.addr() else { return Ok(Vec::new()) };
    if !has_password || is_loopback(host) {
        return Ok(Vec::new());
    }
    let found = "the password crosses the network as it is: redis:// does not encrypt";
    Ok(vec![
        Finding::warning("transport", found).fix("rediss://, with a server that speaks TLS (`tls-port`)"),
    ])
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A connection over which the server has answered; or what is in the way.
pub(super) async fn connect(address: &Address) -> Result<(MultiplexedConnection, Finding), Finding> {
    let client = client(address).map_err(|error| refused("the server", &error, address.timeout))?;
    let server = client.get_connection_info().addr().to_string();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(address.timeout))
        .set_response_timeout(Some(address.timeout));
    let begun = Instant::now();
    let attempt = async {
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        // To whoever is not let in, a server says so only then.
        redis::cmd("PING").query_async::<redis::Value>(&mut connection).await.or_else(|error| {
            // Whoever may not do this has been let in all the same.
            if error.code() == Some("NOPERM") { Ok(redis::Value::Nil) } else { Err(error) }
        })?;
        Ok(connection)
    };
    let whole = address.timeout.saturating_mul(2);
    match tokio::time::timeout(whole, attempt).await {
        Ok(Ok(connection)) => {
            let taken = begun.elapsed().as_secs_f64() * 1e3;
            Ok((connection, Finding::ok("connection", format!("{server} lets us in, in {taken:.1} ms"))))
        }
        Ok(Err(error)) => Err(refused(&server, &error, address.timeout)),
        Err(_) => Err(silent(&server, address.timeout)),
    }
}

fn client(address: &Address) -> Result<Client, RedisError> {
    match &address.ca {
        None => Client::open(address.url.as_str()),
        Some(ca) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
            Client::build_with_tls(address.url.as_str(), certificates)
        }
    }
}

fn silent(server: &str, timeout: Duration) -> Finding {
    Finding::error("connection", format!("{server} did not answer within {timeout:?}")).fix(
        "look for a firewall; rediss:// is for a TLS port and redis:// for a plain one, the wrong one is silent",
    )
}

fn refused(server: &str, error: &RedisError, timeout: Duration) -> Finding {
    let because = |why: &str, fix: &str| Finding::error("connection", format!("{server}: {why}")).fix(fix);
    if error.is_timeout() {
        return silent(server, timeout);
    }
    if error.is_connection_refusal() {
        return because("nobody listens there", "start the server, or correct host and port of the URL");
    }
    match (error.kind(), error.code()) {
        (_, Some("NOAUTH")) => because(
            "wants a password, and the URL has none",
            "redis://USER:PASSWORD@HOST:PORT, best in RATEKEEPER_STORE",
        ),
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => because(
            "does not accept user and password",
            "correct them in the URL (percent-encode what is not plain); `ACL SETUSER` sets them on the server",
        ),
        _ => because(
            &error.to_string(),
            "correct host, port, scheme (rediss:// speaks TLS) and database of the URL",
        ),
    }
}
