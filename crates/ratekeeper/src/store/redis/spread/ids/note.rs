//! What is noted in the place of an id: what it is used for, and which attempt has taken it last.
//!
//! Only an attempt that is *alone* may give back what it has charged under an id: none other was under way when it took
//! the id, and none has taken it since. Any other may have been told of the charge as a repeat, and then admits by it. An
//! attempt closes the id before it gives back; who comes while it is closed waits. All of this ends with the attempt: a
//! note says at which rest of its own time to live that is.

use std::time::Duration;

use ::redis::{Cmd, cmd};
use ratekeeper_core::Check;

use super::super::Portion;
use crate::store::StoreError;
use crate::store::redis::answer::Reader;

/// Takes an id for a check, unless another check has it. ARGV: what it is used for, the length of the digest at its
/// start, the number of the attempt, milliseconds that the note lives, milliseconds that an attempt takes at most. A note
/// ends with `o` (open) or `c` (closed) and the time to live at which all attempts so far are over.
const TAKE: &str = "\
local known, busy, alone = redis.call('GET', KEYS[1]), tonumber(ARGV[5]), 1
if known then
  if string.sub(known, 1, ARGV[2]) ~= string.sub(ARGV[1], 1, ARGV[2]) then return 3 end
  local state, quiet = string.match(known, '([oc])(%d+)$')
  local left = quiet and redis.call('PTTL', KEYS[1]) - quiet or busy
  if left > 0 then
    if state == 'c' then return 2 end
    busy, alone = math.max(busy, left), 0
  end
end
local quiet = string.format('%.0f', math.max(ARGV[4] - busy, 0))
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[3] .. 'o' .. quiet, 'PX', ARGV[4])
return alone";
/// Closes an id, unless somebody has taken it again. ARGV: as it was taken.
const CLOSE: &str = "\
local known, length = redis.call('GET', KEYS[1]), #ARGV[1]
if not known or string.sub(known, 1, length + 1) ~= ARGV[1] .. 'o' then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. 'c' .. string.sub(known, length + 2), 'KEEPTTL')
return 1";
/// Gives an id back, or opens it again, unless somebody has taken it again. ARGV: as it was taken, whether it is free.
const LEAVE: &str = "\
local known, length = redis.call('GET', KEYS[1]), #ARGV[1]
if not known or string.sub(known, 1, length) ~= ARGV[1] then return end
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1] .. 'o' .. string.sub(known, length + 2), 'KEEPTTL')
end";
/// The version of a note, and the digest.
const DIGEST_BYTES: usize = 9;
const VERSION: u8 = 1;
/// Of the number of an attempt.
const ATTEMPT_BYTES: usize = 8;

/// What came of taking an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// No other attempt is under way.
    Alone,
    /// Another one of the same check may be.
    Beside,
    /// Another one gives back what it has charged.
    Closed,
    /// Another check has it.
    Conflict,
}

impl Taken {
    pub(super) fn read(code: u8) -> Result<Self, StoreError> {
        match code {
            0 => Ok(Self::Beside),
            1 => Ok(Self::Alone),
            2 => Ok(Self::Closed),
            3 => Ok(Self::Conflict),
            _ => Err(StoreError::unreadable()),
        }
    }
}

/// What an attempt notes.
pub(super) struct Note {
    /// Without the number of the attempt.
    bytes: Vec<u8>,
    attempt: [u8; ATTEMPT_BYTES],
}

impl Note {
    pub(super) fn new(check: &Check<'_>, portions: &[Portion<'_>]) -> Self {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&check.digest().to_le_bytes());
        // At most one for each charge, so a byte counts them; tags are short.
        bytes.push(portions.len() as u8);
        for portion in portions {
            bytes.push(portion.tag.len() as u8);
            bytes.extend_from_slice(&portion.tag);
        }
        Self { bytes, attempt: fastrand::u64(..).to_le_bytes() }
    }

    /// Whether a note is one of the same check.
    pub(super) fn is_of_same(&self, note: &[u8]) -> bool {
        note.get(..DIGEST_BYTES) == self.bytes.get(..DIGEST_BYTES)
    }

    fn whole(&self) -> Vec<u8> {
        [&self.bytes[..], &self.attempt].concat()
    }

    /// Answers with what [`Taken::read`] reads. `total` is how long this attempt takes at most.
    pub(super) fn take(&self, key: &[u8], life: Duration, total: Duration) -> Cmd {
        let millis =
            |time: Duration| u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1);
        let mut take = cmd("EVAL");
        take.arg(TAKE).arg(1).arg(key).arg(&self.bytes).arg(DIGEST_BYTES).arg(&self.attempt);
        // It must outlive the attempt, or nobody would know of it.
        take.arg(millis(life.max(total))).arg(millis(total));
        take
    }

    /// Answers whether it was closed.
    pub(super) fn close(&self, key: &[u8]) -> Cmd {
        let mut close = cmd("EVAL");
        close.arg(CLOSE).arg(1).arg(key).arg(self.whole());
        close
    }

    pub(super) fn leave(&self, key: &[u8], is_free: bool) -> Cmd {
        let mut leave = cmd("EVAL");
        leave.arg(LEAVE).arg(1).arg(key).arg(self.whole()).arg(u8::from(is_free));
        leave
    }

    /// The tags of a note.
    pub(super) fn tags(note: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut reader = Reader(note);
        if reader.u8()? != VERSION {
            return Err(StoreError::unreadable());
        }
        reader.u64()?;
        let count = reader.u8()?;
        let mut tag = || {
            let length = reader.u8()?;
            reader.take(length.into()).map(<[u8]>::to_vec)
        };
        (0..count).map(|_| tag()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_testkit::servers::{Answer, Client, Flavour, Server};
    use ratekeeper_testkit::wait::until;

    const KEY: &[u8] = b"rk:n:id";
    const LIFE: Duration = Duration::from_secs(600);
    /// Long enough that no attempt is over while a test looks.
    const TOTAL: Duration = Duration::from_secs(300);

    fn note(check: u8) -> Note {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&[check; DIGEST_BYTES - 1]);
        bytes.extend_from_slice(&[1, 3, b'o', b'1', b'2']);
        Note { bytes, attempt: fastrand::u64(..).to_le_bytes() }
    }

    /// An id on a server.
    struct Place(Client);

    impl Place {
        fn call(&mut self, command: &Cmd) -> Answer {
            let words = command.args_iter().map(|word| match word {
                ::redis::Arg::Simple(word) => word,
                _ => b"",
            });
            self.0.call(&words.collect::<Vec<_>>())
        }

        fn number(&mut self, command: &Cmd) -> i64 {
            match self.call(command) {
                Answer::Number(number) => number,
                other => panic!("{other:?}"),
            }
        }

        fn take(&mut self, note: &Note, total: Duration) -> Taken {
            Taken::read(self.number(&note.take(KEY, LIFE, total)) as u8).unwrap()
        }

        fn close(&mut self, note: &Note) -> bool {
            self.number(&note.close(KEY)) == 1
        }

        fn leave(&mut self, note: &Note, is_free: bool) {
            self.call(&note.leave(KEY, is_free));
        }

        fn note(&mut self) -> Option<Vec<u8>> {
            match self.call(&Cmd::get(KEY)) {
                Answer::Text(text) => text,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_attempt_alone_closes_the_id_and_gives_it_back() {
        for flavour in Flavour::ALL {
            let server = Server::start(flavour);
            let mut place = Place(server.client());
            let (one, other, third) = (note(7), note(7), note(8));
            assert_eq!(place.take(&one, TOTAL), Taken::Alone);
            assert_eq!(place.take(&third, TOTAL), Taken::Conflict);
            assert!(place.close(&one), "{flavour}");
            assert!(!place.close(&one), "once");
            assert_eq!(place.take(&other, TOTAL), Taken::Closed);
            let kept = place.note().unwrap();
            assert!(other.is_of_same(&kept) && !third.is_of_same(&kept));
            assert_eq!(Note::tags(&kept).unwrap(), [b"o12"]);
            place.leave(&other, true);
            assert_eq!(place.note().unwrap(), kept, "it is another's");
            place.leave(&one, true);
            assert_eq!(place.note(), None);
            assert_eq!(place.take(&third, TOTAL), Taken::Alone);
        }
    }

    /// Whoever takes it meanwhile may admit by what was charged before.
    #[test]
    fn what_two_attempts_share_neither_gives_back() {
        let server = Server::start(Flavour::Redis7);
        let mut place = Place(server.client());
        let (first, second) = (note(7), note(7));
        assert_eq!(place.take(&first, TOTAL), Taken::Alone);
        assert_eq!(place.take(&second, TOTAL), Taken::Beside);
        assert!(!place.close(&first), "it was taken again");
        place.leave(&first, true);
        assert_eq!(place.take(&first, TOTAL), Taken::Beside, "the second is under way");
        // A shorter one does not shorten what is known of a longer one.
        assert_eq!(place.take(&second, Duration::from_millis(1)), Taken::Beside);
        assert_eq!(place.take(&first, Duration::from_millis(1)), Taken::Beside);
    }

    #[test]
    fn an_id_that_was_opened_again_is_known_and_an_attempt_that_died_ends() {
        let server = Server::start(Flavour::Redis7);
        let mut place = Place(server.client());
        let (short, one, other) = (Duration::from_millis(300), note(7), note(7));
        assert_eq!(place.take(&one, short), Taken::Alone);
        assert!(place.close(&one));
        place.leave(&one, false);
        assert!(place.note().is_some());
        assert!(place.close(&one), "it is open again");
        // Nobody opens it; it ends when the attempt must be over, and is remembered for all its life.
        until("the attempt is over", || place.take(&other, short) == Taken::Alone);
        assert!(!place.close(&one));
        let left: i64 = server.cli(&["PTTL", "rk:n:id"]).parse().unwrap();
        assert!(left > 500_000, "{left}");
    }
}
