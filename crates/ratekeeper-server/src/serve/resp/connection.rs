//! A connection: commands in, replies out, and how it ends.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use hyper_util::rt::TokioIo;
use ratekeeper::{Decision, InvalidInput};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::input::{Input, Source};
use super::parse::{Arguments, Command, Parsed, ProtocolError};
use super::reply::Replies;
use super::session::{After, Session};
use super::{Resp, throttle};
use crate::serve::api::Throttled;
use crate::serve::listener::linger::{LINGER_MAX, linger};
use crate::serve::listener::{FIRST_REQUEST_WAIT, Finishing, Place, Protocol as _, leaves_after};

/// Replies beyond so many bytes are sent before the next command is looked at.
pub const REPLIES_BYTES_MAX: usize = 16 << 10;
/// Charges of a pipeline that are judged together on a store that waits for I/O.
pub const TOGETHER_MAX: usize = 64;
/// The longest that a last word is tried to be said.
const LAST_WORD_WAIT: Duration = Duration::from_secs(1);
/// The place of `CL.THROTTLE` in the table.
const THROTTLE: Option<usize> = Some(0);

/// A connection while it is served.
pub(super) struct Connection<'r> {
    resp: &'r Resp,
    session: Session,
    arguments: Arguments,
    replies: Replies,
    /// Written over by each charge, so that none allocates.
    subject: String,
    decision: Decision,
}

/// What goes on on a connection, for those who only look.
#[derive(Debug, Default)]
struct Progress {
    /// Times that everything complete was answered.
    answered: AtomicU64,
    /// Whether it waits for the client to send ...
    is_reading: AtomicBool,
    /// ... the rest of something.
    has_part: AtomicBool,
    is_finishing: AtomicBool,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has gone, or is of no interest.
    Gone,
    /// Something was said that the client should still read.
    LastWord,
}

type Judged = Result<Throttled, InvalidInput>;

impl Connection<'_> {
    /// Serves all commands on a connection.
    pub(super) async fn serve<S>(
        resp: Arc<Resp>,
        mut stream: S,
        finishing: Finishing,
        place: Place,
        from: Option<IpAddr>,
    ) where
        S: Source + AsyncWrite + Unpin + Send,
    {
        if place.is_spare() {
            last_word(&mut stream, resp.refused()).await;
            return;
        }
        let (progress, opened) = (Progress::default(), Instant::now());
        let end = {
            let mut served = pin!(talk(&resp, &mut stream, &progress, from));
            tokio::select! {
                biased;
                end = &mut served => end.unwrap_or(End::Gone),
                () = progress.until_quiet(&resp, finishing.clone()) => End::Gone,
                () = progress.until_finishing(finishing.clone(), opened) => {
                    progress.is_finishing.store(true, Ordering::Relaxed);
                    tokio::select! {
                        biased;
                        end = &mut served => end.unwrap_or(End::Gone),
                        () = progress.until_quiet(&resp, finishing.clone()) => End::Gone,
                    }
                }
            }
        };
        if end == End::LastWord {
            linger(TokioIo::new(stream), LINGER_MAX.min(resp.idle), finishing).await;
        } else if progress.is_waiting_for_a_rest() {
            last_word(&mut stream, b"-ERR Protocol error: the rest of a command did not come in time\r\n")
                .await;
        }
    }

    /// Answers every complete command in `bytes`; says how many bytes they took, and whether to go on.
    async fn answer_all<S>(
        &mut self,
        bytes: &[u8],
        stream: &mut S,
    ) -> io::Result<(usize, Result<After, ProtocolError>)>
    where
        S: AsyncWrite + Unpin,
    {
        let resp = self.resp;
        let (mut at, mut together) = (0, FuturesOrdered::new());
        let after = loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let length = match self.arguments.read(rest) {
                Ok(Parsed::Incomplete) => break Ok(After::GoOn),
                Ok(Parsed::Nothing(length)) => {
                    at += length;
                    continue;
                }
                Ok(Parsed::Command(length)) => length,
                Err(error) => break Err(error),
            };
            at += length;
            let command = self.arguments.command(rest);
            if is_throttle(command) && self.session.is_let_in() {
                match throttle::read(command) {
                    Ok(asked) => {
                        let kept = (&mut self.subject, &mut self.decision);
                        match resp.api.throttle_now(&asked, resp.on_outage, kept) {
                            Some(judged) => say(resp, &judged, &mut self.replies),
                            None => together.push_back(resp.api.throttle(&asked, resp.on_outage)),
                        }
                        if together.len() < TOGETHER_MAX && self.replies.bytes.len() < REPLIES_BYTES_MAX {
                            continue;
                        }
                        finish(resp, &mut together, &mut self.replies).await;
                    }
                    Err(error) => {
                        finish(resp, &mut together, &mut self.replies).await;
                        self.replies.error(&error);
                        resp.note(THROTTLE, true);
                    }
                }
            } else {
                finish(resp, &mut together, &mut self.replies).await;
                if self.session.answer(resp, command, &mut self.replies) == After::Close {
                    break Ok(After::Close);
                }
            }
            if self.replies.bytes.len() >= REPLIES_BYTES_MAX {
                send(&mut self.replies, stream).await?;
            }
        };
        finish(resp, &mut together, &mut self.replies).await;
        Ok((at, after))
    }
}

#[inline]
fn is_throttle(command: Command<'_>) -> bool {
    command.name().eq_ignore_ascii_case(b"cl.throttle")
}

/// Everything that is said on a connection.
async fn talk<S>(resp: &Resp, stream: &mut S, progress: &Progress, from: Option<IpAddr>) -> io::Result<End>
where
    S: Source + AsyncWrite + Unpin,
{
    let mut connection = Connection {
        resp,
        session: Session::new(resp, from),
        arguments: Arguments::default(),
        replies: Replies::default(),
        subject: String::new(),
        decision: Decision::default(),
    };
    let mut input = Input::default();
    loop {
        if !progress.read(stream, &mut input).await? {
            return Ok(End::Gone);
        }
        let (length, after) = connection.answer_all(input.unread(), stream).await?;
        input.advance(length);
        if let Err(ProtocolError(error)) = &after {
            connection.replies.error(&format!("ERR {error}"));
            resp.note(None, true);
        }
        if !connection.replies.bytes.is_empty() {
            // Commands that are there already are judged before the first is answered: answers in bursts wake a
            // client once.
            tokio::task::yield_now().await;
            send(&mut connection.replies, stream).await?;
        }
        progress.answered.fetch_add(u64::from(length > 0), Ordering::Relaxed);
        match after {
            Ok(After::GoOn) => {}
            Ok(After::Close) | Err(_) => return Ok(End::LastWord),
        }
    }
}

/// The replies to all charges that were asked together.
async fn finish<F: Future<Output = Judged>>(
    resp: &Resp,
    together: &mut FuturesOrdered<F>,
    replies: &mut Replies,
) {
    if together.is_empty() {
        return;
    }
    while let Some(judged) = together.next().await {
        say(resp, &judged, replies);
    }
}

#[inline]
fn say(resp: &Resp, judged: &Judged, replies: &mut Replies) {
    match judged {
        Ok(told) => throttle::reply(told, replies),
        Err(error) => replies.error(&format!("ERR {error}")),
    }
    resp.note(THROTTLE, judged.is_err());
}

/// Sends all replies in one piece.
async fn send<S: AsyncWrite + Unpin>(replies: &mut Replies, stream: &mut S) -> io::Result<()> {
    stream.write_all(&replies.bytes).await?;
    replies.bytes.clear();
    replies.bytes.shrink_to(2 * REPLIES_BYTES_MAX);
    stream.flush().await
}

/// Says something and nothing more, if the client takes it at once.
async fn last_word<S: AsyncWrite + Unpin>(stream: &mut S, word: &[u8]) {
    let said = async {
        stream.write_all(word).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(LAST_WORD_WAIT, said).await;
}

impl Progress {
    /// Reads what the client sends, behind what is there already; false if it sends nothing more.
    #[inline]
    async fn read(&self, source: &mut impl Source, input: &mut Input) -> io::Result<bool> {
        self.has_part.store(!input.unread().is_empty(), Ordering::Relaxed);
        self.is_reading.store(true, Ordering::Relaxed);
        let read = input.read(source, || self.is_finishing.load(Ordering::Relaxed)).await?;
        self.is_reading.store(false, Ordering::Relaxed);
        Ok(read > 0)
    }

    fn is_waiting_for_a_rest(&self) -> bool {
        self.is_reading.load(Ordering::Relaxed) && self.has_part.load(Ordering::Relaxed)
    }

    /// Until the client has said nothing for too long, or does not take what it is told, or is to leave because the
    /// server will. A look now and then costs a command nothing.
    async fn until_quiet(&self, resp: &Resp, finishing: Finishing) {
        let leaving = async {
            match finishing.draining().await {
                Some(lasting) => self.until_unused_for(leaves_after(lasting), leaves_after(lasting)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.until_unused_for(resp.idle, resp.rest_wait) => {}
            () = leaving => {}
        }
    }

    /// Until nothing was answered for `idle`, or for `rest_wait` while there was something to do.
    async fn until_unused_for(&self, idle: Duration, rest_wait: Duration) {
        let period = idle.min(rest_wait);
        let (mut before, mut idle_for, mut busy_for) = (u64::MAX, Duration::ZERO, Duration::ZERO);
        loop {
            let answered = self.answered.load(Ordering::Relaxed);
            let is_idle = self.is_reading.load(Ordering::Relaxed) && !self.has_part.load(Ordering::Relaxed);
            let unused_for = if is_idle { &mut idle_for } else { &mut busy_for };
            *unused_for = if answered == before { *unused_for + period } else { Duration::ZERO };
            if is_idle {
                busy_for = Duration::ZERO;
            }
            if idle_for >= idle || busy_for >= rest_wait {
                return;
            }
            before = answered;
            tokio::time::sleep(period).await;
        }
    }

    /// Until the server finishes and no first command is on its way. What has arrived by then is seen.
    async fn until_finishing(&self, finishing: Finishing, opened: Instant) {
        finishing.wait().await;
        if self.answered.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(FIRST_REQUEST_WAIT.saturating_sub(opened.elapsed())).await;
        }
        tokio::task::yield_now().await;
    }
}

/// All replies to what a client has sent in two pieces: for fuzzers.
pub(in crate::serve) async fn replies_to(resp: &Resp, one: &[u8], two: &[u8]) -> Vec<u8> {
    let mut stream = tokio::io::join(tokio::io::AsyncReadExt::chain(one, two), Vec::new());
    // In memory nothing fails.
    let _ = talk(resp, &mut stream, &Progress::default(), None).await;
    stream.into_inner().1
}

impl Source for tokio::io::Join<tokio::io::Chain<&[u8], &[u8]>, Vec<u8>> {
    fn has_unread(&self) -> bool {
        true
    }
}
