//! What a node says it is, before it is trusted with counters.

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

/// Characters of a role in an error.
const ROLE_CHARS_MAX: usize = 32;

/// Sentinels may be late to notice that a primary has become a replica, which has yesterday's counters.
pub(super) async fn refuse_replicas(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let role = redis::cmd("ROLE").query_async::<Vec<Value>>(connection).await?;
    let role = role.into_iter().next().map(redis::from_redis_value::<String>);
    match role.and_then(Result::ok).as_deref() {
        Some("master") => Ok(()),
        other => {
            let words = "it is no primary, whatever the sentinels say, and is not used";
            let role: String = other.unwrap_or("unknown").chars().take(ROLE_CHARS_MAX).collect();
            Err((redis::ErrorKind::InvalidClientConfig, words, format!("its role is {role}")).into())
        }
    }
}

/// One node of a cluster has a part of the keys only, and a server that is none has not even heard of the others: checks
/// would fail, and so be let pass.
pub(super) async fn refuse_misplaced(
    connection: &mut MultiplexedConnection,
    is_of_cluster: bool,
) -> Result<(), RedisError> {
    // A user who may not ask is let in: what the node refuses later is logged then.
    let Ok(info) = redis::cmd("INFO").arg("cluster").query_async::<String>(connection).await else {
        return Ok(());
    };
    let words = match (info.contains("cluster_enabled:1"), is_of_cluster) {
        (true, false) => "it is a node of a cluster: name the cluster, with redis+cluster://",
        (false, true) => STAND_ALONE,
        _ => return Ok(()),
    };
    Err((redis::ErrorKind::InvalidClientConfig, words).into())
}

/// What to do about a server that is no node of a cluster.
pub(super) const STAND_ALONE: &str = "it is a server by itself and no node of a cluster: name nodes of one cluster, or this server with redis://";
