//! Pure rate-limit arithmetic: six algorithms, all-or-nothing decisions.
//!
//! This crate opens nothing, spawns nothing and reads no clock. It holds what
//! every store and every surface of Ratekeeper agree on; most programs want
//! the `ratekeeper` crate, which adds stores and a limiter.
//!
//! # Layout
//! - [`Quota`] and [`Quotas`]: how much in how long, as types and as text;
//! - [`algorithm`]: the six algorithms as functions of (state, quota, now, cost);
//! - [`Charge`], [`Charges`] and [`Check`]: what is asked; [`Decision`]: what is answered;
//! - [`judge`](judge()): the decision itself, all or nothing;
//! - [`Penalty`]: what follows from being denied again and again;
//! - [`Ledger`]: reservations and idempotency ids;
//! - [`Model`]: the whole contract over a plain map, the reference every store
//!   is compared with.
//!
//! # Example
//! ```
//! use ratekeeper_core::{Charge, Check, Key, Model, Name, Quota, Timestamp};
//!
//! let mut model = Model::default();
//! let per_user = Name::new("per-user")?;
//! let quota: Quota = "2/s".parse()?;
//! let charge = Charge::new(Key::new(per_user, "user:42")?, &quota);
//! let check = Check::one(&charge);
//!
//! let now = Timestamp::from_secs(1_000);
//! assert!(model.check(&check, now)?.is_allowed());
//! assert!(model.check(&check, now)?.is_allowed());
//! let denied = model.check(&check, now)?;
//! assert_eq!(
//!     denied.explain(),
//!     "denied by per-user: 0 of 2 left (2/s), 1 asked for; the same request passes in 500ms",
//! );
//! # Ok::<(), ratekeeper_core::InvalidInput>(())
//! ```

#![forbid(unsafe_code)]

pub mod algorithm;
mod calendar;
mod check;
mod decision;
mod error;
mod judge;
mod key;
mod ledger;
mod model;
mod name;
mod overrides;
mod penalty;
mod quota;
mod time;
mod wire;

pub use algorithm::{Receipt, State, Status};
pub use calendar::{Calendar, CalendarUnit, OFFSET_MINUTES_MAX};
pub use check::{
    CHARGES_MAX, COST_BEYOND, Charge, Charges, Check, Emergency, Enforcement, LIST_CHARGES_MAX, Level,
};
pub use decision::{
    CONDITION_BUDGET, Decision, GiveBack, Labels, Origin, Outcome, RECEIPT_MAX, ReceiptNote, Verdict,
};
pub use error::{Field, InvalidInput, SHOWN_CHARS_MAX, printable};
pub use judge::{AsCase, Case, OneByOne, judge, judge_denied, judge_one};
pub use key::{Key, SUBJECT_BYTES_MAX};
pub use ledger::{
    Begin, HELD_MAX, Held, HeldParts, IDEMPOTENCY_DEFAULT, Ledger, RETENTION_MAX, Remembered, Reservation,
    Settled, Stage,
};
pub use model::Model;
pub use name::{NAME_BYTES_MAX, NAMES_MAX, Name, NameParts, RawName};
pub use overrides::{NOTE_BYTES_MAX, ORGANISATION_PLACES_MAX, Override, OverrideScope, resolve};
pub use penalty::{CounterChange, PENALTIES_MAX, Penalty, PenaltyCase, SENTENCES_MAX, Strike, judge_penal};
pub use quota::{
    Algorithm, ENTRIES_MAX, LIMIT_MAX, Quota, Quotas, WINDOW_MILLIS_MAX, WINDOW_MILLIS_MIN, WINDOWS_MAX,
    too_many_windows,
};
pub use time::{Clock, ManualClock, Timestamp, Wait};
pub use wire::{DecisionParts, VerdictParts};
