//! A check, taken apart into what belongs to each part.

use ratekeeper_core::{Charge, Check, Decision, InvalidInput, Key, Name, Penalty};
use smallvec::SmallVec;

use super::Part;
use crate::store::redis::tag::{tag_of_charge, tag_of_penalty};

/// Where a check goes.
pub(super) enum Split<'a> {
    One(Part),
    Several(Vec<Portion<'a>>),
}

/// What of a check goes to one part.
#[derive(Debug)]
pub(super) struct Portion<'a> {
    pub(super) part: Part,
    /// One of the tags there.
    pub(super) tag: Vec<u8>,
    charges: SmallVec<[Charge<'a>; 4]>,
    /// Of the charges in the whole check.
    places: SmallVec<[usize; 4]>,
    penalties: Vec<Penalty<'a>>,
}

/// Finds the parts of a check.
pub(super) fn split<'a>(
    check: &Check<'a>,
    part_of: impl Fn(&[u8]) -> Part,
) -> Result<Split<'a>, InvalidInput> {
    let mut portions: Vec<Portion<'a>> = Vec::new();
    let mut tag = Vec::new();
    for (place, charge) in check.charges().iter().enumerate() {
        tag.clear();
        tag_of_charge(charge, &mut tag)?;
        let portion = portion_at(&mut portions, part_of(&tag), &tag);
        portion.charges.push(*charge);
        portion.places.push(place);
    }
    for penalty in check.penalties() {
        tag.clear();
        tag_of_penalty(penalty, check.charges(), &mut tag)?;
        portion_at(&mut portions, part_of(&tag), &tag).add_penalty(penalty)?;
    }
    match &*portions {
        [only] if only.places.len() == check.charges().len() => Ok(Split::One(only.part)),
        _ => Ok(Split::Several(portions)),
    }
}

fn portion_at<'p, 'a>(portions: &'p mut Vec<Portion<'a>>, part: Part, tag: &[u8]) -> &'p mut Portion<'a> {
    let at = portions.iter().position(|portion| portion.part == part).unwrap_or_else(|| {
        portions.push(Portion::new(part, tag));
        portions.len() - 1
    });
    &mut portions[at]
}

impl<'a> Split<'a> {
    /// As portions, also if there is only one.
    pub(super) fn into_portions(self, check: &Check<'a>) -> Vec<Portion<'a>> {
        match self {
            Self::Several(portions) => portions,
            Self::One(part) => {
                let mut tag = Vec::new();
                // It was found before, or the part would not be known.
                let _ = check.charges().first().map(|charge| tag_of_charge(charge, &mut tag));
                vec![Portion {
                    charges: check.charges().iter().copied().collect(),
                    places: (0..check.charges().len()).collect(),
                    penalties: check.penalties().to_vec(),
                    ..Portion::new(part, &tag)
                }]
            }
        }
    }
}

impl<'a> Portion<'a> {
    fn new(part: Part, tag: &[u8]) -> Self {
        let (charges, places, penalties) = (SmallVec::new(), SmallVec::new(), Vec::new());
        Self { part, tag: tag.to_vec(), charges, places, penalties }
    }

    /// A penalty counts its charges by their places among those of this part.
    fn add_penalty(&mut self, penalty: &Penalty<'a>) -> Result<(), InvalidInput> {
        let before = |end: usize| self.places.iter().filter(|place| **place < end).count();
        let charges = before(penalty.charges.start)..before(penalty.charges.end);
        if self.charges.is_empty() {
            // A rule whose plan has no quotas: its gate holds all the same, and is read beside something that is not.
            let beside = Charge::new(Key::new(Name::RAW, penalty.subject)?, penalty.gate.1);
            self.charges.push(beside.cost(0)?);
        }
        self.penalties.push(Penalty { charges, ..penalty.clone() });
        Ok(())
    }

    /// The check of this part.
    pub(super) fn of<'p>(&'p self, check: &Check<'_>) -> Check<'p> {
        check.part(&self.charges, &self.penalties)
    }

    /// The places of its charges in the whole check.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// A decision on it without what was only asked beside a gate.
    pub(super) fn told(&self, decision: Decision) -> Decision {
        if self.places.is_empty() {
            decision.without(|verdict| verdict.name() == Name::RAW)
        } else {
            decision
        }
    }

    /// Whether a decision has charged something here that can be given back.
    pub(super) fn is_charged_by(&self, decision: &Decision) -> bool {
        let numbers = || self.charges.iter().map(|charge| charge.key().digest());
        let mut charged = decision.verdicts().iter().filter(|verdict| verdict.receipt().is_some());
        charged.any(|verdict| numbers().any(|number| number == verdict.counter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::{Charges, Enforcement, Quota};

    fn part_of(tag: &[u8]) -> Part {
        Part(tag[0].into())
    }

    fn charge<'a>(rule: &str, subject: &'a str, quota: &'a Quota) -> Charge<'a> {
        Charge::new(Key::new(Name::new(rule).unwrap(), subject).unwrap(), quota)
    }

    #[test]
    fn charges_go_where_their_tags_are_in_their_order() {
        let quota: Quota = "5/s".parse().unwrap();
        let mut charges = Charges::new();
        for (rule, subject) in [("r1", "a1"), ("r2", "b1"), ("r3", "a2"), ("r4", "b2"), ("r5", "c")] {
            charges.push(charge(rule, subject, &quota)).unwrap();
        }
        let check = charges.check().unwrap();
        let Ok(Split::Several(portions)) = split(&check, part_of) else { panic!("it spans parts") };
        let places: Vec<&[usize]> = portions.iter().map(Portion::places).collect();
        assert_eq!(places, [&[0, 2][..], &[1, 3], &[4]]);
        let peek = check.peek();
        assert!(portions.iter().all(|portion| portion.of(&peek).is_peek() && !portion.of(&check).is_peek()));
        let Ok(Split::One(part)) = split(&check, |_| Part(7)) else { panic!("it is in one part") };
        assert_eq!(part, Part(7));
        let [whole] = &split(&check, |_| Part(7)).unwrap().into_portions(&check)[..] else { panic!() };
        assert_eq!((whole.of(&check), whole.places()), (check, &[0, 1, 2, 3, 4][..]));
    }

    #[test]
    fn a_penalty_goes_with_the_charges_of_its_rule() {
        let quota: Quota = "1/1h fixed_window".parse().unwrap();
        let mut charges = Charges::new();
        for (rule, subject) in [("first", "b"), ("penal", "a"), ("last", "b")] {
            charges.push(charge(rule, subject, &quota)).unwrap();
        }
        let rule = Name::new("penal").unwrap();
        let name = |quota| Name::joined(rule, quota).unwrap();
        let penalty = |subject: &'static str, charges| Penalty {
            gate: (name("penalty"), &quota),
            strikes: (name("strikes"), &quota),
            offences: None,
            sentences: std::slice::from_ref(&quota),
            subject: subject.as_bytes(),
            enforcement: Enforcement::Enforce,
            charges,
            counts: true,
        };
        let penalties = [penalty("a", 1..2), penalty("c", 3..3)];
        let check = charges.check().unwrap().with_penalties(&penalties).unwrap();
        let Ok(Split::Several(portions)) = split(&check, part_of) else { panic!("it spans parts") };
        let [b, a, c] = &portions[..] else { panic!("{portions:?}") };
        assert_eq!((b.of(&check).penalties().len(), b.places()), (0, &[0, 2][..]));
        assert_eq!(a.of(&check).penalties()[0].charges, 0..1);
        // Alone there, its gate is read beside a charge of nothing.
        let alone = c.of(&check);
        assert_eq!(
            (alone.penalties()[0].charges.clone(), alone.charges().len(), c.places().len()),
            (0..0, 1, 0)
        );
        assert!(alone.is_peek(), "nothing is charged");
    }
}
