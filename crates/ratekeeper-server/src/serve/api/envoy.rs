//! What Envoy asks, without gRPC: the descriptors of a call, judged by the policy of their domain.
//!
//! All descriptors of a call are one check: all are charged, or none. With `is_each`, each is a check of its own.

mod told;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::policy::{Ask, Body, Descriptor, Facts, Scalar, ServiceLimiter};
use ratekeeper::{Algorithm, Decision, Demand, Name, Origin, Quota};
use smallvec::SmallVec;

pub(in crate::serve) use self::told::{EnvoyAnswer, EnvoyLimit, EnvoyStatus};
use super::problem::Problem;
use super::{Api, input};

/// What a limit is called that comes with a descriptor which no rule is about.
const OVERRIDE_NAME: &str = "request-limit";
/// The longest key of such a limit that is kept as it is, in bytes; of a longer one, a digest.
const PLAIN_BYTES_MAX: usize = 200;
const DAY: u64 = 86_400;
/// How long each unit of Envoy's is, in seconds, by its number.
const UNITS: [u64; 8] = [0, 1, 60, 3_600, DAY, 30 * DAY, 365 * DAY, 7 * DAY];

/// A call.
#[derive(Debug, Default)]
pub(in crate::serve) struct EnvoyCall<'c> {
    pub(in crate::serve) domain: Cow<'c, str>,
    pub(in crate::serve) descriptors: Vec<EnvoyDescriptor<'c>>,
    /// Units of each descriptor that says none itself; 0 means 1.
    pub(in crate::serve) hits: u32,
}

/// A descriptor.
#[derive(Debug, Default)]
pub(in crate::serve) struct EnvoyDescriptor<'c> {
    pub(in crate::serve) descriptor: Descriptor<'c>,
    /// Requests in a unit of Envoy's, in place of what rules say.
    pub(in crate::serve) limit: Option<(u32, u64)>,
    /// 0 is a look.
    pub(in crate::serve) hits: Option<u64>,
    /// Whether the hits are given back.
    pub(in crate::serve) is_negative: bool,
}

/// How calls are judged.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::serve) struct EnvoyTerms {
    pub(in crate::serve) takes_refunds: bool,
    pub(in crate::serve) is_each: bool,
}

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Charge,
    Look,
    GiveBack,
}

/// A descriptor with the rules that apply to it.
struct Asked {
    verb: Verb,
    /// The demand, until it is one with others.
    demand: Option<Demand<'static>>,
    /// Its rules, and under which index the verdict of each is found.
    rules: SmallVec<[(Name, u16); 2]>,
    units: u32,
}

/// What is judged together, and what became of it.
#[derive(Default)]
struct Group {
    /// Whether other descriptors may be judged with it.
    is_together: bool,
    charged: Option<Demand<'static>>,
    looked_at: Option<Demand<'static>>,
    decision: Decision,
}

impl Api {
    /// Judges the descriptors of a call, for a caller who waits no longer than `patience`.
    pub(in crate::serve) async fn envoy(
        &self,
        call: &EnvoyCall<'_>,
        terms: EnvoyTerms,
        patience: Option<Duration>,
    ) -> Result<EnvoyAnswer, Problem> {
        let begun = Instant::now();
        if call.domain.is_empty() {
            return Err(Problem::missing("domain"));
        }
        if call.descriptors.is_empty() {
            return Err(Problem::missing("descriptors"));
        }
        let Some(service) = self.limiter.known_service(&call.domain) else {
            return Ok(EnvoyAnswer::unlimited(call.descriptors.len()));
        };
        let mut asked = Vec::with_capacity(call.descriptors.len());
        for (descriptor, index) in call.descriptors.iter().zip(0u16..) {
            let one = one(&service, descriptor, (call.hits.max(1).into(), index), terms);
            asked.push(one.map_err(|problem| problem.before(&format!("descriptors[{index}]")))?);
        }
        replaced(&mut asked);
        let mut groups = grouped(&mut asked, terms.is_each);
        for group in &mut groups {
            let left = patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            self.judge_group(group, left).await.map_err(input)?;
        }
        if groups.iter().all(|group| group.decision.is_allowed()) {
            give_back(&mut asked).await;
        }
        let decisions: SmallVec<[&Decision; 1]> = groups.iter().map(|group| &group.decision).collect();
        let is_late = patience.is_some_and(|patience| begun.elapsed() >= patience)
            && decisions.iter().any(|decision| decision.origin() == Origin::Outage);
        let rules: SmallVec<[&[(Name, u16)]; 4]> = asked.iter().map(|asked| &*asked.rules).collect();
        Ok(EnvoyAnswer { is_late, ..EnvoyAnswer::new(&decisions, &rules, &self.options) })
    }

    /// Nothing is charged if what is only looked at has no room.
    async fn judge_group(
        &self,
        group: &mut Group,
        patience: Option<Duration>,
    ) -> Result<(), ratekeeper::InvalidInput> {
        let looked = match &group.looked_at {
            Some(demand) => Some(demand.peek().await?),
            None => None,
        };
        let is_free = looked.as_ref().is_none_or(Decision::is_allowed);
        let charged = match &group.charged {
            Some(demand) if !is_free => Some(demand.peek().await?),
            Some(demand) => {
                let mut decision = Decision::default();
                match patience {
                    _ if !self.waits() => demand.now().check_into(&mut decision)?,
                    Some(patience) => decision = demand.check_within(patience).await?,
                    None => decision = demand.check().await?,
                }
                self.note(demand, &decision);
                Some(decision)
            }
            None => None,
        };
        group.decision = match (looked, charged) {
            (Some(looked), Some(charged)) => looked.joined(&charged),
            (looked, charged) => looked.or(charged).unwrap_or_default(),
        };
        Ok(())
    }
}

/// What a descriptor asks for. `hits` are those of the call.
fn one(
    service: &ServiceLimiter,
    asked: &EnvoyDescriptor<'_>,
    (hits, index): (u64, u16),
    terms: EnvoyTerms,
) -> Result<Asked, Problem> {
    let verb = match asked.hits {
        _ if asked.is_negative => Verb::GiveBack,
        Some(0) => Verb::Look,
        _ => Verb::Charge,
    };
    if verb == Verb::GiveBack && !terms.takes_refunds {
        return Err(Problem::got("is_negative_hits", "true", "false, or a server with --grpc-refunds"));
    }
    // A look asks for one unit: whether another request would pass.
    let units = asked.hits.unwrap_or(hits).max(1);
    let facts = OfDescriptor(&asked.descriptor);
    let ask = Ask::request(&facts).cost(units.min(u64::from(LIMIT_MAX) + 1));
    let ask = if verb == Verb::GiveBack { ask.in_any_mode() } else { ask };
    let mut demand = service.demand(&ask);
    if let Some((requests, unit)) = asked.limit {
        demand = limited(service, demand, (&ask, &asked.descriptor), (requests, unit, units))?;
    }
    let rules = demand.rules().map(|rule| (rule.rule, index)).collect();
    let units = u32::try_from(units).unwrap_or(LIMIT_MAX);
    Ok(Asked { verb, demand: Some(demand.at_index(index)), rules, units })
}

/// The demand under a limit that comes with the descriptor. Where no rule is about it, it is a limit of its own.
fn limited(
    service: &ServiceLimiter,
    demand: Demand<'static>,
    (ask, descriptor): (&Ask<'_>, &Descriptor<'_>),
    (requests, unit, units): (u32, u64, u64),
) -> Result<Demand<'static>, Problem> {
    let unit = usize::try_from(unit).ok().and_then(|unit| UNITS.get(unit)).filter(|unit| **unit > 0);
    let window = unit
        .copied()
        .map(Duration::from_secs)
        .ok_or_else(|| Problem::wrong("limit.unit", "SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR"))?;
    if demand.is_limited() {
        return Ok(demand.limited_to(requests.into(), window));
    }
    if service.demand(&ask.in_any_mode()).is_limited() {
        // The rule is switched off, and so is its limit.
        return Ok(demand);
    }
    let quota = Quota::new(Algorithm::FixedWindow, 1, window).and_then(Quota::aligned);
    let quota = quota.map_err(input)?.overridden(requests.into(), None);
    service.demand_beside(OVERRIDE_NAME, subject_of(descriptor), quota, units).map_err(input)
}

/// What a limit of its own counts under: everything that the descriptor says.
fn subject_of(descriptor: &Descriptor<'_>) -> String {
    let mut subject = String::new();
    for (key, value) in descriptor.entries() {
        for (text, end) in [(key, '='), (value, ',')] {
            for character in text.chars() {
                match character {
                    '%' | '=' | ',' => subject.push_str(&format!("%{:02X}", u32::from(character))),
                    character => subject.push(character),
                }
            }
            subject.push(end);
        }
    }
    match subject.len() {
        0 => ",".to_owned(),
        length if length <= PLAIN_BYTES_MAX => subject,
        // No key has one: it would be escaped.
        _ => format!("%{}", blake3::hash(subject.as_bytes()).to_hex()),
    }
}

/// Leaves out the rules that rules of other descriptors replace, however they are judged.
fn replaced(asked: &mut [Asked]) {
    let demands = asked.iter().filter_map(|one| one.demand.as_ref());
    let all: Vec<Demand<'static>> = demands.filter(|demand| demand.replaces()).cloned().collect();
    for one in asked.iter_mut().filter(|_| !all.is_empty()) {
        let Some(own) = one.demand.take() else { continue };
        let left = all.iter().fold(own, |own, other| own.beside(other));
        one.rules.retain(|(name, _)| left.rules().any(|rule| rule.rule == *name));
        one.demand = Some(left);
    }
}

/// The demands that are judged together: all, or each by itself. Of descriptors that count the same, the verdict is
/// found under the first.
fn grouped(asked: &mut [Asked], is_each: bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: Vec<(Name, String, Verb, u16)> = Vec::new();
    let is_several = asked.len() > 1;
    for one in asked {
        if one.verb == Verb::GiveBack {
            continue;
        }
        let Some(demand) = one.demand.take() else { continue };
        // Those of which one is enough stay together, also where each is judged by itself.
        let is_apart = is_each && !demand.is_any_of();
        if is_several && !is_apart {
            for (rule, own) in demand.rules().zip(&mut one.rules) {
                let same = known.iter().find(|(name, subject, verb, _)| {
                    (*name, subject.as_str(), *verb) == (rule.rule, rule.subject, one.verb)
                });
                match same {
                    Some((.., first)) => own.1 = *first,
                    None => known.push((rule.rule, rule.subject.to_owned(), one.verb, own.1)),
                }
            }
        }
        let known_group = groups.iter_mut().position(|group| !is_apart && group.is_together);
        let at = known_group.unwrap_or_else(|| {
            groups.push(Group { is_together: !is_apart, ..Group::default() });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(at) else { continue };
        let place = if one.verb == Verb::Look { &mut group.looked_at } else { &mut group.charged };
        *place = Some(match place.take() {
            Some(others) => others.and(demand),
            None => demand,
        });
    }
    groups
}

/// Gives back what descriptors with negative hits ask for. What cannot be given back comes back with time.
async fn give_back(asked: &mut [Asked]) {
    for one in asked.iter_mut().filter(|one| one.verb == Verb::GiveBack) {
        let Some(demand) = one.demand.take() else { continue };
        if let Err(error) = demand.give_back(one.units).await {
            tracing::debug!(%error, "negative hits were not given back");
        }
    }
}

/// A request of which a proxy tells only what it made of it.
struct OfDescriptor<'d>(&'d Descriptor<'d>);

impl Facts for OfDescriptor<'_> {
    fn method(&self) -> Option<&str> {
        None
    }

    fn path(&self) -> Option<&str> {
        None
    }

    fn route(&self) -> Option<&str> {
        None
    }

    fn query_string(&self) -> Option<&str> {
        None
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }

    fn header_from_end(&self, _: &str, _: usize) -> Option<&[u8]> {
        None
    }

    fn body(&self) -> Body<'_> {
        Body::Absent
    }

    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn claim(&self, _: &str) -> Option<Scalar<'_>> {
        None
    }

    fn descriptor(&self) -> Option<&Descriptor<'_>> {
        Some(self.0)
    }
}

/// The number of Envoy's unit of a window; 0 if it has none.
fn unit_of(window: Duration) -> u64 {
    let of_unit = |seconds: &u64| Duration::from_secs(*seconds) == window;
    (0..).zip(UNITS).skip(1).find(|(_, seconds)| of_unit(seconds)).map_or(0, |(unit, _)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_descriptors_have_one_subject() {
        let subject =
            |entries: &[(&'static str, &'static str)]| subject_of(&entries.iter().copied().collect());
        assert_eq!(subject(&[("a", "1"), ("b", "2")]), "a=1,b=2,");
        assert_eq!(subject(&[("a", "1,b=2")]), "a=1%2Cb%3D2,");
        assert_eq!(subject(&[("a", ""), ("%", "")]), "a=,%25=,");
        assert_eq!(subject(&[]), ",");
        let long: Descriptor<'_> = [("a", "x".repeat(5_000))].into_iter().collect();
        let other: Descriptor<'_> = [("a", "x".repeat(5_001))].into_iter().collect();
        assert_eq!(subject_of(&long).len(), 65);
        assert_ne!(subject_of(&long), subject_of(&other));
    }

    #[test]
    fn units_are_envoys() {
        for (seconds, unit) in
            [(1, 1), (60, 2), (3_600, 3), (86_400, 4), (2_592_000, 5), (604_800, 7), (10, 0)]
        {
            assert_eq!(unit_of(Duration::from_secs(seconds)), unit, "{seconds}");
        }
    }
}
