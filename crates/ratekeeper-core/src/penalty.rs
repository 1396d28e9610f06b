//! Penalties: a subject that is denied again and again is denied for a while,
//! whatever room its quotas have.
//!
//! A penalty has three counters, all of them ordinary quotas of its rule: strikes
//! count denials, the gate is full while a penalty lasts, offences count penalties.
//! They are judged together with the charges of the check, at the same instant:
//!
//! 1. a gate that is shut denies the check if its rule is enforced. Nothing is
//!    charged then, and no denial is a strike: the subject pays already.
//! 2. Otherwise a charge of the rule that found no room is a strike.
//! 3. The strike that uses up its quota tips: the gate is shut for as long as the
//!    number of offences says, the strikes are forgotten, and the offence is counted.
//!
//! Strikes are no charges of the check: a denial still charges nothing.
//! [`judge_penal`] does the first step, [`PenaltyCase::strike`] the others. A store
//! that has room for what a strike writes tells the decision:
//! [`Decision::struck`](crate::Decision::struck).

mod strike;

use std::ops::Range;

pub use self::strike::{CounterChange, PenaltyCase, Strike, judge_penal};
use crate::check::{CHARGES_MAX, Charge, Enforcement};
use crate::error::{Field, InvalidInput};
use crate::key::Key;
use crate::name::Name;
use crate::quota::{Algorithm, Quota};

/// The most penalties one check may carry: one for each of its charges.
pub const PENALTIES_MAX: usize = CHARGES_MAX;
/// The most lengths that the penalties of one rule may have. Doubled so often, the
/// shortest window is beyond the longest.
pub const SENTENCES_MAX: usize = 64;

/// The penalty of one rule for one subject, judged together with the rule's charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Penalty<'a> {
    /// A fixed window of one unit as long as the longest sentence. It is full while
    /// a penalty lasts.
    pub gate: (Name, &'a Quota),
    /// A fixed window: so many denials within a time lead to a penalty.
    pub strikes: (Name, &'a Quota),
    /// A token bucket: penalties so far. `None` if penalties do not grow.
    pub offences: Option<(Name, &'a Quota)>,
    /// The gate for the first penalty, the second, and so on; the last for all others.
    pub sentences: &'a [Quota],
    /// Whose penalty it is.
    pub subject: &'a [u8],
    /// A rule that only watches counts strikes and shuts the gate, but denies nothing.
    pub enforcement: Enforcement,
    /// Which charges of the check are the rule's.
    pub charges: Range<usize>,
    /// Whether a denial is a strike. If not, the gate holds all the same.
    pub counts: bool,
}

impl<'a> Penalty<'a> {
    /// Its counters with the numbers of their windows: the gate, the strikes, and the offences if
    /// there are any. A gate has one counter for sentences of all lengths.
    pub fn counters(&self) -> impl Iterator<Item = (Key<'a>, &'a Quota, u64)> + use<'a> {
        let subject = self.subject;
        let counted = |(name, quota): (Name, &'a Quota)| (name, quota, quota.window_number());
        let counters =
            [Some((self.gate.0, self.gate.1, 0)), Some(counted(self.strikes)), self.offences.map(counted)];
        let keyed = move |(name, quota, window)| (Key::of_checked(name, subject), quota, window);
        counters.into_iter().flatten().map(keyed)
    }

    /// Refuses what no store could judge.
    fn validate(&self, charges: &[Charge<'_>]) -> Result<(), InvalidInput> {
        let wrong = |got: String, expected: &str| Err(InvalidInput::new(Field::Penalty, got, expected));
        Key::new(self.gate.0, self.subject)?;
        let is_window = |quota: &Quota| quota.algorithm() == Algorithm::FixedWindow && !quota.is_clocked();
        let is_gate = |quota: &&Quota| is_window(quota) && quota.limit() == 1;
        let mut gates = self.sentences.iter().chain([self.gate.1]);
        if let Some(quota) = gates.find(|quota| !is_gate(quota)) {
            return wrong(format!("a gate of {quota}"), "a fixed window of one unit, off the calendar");
        }
        if self.sentences.is_empty() || self.sentences.len() > SENTENCES_MAX {
            let got = format!("{} sentences", self.sentences.len());
            return wrong(got, &format!("1 to {SENTENCES_MAX} of them"));
        }
        if !is_window(self.strikes.1) || self.strikes.1.is_closed() {
            return wrong(
                format!("strikes of {}", self.strikes.1),
                "a fixed window of 1 or more, off the calendar",
            );
        }
        let is_bucket = |quota: &Quota| quota.algorithm() == Algorithm::TokenBucket && !quota.is_closed();
        if let Some((_, quota)) = self.offences.filter(|(_, quota)| !is_bucket(quota)) {
            return wrong(format!("offences of {quota}"), "a token bucket of 1 or more");
        }
        if self.charges.start > self.charges.end || self.charges.end > charges.len() {
            return wrong(format!("charges {:?}", self.charges), "a part of the check's charges");
        }
        self.validate_names(charges)
    }

    /// Stores keep the counters of a rule and subject together and tell them apart by name.
    fn validate_names(&self, charges: &[Charge<'_>]) -> Result<(), InvalidInput> {
        let names = || self.counters().map(|(key, ..)| key.scope());
        let rule = self.gate.0.rule();
        let is_quota = |name: Name| name != rule && name.rule() == rule;
        let is_twice = |name: Name| names().filter(|other| *other == name).count() > 1;
        let is_charged = |name: Name| charges.iter().any(|charge| charge.key.scope() == name);
        let wrong = names().find(|name| !is_quota(*name) || is_twice(*name) || is_charged(*name));
        let Some(name) = wrong else { return Ok(()) };
        let expected = "names of its own within one rule for the gate, the strikes and the offences";
        Err(InvalidInput::new(Field::Penalty, name.as_str(), expected))
    }

    /// Refuses penalties that cannot be judged with `charges`.
    pub(crate) fn validate_all(
        penalties: &[Penalty<'_>],
        charges: &[Charge<'_>],
    ) -> Result<(), InvalidInput> {
        if penalties.len() > PENALTIES_MAX {
            let got = format!("{} penalties", penalties.len());
            return Err(InvalidInput::range(Field::Penalty, got, 0, PENALTIES_MAX as u64, "penalties"));
        }
        for (index, penalty) in penalties.iter().enumerate() {
            penalty.validate(charges)?;
            let is_same = |other: &Penalty<'_>| {
                other.gate.0.rule() == penalty.gate.0.rule() && other.subject == penalty.subject
            };
            if penalties[..index].iter().any(is_same) {
                let got = format!("two of {} for one subject", penalty.gate.0.rule());
                return Err(InvalidInput::new(Field::Penalty, got, "one for each rule and subject"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Charges, Check};

    /// What is said about a penalty after `change` has made a mistake in it.
    fn said(change: impl FnOnce(&mut Penalty<'_>)) -> String {
        let quota = |text: &str| text.parse::<Quota>().unwrap();
        let rule = Name::new("penal").unwrap();
        let name = |quota| Name::joined(rule, quota).unwrap();
        let (per_second, gate, strikes, offences) =
            (quota("2/s"), quota("1/1h fixed_window"), quota("3/10s fixed_window"), quota("2/4h"));
        let sentences = [quota("1/1min fixed_window"), gate];
        let mut penalty = Penalty {
            gate: (name("penalty"), &gate),
            strikes: (name("strikes"), &strikes),
            offences: Some((name("offences"), &offences)),
            sentences: &sentences,
            subject: b"ann",
            enforcement: Enforcement::Enforce,
            charges: 0..1,
            counts: true,
        };
        change(&mut penalty);
        let mut charges = Charges::new();
        charges.push(Charge::new(Key::new(rule, "ann").unwrap(), &per_second)).unwrap();
        let penalties = [penalty];
        let check = charges.check().unwrap().with_penalties(&penalties);
        check.map_or_else(|error| error.to_string(), |check| check.penalties().len().to_string())
    }

    #[test]
    fn penalties_that_no_store_could_judge_are_refused() {
        let leak = |text: &str| &*Box::leak(Box::new(text.parse::<Quota>().unwrap()));
        let joined = |rule: &str| Name::joined(Name::new(rule).unwrap(), "strikes").unwrap();
        let (wide, bucket, monthly) =
            (leak("2/1h fixed_window"), leak("1/1h"), leak("1/calendar month fixed_window"));
        let (no_strikes, no_offences) = (leak("0/1h fixed_window"), leak("0/1h"));
        type Mistake<'m> = Box<dyn FnOnce(&mut Penalty<'_>) + 'm>;
        let mistakes: [(&str, Mistake<'_>); 14] = [
            ("1", Box::new(|_| {})),
            ("got a gate of 2/h", Box::new(|penalty| penalty.gate.1 = wide)),
            ("got a gate of 1/h;", Box::new(|penalty| penalty.gate.1 = bucket)),
            ("off the calendar", Box::new(|penalty| penalty.sentences = std::slice::from_ref(monthly))),
            ("got 0 sentences", Box::new(|penalty| penalty.sentences = &[])),
            ("got strikes of 1/h", Box::new(|penalty| penalty.strikes.1 = bucket)),
            ("got strikes of 0/h", Box::new(|penalty| penalty.strikes.1 = no_strikes)),
            ("got offences of 2/h", Box::new(|penalty| penalty.offences.as_mut().unwrap().1 = wide)),
            ("got offences of 0/h", Box::new(|penalty| penalty.offences.as_mut().unwrap().1 = no_offences)),
            ("got charges 0..2", Box::new(|penalty| penalty.charges = 0..2)),
            ("got other.strikes", Box::new(|penalty| penalty.strikes.0 = joined("other"))),
            ("got penal.penalty", Box::new(|penalty| penalty.strikes.0 = penalty.gate.0)),
            ("got penal;", Box::new(|penalty| penalty.gate.0 = penalty.gate.0.rule())),
            ("key: got 0 bytes", Box::new(|penalty| penalty.subject = b"")),
        ];
        for (expected, mistake) in mistakes {
            let said = said(mistake);
            assert!(said.contains(expected), "{said}, not {expected}");
        }
    }

    #[test]
    fn a_check_has_one_penalty_for_a_rule_and_subject() {
        let quota: Quota = "1/1h fixed_window".parse().unwrap();
        let charge = Charge::new(Key::new(Name::new("once").unwrap(), "ann").unwrap(), &quota);
        let of = |subject: &'static [u8]| {
            let name = |quota| Name::joined(Name::new("once").unwrap(), quota).unwrap();
            let sentences = std::slice::from_ref(&quota);
            Penalty {
                gate: (name("penalty"), &quota),
                strikes: (name("strikes"), &quota),
                offences: None,
                sentences,
                subject,
                enforcement: Enforcement::Enforce,
                charges: 0..0,
                counts: true,
            }
        };
        let (two, twice) = ([of(b"ann"), of(b"bob")], [of(b"ann"), of(b"ann")]);
        assert!(Check::one(&charge).with_penalties(&two).is_ok());
        let error = Check::one(&charge).with_penalties(&twice).unwrap_err().to_string();
        assert!(error.starts_with("penalty: got two of once for one subject"), "{error}");
        let many = vec![of(b"ann"); PENALTIES_MAX + 1];
        let error = Check::one(&charge).with_penalties(&many).unwrap_err().to_string();
        assert!(error.starts_with("penalty: got 65 penalties; expected"), "{error}");
        let gate = Charge::new(Key::new(two[0].gate.0, "ann").unwrap(), &quota);
        assert!(Check::one(&gate).with_penalties(&two).is_err(), "its counters are not charged besides");
    }

    #[test]
    fn penalties_are_no_part_of_a_digest() {
        let quota: Quota = "1/1h fixed_window".parse().unwrap();
        let rule = Name::new("digested").unwrap();
        let charge = Charge::new(Key::new(rule, "ann").unwrap(), &quota);
        let penalties = [Penalty {
            gate: (Name::joined(rule, "penalty").unwrap(), &quota),
            strikes: (Name::joined(rule, "strikes").unwrap(), &quota),
            offences: None,
            sentences: std::slice::from_ref(&quota),
            subject: b"ann",
            enforcement: Enforcement::Enforce,
            charges: 0..1,
            counts: true,
        }];
        let check = Check::one(&charge);
        assert_eq!(check.with_penalties(&penalties).unwrap().digest(), check.digest());
    }
}
