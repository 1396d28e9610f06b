//! What a check consists of, and how many slots of a cluster it touches.

use ratekeeper::{Charge, Charges, InvalidInput, Key, Name, OverrideScope, Quota};

use crate::Result;

/// Counters of the shapes with organisations, however many these are.
pub const COUNTERS: u32 = 100_000;
/// Counters of each rule of the shapes with several charges.
const PARTIES: u32 = 10_000;
/// The endpoint whose overrides are looked for.
const ENDPOINT: &str = "/v1/search";
/// The rules of a check with several charges.
const RULES: [&str; 3] = ["per-address", "per-user", "per-project"];
/// Every check of so many units passes until the run is over, and no counter is full again before.
const AMPLE: &str = "10000/h";
/// Denies all but the first check.
const NARROW: &str = "1000/31d fixed_window";
/// What making a counter costs: all that a narrow one has.
pub const FIRST_COST: u64 = 1_000;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A charge of one of [`COUNTERS`], which belong to so many organisations: their counters share a slot each.
    Organisations(u32),
    /// The same, of one organisation per counter, and all of them in one slot: every batch is as full as on one server.
    OneSlot,
    /// So many charges of different rules on the same subject.
    Together(usize),
    /// The same on different subjects: so many slots.
    Spanning(usize),
    /// Two charges on the same subject, of which the last denies.
    DeniedTogether,
    /// The same on different subjects: the other is charged and given back.
    DeniedSpanning,
}

impl Shape {
    /// What the tables call it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Shape::Organisations(count) => format!("one charge, {count} organisations"),
            Shape::OneSlot => "one charge, all in one slot".to_owned(),
            Shape::Together(count) => format!("{count} charges in one slot"),
            Shape::Spanning(count) => format!("{count} charges in {count} slots"),
            Shape::DeniedTogether => "2 charges in one slot, denied".to_owned(),
            Shape::DeniedSpanning => "2 charges in 2 slots, denied".to_owned(),
        }
    }

    /// How many different checks there are.
    #[must_use]
    pub const fn checks(self) -> u32 {
        match self {
            Shape::Organisations(_) | Shape::OneSlot => COUNTERS,
            _ => PARTIES,
        }
    }

    /// Whether checks are to be allowed.
    #[must_use]
    pub const fn passes(self) -> bool {
        !matches!(self, Shape::DeniedTogether | Shape::DeniedSpanning)
    }

    /// Whether all its counters are to be in one slot of a cluster.
    #[must_use]
    pub const fn has_one_tag(self) -> bool {
        matches!(self, Shape::OneSlot)
    }

    const fn charges(self) -> usize {
        match self {
            Shape::Organisations(_) | Shape::OneSlot => 1,
            Shape::Together(count) | Shape::Spanning(count) => count,
            Shape::DeniedTogether | Shape::DeniedSpanning => 2,
        }
    }

    const fn spans(self) -> bool {
        matches!(self, Shape::Spanning(_) | Shape::DeniedSpanning)
    }
}

/// Whose counters a check is about.
#[derive(Debug)]
pub struct Subjects {
    /// Whose overrides are looked for, if any are.
    organisation: Option<String>,
    /// One for each charge.
    all: Vec<String>,
}

/// A shape with the quotas of its charges.
#[derive(Debug)]
pub struct Asked {
    /// The shape.
    pub shape: Shape,
    ample: Quota,
    narrow: Quota,
}

impl Asked {
    /// # Errors
    /// Never, unless the bounds of quotas change.
    pub fn new(shape: Shape) -> Result<Self> {
        Ok(Self { shape, ample: AMPLE.parse()?, narrow: NARROW.parse()? })
    }

    /// Whose counters a check is about.
    #[must_use]
    pub fn subjects(&self, check: u32) -> Subjects {
        let organisations = match self.shape {
            Shape::Organisations(count) => count,
            Shape::OneSlot => COUNTERS,
            shape => {
                let all = (0..shape.charges()).map(|charge| self.subject(check, charge)).collect();
                return Subjects { organisation: None, all };
            }
        };
        let organisation = format!("org{}", check % organisations);
        let all = vec![format!("{organisation}:user:{check:08}")];
        Subjects { organisation: Some(organisation), all }
    }

    /// The charges of a check, each of so many units.
    ///
    /// # Errors
    /// Never, unless the bounds of names change.
    pub fn charges<'a>(&'a self, of: &'a Subjects, cost: u64) -> Result<Charges<'a>, InvalidInput> {
        let mut charges = Charges::new();
        for (index, (rule, subject)) in RULES.iter().zip(&of.all).enumerate() {
            let denies = index + 1 == of.all.len() && !self.shape.passes();
            let quota = if denies { &self.narrow } else { &self.ample };
            let charge = Charge::new(Key::new(Name::new(rule)?, subject)?, quota).cost(cost)?;
            charges.push(match &of.organisation {
                Some(organisation) => {
                    charge.overridable(OverrideScope::organisation(ENDPOINT, organisation)?)
                }
                None => charge,
            })?;
        }
        Ok(charges)
    }

    fn subject(&self, check: u32, charge: usize) -> String {
        let kind = match self.shape {
            Shape::Together(_) => "together",
            Shape::DeniedTogether => "denied",
            Shape::DeniedSpanning => "refunded",
            _ => "spanning",
        };
        let of = if self.shape.spans() { RULES[charge] } else { "all" };
        format!("{kind}:{}:{of}:{check:08}", self.shape.charges())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_check_has_the_charges_and_subjects_that_its_name_says() {
        let shapes = [
            (Shape::Organisations(10), 1, 1),
            (Shape::OneSlot, 1, 1),
            (Shape::Together(3), 3, 1),
            (Shape::Spanning(3), 3, 3),
            (Shape::DeniedTogether, 2, 1),
            (Shape::DeniedSpanning, 2, 2),
        ];
        for (shape, count, subjects) in shapes {
            let asked = Asked::new(shape).unwrap();
            let of = asked.subjects(7);
            let charges = asked.charges(&of, 1).unwrap();
            let check = charges.check().unwrap();
            let own: BTreeSet<&[u8]> = check.charges().iter().map(|charge| charge.key().subject()).collect();
            assert_eq!((check.charges().len(), own.len()), (count, subjects), "{}", shape.name());
        }
    }
}
