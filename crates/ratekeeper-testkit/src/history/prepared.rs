//! What an event asks for, ready to be asked alone or together with others.

use std::borrow::Cow;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Charges, Decision, Key, Penalty, Reservation};

use super::plan::{Event, IdUse, SUBJECTS};
use super::stage::Stage;
use crate::Asked;

pub(super) enum Prepared<'s, 'p> {
    Nothing,
    Check {
        charges: Charges<'s>,
        penalties: Vec<Penalty<'s>>,
        peek: bool,
        under: Option<([u8; 2], IdUse)>,
    },
    Refund {
        charges: &'s Charges<'p>,
        /// The decision itself, which keeps count, or what was told of it.
        decision: Cow<'s, Decision>,
        units: u32,
    },
    Reset(Key<'s>, Algorithm),
}

impl<'s, 'p> Prepared<'s, 'p> {
    pub(super) fn of(
        stage: &'s Stage,
        event: &Event,
        epoch: u8,
        past: &'s [(Charges<'p>, Decision)],
    ) -> Self {
        match event {
            Event::Check { check, peek, id } => {
                let charges = stage.charges(&check.charges);
                let penalties = stage.penalties(check, &charges);
                Prepared::Check {
                    charges,
                    penalties,
                    peek: *peek,
                    under: id.map(|(id, id_use)| ([epoch, id], id_use)),
                }
            }
            Event::Refund { back, units, told } => {
                let Some((charges, decision)) = past.iter().rev().nth(*back) else {
                    return Prepared::Nothing;
                };
                let number = (past.len() - back) as u64;
                let decision = match told {
                    0 => Cow::Borrowed(decision),
                    // What was told keeps no count: the store has to. No two decisions have the same number, and none
                    // has it again after the clock stepped back.
                    copies => {
                        let mut copy = decision.apart();
                        copy.set_nonce(u64::from(epoch) << 32 | number << 8 | u64::from(*copies));
                        Cow::Owned(copy)
                    }
                };
                Prepared::Refund { charges, decision, units: *units }
            }
            Event::Reset { quota, subject } => {
                let (name, quota) = &stage.quotas[*quota];
                Self::reset(Key::new(*name, SUBJECTS[*subject]).expect("a short subject"), quota.algorithm())
            }
            Event::Pardon { rule, counter, subject } => match stage.penal[*rule].counters.get(*counter) {
                None => Prepared::Nothing,
                Some((name, quota)) => Self::reset(
                    Key::new(*name, SUBJECTS[*subject]).expect("a short subject"),
                    quota.algorithm(),
                ),
            },
            Event::Clock(_) | Event::Burst(_) | Event::Settle { .. } | Event::Override { .. } => {
                Prepared::Nothing
            }
        }
    }

    fn reset(key: Key<'s>, algorithm: Algorithm) -> Self {
        Prepared::Reset(key, algorithm)
    }

    pub(super) fn asked(&self) -> Asked<'_> {
        match self {
            Prepared::Nothing => Asked::Nothing,
            Prepared::Check { charges, penalties, peek, under } => {
                let check = charges.check().expect("at least one charge");
                let check = check.with_penalties(penalties).expect("penalties of the table");
                let check = if *peek { check.peek() } else { check };
                let Some((id, id_use)) = under else { return Asked::Check(check) };
                let reservation = match id_use {
                    IdUse::Once(secs) => Reservation::once(id, Duration::from_secs(*secs)),
                    IdUse::Hold(secs) => Reservation::hold(id, Duration::from_secs(*secs)),
                };
                Asked::Under(check, reservation.expect("a short id"))
            }
            Prepared::Refund { charges, decision, units } => {
                Asked::Refund(charges.check().expect("at least one charge"), decision, *units)
            }
            Prepared::Reset(key, algorithm) => Asked::Reset(*key, *algorithm),
        }
    }
}
