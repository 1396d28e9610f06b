//! Rules with penalties, from the texts of their quotas.

use std::ops::Range;

use ratekeeper_core::{Enforcement, Name, Penalty, Quota};

/// The counters of a rule's penalties and how long these are.
#[derive(Clone, Debug)]
pub struct PenalRule {
    /// The rule.
    pub name: Name,
    /// The gate, the strikes and, if penalties grow, the offences.
    pub counters: Vec<(Name, Quota)>,
    sentences: Vec<Quota>,
}

impl PenalRule {
    /// A rule whose penalties come after so many strikes, last for so long, and grow if
    /// there are offences. The gate is as long as the last sentence.
    ///
    /// # Panics
    /// If a text is not a quota.
    #[must_use]
    pub fn new(rule: &str, strikes: &str, sentences: &[&str], offences: Option<&str>) -> Self {
        let name = Name::new(rule).expect("a short name");
        let quota = |text: &str| text.parse::<Quota>().expect("a quota");
        let sentences: Vec<Quota> = sentences.iter().map(|text| quota(text)).collect();
        let quotas = [sentences.last().copied(), Some(quota(strikes)), offences.map(quota)];
        let names = ["penalty", "strikes", "offences"].map(|part| Name::joined(name, part));
        let counters = names.into_iter().zip(quotas);
        let counters = counters.filter_map(|(name, quota)| Some((name.expect("a short name"), quota?)));
        Self { name, counters: counters.collect(), sentences }
    }

    /// The same from a row of a table.
    #[must_use]
    pub fn of((rule, strikes, sentences, offences): (&str, &str, &[&str], Option<&str>)) -> Self {
        Self::new(rule, strikes, sentences, offences)
    }

    /// The penalty of `subject`, enforced, if `charges` of a check are the rule's.
    ///
    /// # Panics
    /// If there are no sentences.
    #[must_use]
    pub fn penalty<'a>(&'a self, subject: &'a str, charges: Range<usize>) -> Penalty<'a> {
        let counter = |index: usize| self.counters.get(index).map(|(name, quota)| (*name, quota));
        Penalty {
            gate: counter(0).expect("a gate"),
            strikes: counter(1).expect("strikes"),
            offences: counter(2),
            sentences: &self.sentences,
            subject: subject.as_bytes(),
            enforcement: Enforcement::Enforce,
            charges,
            counts: true,
        }
    }
}
