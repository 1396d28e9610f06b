//! Penalties as counters: how often a key was denied lately, how often it was
//! penalised, and a gate that stays shut for as long as the penalty lasts.
//!
//! All of them are ordinary quotas, so every store keeps them as exactly and
//! forgets them as surely as any other.

use std::time::Duration;

use ratekeeper_core::{Algorithm, InvalidInput, Name, Quota, WINDOW_MILLIS_MAX};

use crate::engine::Penalty;
use crate::policy::spec::{PENALTY_COUNTERS, PenaltySpec};

/// A pardon reaches every process within this time.
const FRESH: Duration = Duration::from_secs(1);

/// The penalty of a rule.
pub(super) fn of(rule: Name, spec: &PenaltySpec) -> Result<Penalty, InvalidInput> {
    let [gate, strikes, offences] = PENALTY_COUNTERS.map(|name| Name::joined(rule, name));
    let window = |limit, window| Quota::new(Algorithm::FixedWindow, limit, window);
    let sentences = durations(spec).into_iter().map(|duration| window(1, duration));
    let sentences = sentences.collect::<Result<Vec<_>, _>>()?;
    let steps = sentences.len() as u32;
    let longest = Duration::from_millis(WINDOW_MILLIS_MAX);
    let forgotten_in = spec.max.saturating_mul(2 * steps).min(longest);
    let offences = match steps {
        1 => None,
        _ => Some((offences?, Quota::token_bucket(steps.into(), forgotten_in)?)),
    };
    Ok(Penalty {
        strikes: (strikes?, window(spec.denials.into(), spec.within)?),
        // A window keeps its end when its length changes, so the longest reads them all.
        gate: (gate?, window(1, spec.max)?),
        offences,
        sentences,
        fresh: window(1, FRESH)?,
    })
}

/// How long each penalty is, up to the longest.
fn durations(spec: &PenaltySpec) -> Vec<Duration> {
    let mut durations = vec![spec.duration.min(spec.max)];
    while spec.escalate > 1
        && let Some(last) = durations.last().filter(|last| **last < spec.max)
    {
        durations.push(last.saturating_mul(spec.escalate).min(spec.max));
    }
    durations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_grow_to_the_longest() {
        let spec = |escalate, max| PenaltySpec {
            denials: 3,
            within: Duration::from_secs(60),
            duration: Duration::from_secs(10),
            escalate,
            max: Duration::from_secs(max),
        };
        let seconds = |escalate, max| {
            let durations = durations(&spec(escalate, max));
            durations.iter().map(Duration::as_secs).collect::<Vec<_>>()
        };
        assert_eq!(seconds(2, 75), [10, 20, 40, 75]);
        assert_eq!(seconds(1, 10), [10]);
        assert_eq!(seconds(100, 10), [10]);
        let longest = spec(2, WINDOW_MILLIS_MAX / 1_000);
        let penalty = of(Name::new("penal").unwrap(), &longest).unwrap();
        assert_eq!(penalty.offences.unwrap().1.limit() as usize, penalty.sentences.len());
    }
}
