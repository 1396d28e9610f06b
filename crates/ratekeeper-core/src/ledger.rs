//! What a store remembers beyond counters: decisions under an idempotency id,
//! and reservations until they are settled.
//!
//! Generic over `C`, the store's own name for a counter. The store locks the
//! ledger before it touches a counter, so a repeated call waits for the first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::algorithm::{Receipt, State};
use crate::check::{Charge, Check};
use crate::decision::{Decision, Origin};
use crate::error::{Field, InvalidInput};
use crate::name::{DIGEST_START, digest_more};
use crate::quota::Quota;
use crate::time::Timestamp;

/// How many ids one ledger holds at most.
pub const HELD_MAX: usize = 100_000;
/// How long a decision is kept under its id unless told otherwise.
pub const IDEMPOTENCY_DEFAULT: Duration = Duration::from_secs(600);
/// The longest a decision or a reservation is kept.
pub const RETENTION_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The longest id, in bytes.
const ID_BYTES_MAX: usize = 128;

/// An id under which a check is charged once, however often it is sent, and
/// what is to become of the charge.
///
/// Ids belong to the store: whoever shares it must keep them apart, and whoever
/// knows one can settle it. Make them hard to guess, or put the tenant in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    id: &'a [u8],
    keep: Duration,
    hold: Option<Duration>,
}

impl<'a> Reservation<'a> {
    /// Charges once and remembers the decision under `id` for `keep`.
    ///
    /// # Errors
    /// If the id is empty or longer than 128 bytes, or `keep` is zero or
    /// beyond [`RETENTION_MAX`].
    pub fn once(id: &'a (impl AsRef<[u8]> + ?Sized), keep: Duration) -> Result<Self, InvalidInput> {
        let id = id.as_ref();
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            let got = format!("an id of {} bytes", id.len());
            return Err(InvalidInput::new(Field::Idempotency, got, format!("1 to {ID_BYTES_MAX} bytes")));
        }
        bounded(Field::Idempotency, keep)?;
        Ok(Self { id, keep, hold: None })
    }

    /// Charges an estimate that can be settled or cancelled within `hold`;
    /// after that it lapses and the estimate stays charged.
    ///
    /// # Errors
    /// As [`Reservation::once`]; `hold` has the same bounds.
    pub fn hold(id: &'a (impl AsRef<[u8]> + ?Sized), hold: Duration) -> Result<Self, InvalidInput> {
        bounded(Field::Reservation, hold)?;
        Ok(Self { hold: Some(hold), ..Self::once(id, IDEMPOTENCY_DEFAULT)? })
    }

    /// The id.
    #[must_use]
    pub const fn id(&self) -> &'a [u8] {
        self.id
    }

    /// What is wrong with using the id for another check.
    #[must_use]
    pub fn conflict(&self) -> InvalidInput {
        let got = format!("id `{}` for another check", String::from_utf8_lossy(self.id));
        InvalidInput::new(Field::IdInUse, got, "a new id for each check, the same only to repeat it")
    }

    /// A number for the receipts of the decision that was made under this id at an instant. It is told again
    /// with the same, so that however often it is repeated, it is given back once.
    #[must_use]
    pub fn nonce(&self, at: Timestamp) -> u64 {
        digest_more(digest_more(DIGEST_START, &at.as_micros().to_le_bytes()), self.id).max(1)
    }

    /// How long the decision is remembered, counted from the end of the hold.
    #[must_use]
    pub const fn keep(&self) -> Duration {
        self.keep
    }

    /// How long the charge can be settled; `None` if it is final.
    #[must_use]
    pub const fn held_for(&self) -> Option<Duration> {
        self.hold
    }
}

fn bounded(field: Field, length: Duration) -> Result<(), InvalidInput> {
    if length.is_zero() || length > RETENTION_MAX {
        return Err(InvalidInput::new(field, format!("{length:?}"), "more than 0 and at most 24 hours"));
    }
    Ok(())
}

/// What became of a call to settle or cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The charge now is what was asked for.
    Done,
    /// It had been settled or cancelled before; nothing changed.
    Already,
    /// The reservation had lapsed; the estimate stays charged.
    Lapsed,
    /// No reservation is known under this id.
    Unknown,
}

impl Settled {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Settled::Done => "done",
            Settled::Already => "already",
            Settled::Lapsed => "lapsed",
            Settled::Unknown => "unknown",
        }
    }
}

/// One charge of a reservation.
#[derive(Clone, Debug)]
pub struct Held<C> {
    /// The counter it stands in.
    pub counter: C,
    quota: Quota,
    /// The window of rule or plan, in microseconds: a log keeps entries for it, whatever an override's is.
    own_window: u64,
    cost: u32,
    flat: bool,
    receipt: Receipt,
}

impl<C> Held<C> {
    /// The charge as a decision left it; `None` if it was not charged.
    pub fn new(counter: C, charge: &Charge<'_>, verdict: &crate::decision::Verdict) -> Option<Self> {
        let receipt = verdict.receipt()?;
        let own_window = charge.quota().window_micros();
        let (quota, cost) = (verdict.quota, verdict.cost);
        Some(Self { counter, quota, own_window, cost, flat: charge.flat, receipt })
    }

    /// What it is made of, for a store that keeps it elsewhere as well.
    pub const fn parts(&self) -> HeldParts {
        let Self { quota, own_window, cost, flat, receipt, .. } = *self;
        HeldParts { quota, own_window, cost, flat, receipt }
    }

    /// The charge of these parts again.
    pub const fn from_parts(counter: C, parts: HeldParts) -> Self {
        let HeldParts { quota, own_window, cost, flat, receipt } = parts;
        Self { counter, quota, own_window, cost, flat, receipt }
    }

    /// The quota it was charged under.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Whether settling at `actual` charges more, and so needs a counter even
    /// if the one it stood in is gone.
    #[must_use]
    pub fn adds(&self, actual: Option<u32>) -> bool {
        !self.flat && actual.is_some_and(|actual| actual > self.cost)
    }

    /// Makes the charge `actual` units (`None`: cancelled, as if never made).
    /// What is more than the estimate is charged whether or not there is room.
    pub fn settle(&self, state: &mut State, now: Timestamp, actual: Option<u32>) {
        let now = state.instant(now.as_micros());
        let actual = match actual {
            Some(_) if self.flat => return,
            Some(actual) => actual,
            None => 0,
        };
        if actual <= self.cost {
            state.refund(&self.quota, now, self.cost - actual, self.receipt);
        } else {
            state.keep_for(self.own_window);
            state.top_up(&self.quota, now, actual - self.cost);
        }
    }
}

/// What a [`Held`] charge is made of, beside its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldParts {
    /// The quota it was charged under.
    pub quota: Quota,
    /// The window of rule or plan, in microseconds.
    pub own_window: u64,
    /// Units that were charged.
    pub cost: u32,
    /// Whether it costs the same whatever the reservation is settled at.
    pub flat: bool,
    /// Proof of the charge.
    pub receipt: Receipt,
}

/// What is kept under one id.
#[derive(Clone, Debug)]
pub struct Remembered<C> {
    /// Of which check it is.
    pub digest: u64,
    /// What was decided.
    pub decision: Decision,
    /// Charges of a reservation that is still open; empty once it is settled.
    pub held: Vec<Held<C>>,
    /// What became of it.
    pub stage: Stage,
    /// From this instant on, in microseconds, it is forgotten.
    pub forget_at: u64,
}

/// What became of what is kept under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Only remembered, never to be settled.
    Remembered,
    /// Open until this instant, in microseconds.
    OpenUntil(u64),
    /// Settled or cancelled.
    Settled,
}

/// How a call under an id begins.
#[derive(Debug)]
pub enum Begin {
    /// Nothing is known: judge the check, then [`Ledger::record`] it.
    New,
    /// It was decided before.
    Repeat(Box<Decision>),
    /// The ledger is full.
    Full,
}

/// Decisions and reservations by id, forgotten in the order they expire.
#[derive(Debug)]
pub struct Ledger<C> {
    entries: HashMap<Box<[u8]>, Remembered<C>>,
    forget: BinaryHeap<Reverse<(u64, Box<[u8]>)>>,
    max: usize,
}

impl<C> Default for Ledger<C> {
    fn default() -> Self {
        Self::with_max(HELD_MAX)
    }
}

impl<C> Ledger<C> {
    /// A ledger of at most `max` ids.
    #[must_use]
    pub fn with_max(max: usize) -> Self {
        Self { entries: HashMap::new(), forget: BinaryHeap::new(), max }
    }

    /// How many ids it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Looks an id up before its check is judged.
    ///
    /// # Errors
    /// If the id was used for a check that asked for something else.
    pub fn begin(
        &mut self,
        reservation: &Reservation<'_>,
        check: &Check<'_>,
        now: Timestamp,
    ) -> Result<Begin, InvalidInput> {
        self.forget_until(now);
        match self.entries.get(reservation.id) {
            Some(entry) if entry.digest != check.digest() => Err(reservation.conflict()),
            Some(entry) => Ok(Begin::Repeat(Box::new(entry.decision.apart().from_origin(Origin::Repeat)))),
            None if self.entries.len() >= self.max => Ok(Begin::Full),
            None => Ok(Begin::New),
        }
    }

    /// Remembers an admitted check; denials are not remembered, so a retry of
    /// one is judged anew.
    pub fn record(
        &mut self,
        reservation: &Reservation<'_>,
        check: &Check<'_>,
        decision: &Decision,
        held: Vec<Held<C>>,
    ) {
        if !decision.is_allowed() || check.is_peek() {
            return;
        }
        let open_until = reservation.hold.map(|hold| decision.at.after(hold));
        let stage = open_until.map_or(Stage::Remembered, |until| Stage::OpenUntil(until.as_micros()));
        let forget_at = open_until.unwrap_or(decision.at).after(reservation.keep).as_micros();
        let digest = check.digest();
        let mut entry = Remembered { digest, decision: decision.apart(), held, stage, forget_at };
        // A repeat leads to no penalty, whatever the first did.
        entry.decision.tipped.clear();
        self.put(reservation.id.into(), entry);
    }

    fn put(&mut self, id: Box<[u8]>, entry: Remembered<C>) {
        self.forget.push(Reverse((entry.forget_at, id.clone())));
        self.entries.insert(id, entry);
    }

    /// What is kept under an id.
    #[must_use]
    pub fn get(&self, id: &[u8]) -> Option<&Remembered<C>> {
        self.entries.get(id)
    }

    /// Every id with what is kept under it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Remembered<C>)> {
        self.entries.iter().map(|(id, entry)| (&**id, entry))
    }

    /// Takes in what another process kept under an id; says whether there was room for it.
    pub fn restore(&mut self, id: &[u8], entry: Remembered<C>) -> bool {
        let has_room = self.entries.len() < self.max && !self.entries.contains_key(id);
        if has_room {
            self.put(id.into(), entry);
        }
        has_room
    }

    /// Closes the reservation under `id` and hands out its charges to settle.
    ///
    /// # Errors
    /// What to answer instead, if there is nothing to settle.
    pub fn close(&mut self, id: &[u8], now: Timestamp) -> Result<Vec<Held<C>>, Settled> {
        self.forget_until(now);
        let entry = self.entries.get_mut(id).ok_or(Settled::Unknown)?;
        match entry.stage {
            Stage::Remembered => Err(Settled::Unknown),
            Stage::Settled => Err(Settled::Already),
            Stage::OpenUntil(until) if until <= now.as_micros() => Err(Settled::Lapsed),
            Stage::OpenUntil(_) => {
                entry.stage = Stage::Settled;
                Ok(std::mem::take(&mut entry.held))
            }
        }
    }

    fn forget_until(&mut self, now: Timestamp) {
        while self.forget.peek().is_some_and(|Reverse((at, _))| *at <= now.as_micros()) {
            if let Some(Reverse((_, id))) = self.forget.pop() {
                self.entries.remove(&id);
            }
        }
    }
}
