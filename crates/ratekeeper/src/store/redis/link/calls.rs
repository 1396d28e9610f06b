//! Calls of the script on a connection: one, or several behind one another.

use std::time::Duration;

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

/// What became of several calls that were sent in one go.
#[derive(Debug)]
pub(in crate::store::redis) struct Answered {
    pub(in crate::store::redis) replies: Replies,
    /// Whether as many replicas have what was written as the store waits for.
    pub(in crate::store::redis) is_confirmed: bool,
}

/// How many replicas must have a charge before it is answered, and how long the server may wait for them.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct Confirming {
    pub(in crate::store::redis) replicas: usize,
    millis: u64,
}

impl Confirming {
    /// Half of the deadline is left for the way of the answer.
    pub(in crate::store::redis) fn new(replicas: usize, deadline: Duration) -> Self {
        let millis = u64::try_from(deadline.as_millis() / 2).unwrap_or(u64::MAX);
        Self { replicas, millis: millis.max(1) }
    }

    const fn is_wanted(self) -> bool {
        self.replicas > 0
    }

    /// The command that says how many replicas have what this connection has written.
    fn command(self) -> Cmd {
        redis::cmd("WAIT").arg(self.replicas).arg(self.millis).to_owned()
    }

    fn is_met(self, reply: &Value) -> bool {
        matches!(reply, Value::Int(count) if usize::try_from(*count).is_ok_and(|count| count >= self.replicas))
    }
}

impl Link {
    /// Finds out whether the user may wait for replicas, if the store is to.
    pub(super) async fn refuse_waiting(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        if !self.confirming.is_wanted() {
            return Ok(());
        }
        redis::cmd("WAIT").arg(0).arg(1).query_async::<Value>(connection).await.map(drop)
    }

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
    ) -> Result<Answered, RedisError> {
        if let [Outgoing { call, is_asking: false }] = calls
            && !self.confirming.is_wanted()
        {
            let reply = self.evaluate(connection, call).await;
            return match reply {
                Err(error) if Redirect::of(&error).is_none() => Err(error),
                reply => Ok(Answered { replies: smallvec![reply], is_confirmed: true }),
            };
        }
        let all: Vec<&Outgoing<'_>> = calls.iter().collect();
        let Answered { mut replies, mut is_confirmed } = self.piped(&mut connection, "EVALSHA", &all).await?;
        let unknown = |reply: &Result<Value, RedisError>| {
            reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT"))
        };
        let again: Vec<usize> = (0..calls.len()).filter(|index| unknown(&replies[*index])).collect();
        if !again.is_empty() {
            let calls: Vec<&Outgoing<'_>> = again.iter().map(|index| &calls[*index]).collect();
            let answers = self.piped(&mut connection, "EVAL", &calls).await?;
            // What a connection has written before is part of what it asks about.
            is_confirmed = answers.is_confirmed;
            again.into_iter().zip(answers.replies).for_each(|(index, answer)| replies[index] = answer);
        }
        Ok(Answered { replies: all_failed(replies)?, is_confirmed })
    }

    /// Sends calls behind one another. With EVAL, the first brings the script, and the others know it then.
    async fn piped(
        &self,
        connection: &mut MultiplexedConnection,
        name: &str,
        calls: &[&Outgoing<'_>],
    ) -> Result<Answered, RedisError> {
        let (mut pipeline, confirming) = (redis::pipe(), self.confirming);
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
        if confirming.is_wanted() {
            pipeline.add_command(confirming.command());
            count += 1;
        }
        let mut values = connection.send_packed_commands(&pipeline, 0, count).await?;
        if values.len() != count {
            return Err((redis::ErrorKind::UnexpectedReturnType, "too few answers").into());
        }
        let is_confirmed =
            !confirming.is_wanted() || values.last().is_some_and(|reply| confirming.is_met(reply));
        let replies =
            places.into_iter().map(|place| std::mem::replace(&mut values[place], Value::Nil).extract_error());
        Ok(Answered { replies: replies.collect(), is_confirmed })
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
