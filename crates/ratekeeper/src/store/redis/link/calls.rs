//! Calls of the script on a connection: one, or several behind one another.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use smallvec::{SmallVec, smallvec};

use super::super::answer::garbled;
use super::super::encode::Call;
use super::super::redirect::Redirect;
use super::Link;
use crate::store::StoreError;

/// A call of the script on its way.
#[derive(Debug)]
pub(in crate::store::redis) struct Outgoing<'i> {
    pub(in crate::store::redis) call: Call<'i>,
    /// Whether its keys are moving, and it goes to the node that they move to.
    pub(in crate::store::redis) is_asking: bool,
}

/// What became of each of several calls.
pub(in crate::store::redis) type Replies = SmallVec<[Result<Value, RedisError>; 1]>;

impl Link {
    /// EVALSHA; and where the script is not known (a restart, a failover, SCRIPT
    /// FLUSH), EVAL: then nothing has been executed.
    pub(super) async fn evaluate(
        &self,
        mut connection: MultiplexedConnection,
        call: &Call<'_>,
    ) -> Result<Value, RedisError> {
        let by_sha = command("EVALSHA", &self.script.sha, call);
        match connection.send_packed_command(&by_sha).await?.extract_error() {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let whole = command("EVAL", &self.script.text, call);
                connection.send_packed_command(&whole).await?.extract_error()
            }
            other => other,
        }
    }

    /// The same for calls of which each has keys of its own, in one go.
    pub(super) async fn evaluate_all(
        &self,
        mut connection: MultiplexedConnection,
        calls: &[Outgoing<'_>],
    ) -> Result<Replies, RedisError> {
        if let [Outgoing { call, is_asking: false }] = calls {
            let reply = self.evaluate(connection, call).await;
            return match reply {
                Err(error) if Redirect::of(&error).is_none() => Err(error),
                reply => Ok(smallvec![reply]),
            };
        }
        let all: Vec<&Outgoing<'_>> = calls.iter().collect();
        let mut replies = self.piped(&mut connection, "EVALSHA", &all).await?;
        let unknown = |reply: &Result<Value, RedisError>| {
            reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT"))
        };
        let again: Vec<usize> = (0..calls.len()).filter(|index| unknown(&replies[*index])).collect();
        if !again.is_empty() {
            let calls: Vec<&Outgoing<'_>> = again.iter().map(|index| &calls[*index]).collect();
            let answers = self.piped(&mut connection, "EVAL", &calls).await?;
            again.into_iter().zip(answers).for_each(|(index, answer)| replies[index] = answer);
        }
        all_failed(replies)
    }

    /// Sends calls behind one another. With EVAL, the first brings the script, and the others know it then.
    async fn piped(
        &self,
        connection: &mut MultiplexedConnection,
        name: &str,
        calls: &[&Outgoing<'_>],
    ) -> Result<Replies, RedisError> {
        let mut pipeline = redis::pipe();
        let mut places = Vec::with_capacity(calls.len());
        let mut count = 0;
        for (index, outgoing) in calls.iter().enumerate() {
            if outgoing.is_asking {
                pipeline.add_command(redis::cmd("ASKING"));
                count += 1;
            }
            let (name, script) = match (name, index) {
                ("EVAL", 0) => ("EVAL", &*self.script.text),
                _ => ("EVALSHA", &*self.script.sha),
            };
            pipeline.add_command(command(name, script, &outgoing.call));
            places.push(count);
            count += 1;
        }
        let mut values = connection.send_packed_commands(&pipeline, 0, count).await?;
        if values.len() != count {
            return Err((redis::ErrorKind::UnexpectedReturnType, "too few answers").into());
        }
        Ok(places
            .into_iter()
            .map(|place| std::mem::replace(&mut values[place], Value::Nil).extract_error())
            .collect())
    }
}

/// Calls that failed all, and not because their keys are elsewhere, are a failure of the server.
fn all_failed(replies: Replies) -> Result<Replies, RedisError> {
    let fails =
        |reply: &Result<Value, RedisError>| reply.as_ref().is_err_and(|error| Redirect::of(error).is_none());
    if replies.iter().all(fails)
        && let Some(Err(error)) = replies.iter().next()
    {
        return Err(error.clone());
    }
    Ok(replies)
}

/// The answer of the script.
pub(in crate::store::redis) fn bytes_of(reply: Value) -> Result<Vec<u8>, StoreError> {
    match reply {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(garbled()),
    }
}

pub(in crate::store::redis) fn command(name: &str, script: &str, call: &Call<'_>) -> Cmd {
    let size =
        call.keys.iter().map(|key| key.len() + 16).sum::<usize>() + call.batch.len() + script.len() + 64;
    let mut command = Cmd::with_capacity(call.keys.len() + call.kept.len() + 4, size);
    command.arg(name).arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(*key);
    }
    command.arg(&*call.batch);
    for kept in &call.kept {
        command.arg(*kept);
    }
    command
}
