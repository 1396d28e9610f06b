//! One decision out of several on parts of a check.

use super::{Decision, Origin, Outcome, Verdict};

impl Decision {
    /// The decisions on the parts of one check as one: denied if any is, at the latest of their instants, with the
    /// longest of their waits. Each comes with the places of its charges in the check, so that verdicts are in the
    /// order of the charges; behind them the gates of penalties. Clones of a part count apart what they give back.
    #[must_use]
    pub fn of_parts<'p>(parts: impl IntoIterator<Item = (Self, &'p [usize])>) -> Self {
        let mut whole = Self { origin: Origin::Repeat, ..Self::default() };
        let mut placed: Vec<(usize, Verdict)> = Vec::new();
        for (mut part, places) in parts {
            part.count_apart();
            if part.outcome == Outcome::Deny {
                whole.outcome = Outcome::Deny;
            }
            // What repeats only in part was charged now for the rest.
            if part.origin != Origin::Repeat {
                whole.origin = part.origin;
            }
            whole.at = whole.at.max(part.at);
            whole.retry_after = whole.retry_after.max(part.retry_after);
            whole.proceed_after = whole.proceed_after.max(part.proceed_after);
            whole.tipped.extend(part.tipped);
            let places = places.iter().copied().chain(std::iter::repeat(usize::MAX));
            placed.extend(places.zip(part.verdicts));
        }
        // Nobody proceeds who is denied.
        if whole.outcome == Outcome::Deny {
            whole.proceed_after = 0;
        }
        // Stable, so that gates stay in the order of their parts.
        placed.sort_by_key(|(place, _)| *place);
        whole.verdicts.extend(placed.into_iter().map(|(_, verdict)| verdict));
        whole
    }

    /// The decision without its receipts: what it charged was given back, or is not to be.
    #[must_use]
    pub fn without_receipts(mut self) -> Self {
        self.verdicts.iter_mut().for_each(|verdict| verdict.charged = false);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Charge, Check};
    use crate::key::Key;
    use crate::model::Model;
    use crate::name::Name;
    use crate::quota::Quota;
    use crate::time::Timestamp;

    #[test]
    fn parts_are_one_decision_in_the_order_of_the_charges() {
        let quotas: [Quota; 3] = ["3/min", "1/h", "5/s"].map(|text| text.parse().unwrap());
        let names = ["first", "second", "third"].map(|name| Name::new(name).unwrap());
        let charge = |index: usize| Charge::new(Key::new(names[index], "k").unwrap(), &quotas[index]);
        let mut model = Model::default();
        let mut ask =
            |index: usize, at| model.check(&Check::one(&charge(index)), Timestamp::from_secs(at)).unwrap();
        let whole = Decision::of_parts([(ask(2, 30), &[2][..]), (ask(1, 31), &[1]), (ask(0, 29), &[0])]);
        assert!(whole.is_allowed());
        assert_eq!((whole.at(), whole.origin()), (Timestamp::from_secs(31), Origin::Store));
        let names_of = |whole: &Decision| whole.verdicts().iter().map(Verdict::name).collect::<Vec<_>>();
        assert_eq!(names_of(&whole), names);
        let denied = ask(1, 40);
        let whole = Decision::of_parts([(ask(0, 40), &[0][..]), (denied.clone(), &[1])]);
        assert!(!whole.is_allowed());
        assert_eq!(whole.retry_after(), denied.retry_after());
        let repeat = |decision: Decision| decision.from_origin(Origin::Repeat);
        let both = [(repeat(ask(0, 41)), &[0][..]), (repeat(ask(2, 41)), &[1])];
        assert_eq!(Decision::of_parts(both.clone()).origin(), Origin::Repeat);
        let [one, (other, places)] = both;
        let whole = Decision::of_parts([one, (other.from_origin(Origin::Store), places)]);
        assert_eq!(whole.origin(), Origin::Store);
        assert!(whole.without_receipts().verdicts().iter().all(|verdict| verdict.receipt().is_none()));
    }
}
