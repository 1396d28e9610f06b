//! Whether a server is there and lets us in.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ratekeeper::store::ServerParts;
use ratekeeper::store::redis::PASSWORD_BYTES_MAX;
use ratekeeper_server::files;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, TlsCertificates,
};

use super::finding::Finding;
use crate::commands::opened::Address;

/// What others on the way could read.
pub(super) fn transport(address: &Address, server: &ServerParts) -> Option<Finding> {
    let is_local = server.socket.is_some() || is_loopback(&server.host);
    let has_password = server.password.is_some() || address.password_file.is_some();
    if server.is_tls || is_local || !has_password {
        return None;
    }
    let found = "the password crosses the network as it is: redis:// does not encrypt";
    Some(Finding::warning("transport", found).fix("rediss://, with a server that speaks TLS (`tls-port`)"))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A connection over which the server has answered; or what is in the way.
pub(super) async fn connect(
    address: &Address,
    server: &ServerParts,
) -> Result<(MultiplexedConnection, Finding), Finding> {
    let client = client(address, server).map_err(|error| refused("the server", &error, address.timeout))?;
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

fn client(address: &Address, server: &ServerParts) -> Result<Client, RedisError> {
    let mut info = info(address, server)?;
    if let Some(file) = &address.password_file {
        // As the store has read it a moment ago.
        let text = files::text(file, PASSWORD_BYTES_MAX as u64 + 2).map_err(io::Error::other)?;
        let settings = info.redis_settings().clone().set_password(text.trim_end_matches(['\r', '\n']));
        info = info.set_redis_settings(settings);
    }
    match &address.ca {
        None => Client::open(info),
        Some(ca) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
            Client::build_with_tls(info, certificates)
        }
    }
}

/// As the URL says, but where sentinels or nodes of a cluster say.
fn info(address: &Address, server: &ServerParts) -> Result<ConnectionInfo, RedisError> {
    if !address.url.has_sentinels() && !address.url.has_nodes() {
        return address.url.as_str().into_connection_info();
    }
    let (host, port) = (server.host.clone(), server.port);
    let place = match server.is_tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    };
    let mut login = RedisConnectionInfo::default().set_db(server.database);
    if let Some(user) = &server.user {
        login = login.set_username(user);
    }
    if let Some(password) = &server.password {
        login = login.set_password(password);
    }
    Ok(place.into_connection_info()?.set_redis_settings(login))
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
            "redis://USER:PASSWORD@HOST:PORT, best in RATEKEEPER_STORE; or --store-password-file",
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
