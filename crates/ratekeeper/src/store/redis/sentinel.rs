//! A primary that sentinels watch: all of them are asked at once where it is, and the newest answer counts.
//!
//! A failover has a number, the epoch of the configuration that it makes, and sentinels tell each other the newest.
//! So an answer of a lower epoch is known to be out of date, and of the newest more than half must name the same
//! place. Asked are they whenever a connection is made, and twice a second (`follow.rs`), because a message that
//! tells of a failover could be lost.

mod ask;
mod follow;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::ask::{Answer, Node, Refusal, Scout};
pub(super) use self::follow::follow;
use super::locate::NoPlace;
use super::wire::Address;
use crate::store::{StoreError, StoreErrorKind};

/// How long one sentinel may take to answer, at least: a handshake is several round trips.
const ANSWER_MIN: Duration = Duration::from_millis(250);
/// ... and at most, however patient calls are: while one is waited for, no connection learns of a new primary.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// For so long after an epoch was last heard of, lower ones are out of date. Then somebody has set the sentinels up anew.
const EPOCH_HOLDS: Duration = Duration::from_secs(10);
/// How many sentinels with the same reason an error names.
const NAMED_MAX: usize = 4;

/// The sentinels of a service.
pub(super) struct Sentinels {
    name: String,
    scouts: Vec<Arc<Scout>>,
    /// A server of the service, whose place the sentinels say.
    server: Address,
    patience: Duration,
    runtime: Handle,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// What they said, and when they were asked: connections that are lost together ask together.
    said: Option<(Instant, Said)>,
    /// The highest epoch, and when it was last heard of.
    epoch: Option<(u64, Instant)>,
}

impl Last {
    /// The lowest epoch that is believed.
    fn floor(&self) -> u64 {
        self.epoch.filter(|(_, heard)| heard.elapsed() < EPOCH_HOLDS).map_or(0, |(epoch, _)| epoch)
    }

    fn note(&mut self, begun: Instant, said: &Said) {
        if let Some(epoch) = answers(said).map(|(_, answer)| answer.epoch).max() {
            self.epoch = Some((epoch, Instant::now()));
        }
        self.said = Some((begun, said.clone()));
    }
}

/// What each of them said; nothing of those who were not waited for.
pub(super) type Said = Vec<(String, Option<Result<Answer, Refusal>>)>;

/// What a sentinel answered, for whoever looks after it.
#[derive(Debug)]
#[non_exhaustive]
pub struct SentinelAnswer {
    /// Where the sentinel is.
    pub address: String,
    /// Where the primary is, as it says; or why it does not.
    pub primary: Result<String, StoreError>,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sentinels").field(&self.name).finish()
    }
}

impl Sentinels {
    /// `deadline` is that of the store's calls.
    pub(super) fn new(
        service: &str,
        sentinels: Vec<Address>,
        server: Address,
        deadline: Duration,
        runtime: Handle,
    ) -> Self {
        let places: Vec<String> = sentinels.iter().map(Address::server).collect();
        let scouts = sentinels.into_iter().map(|sentinel| Arc::new(Scout::new(sentinel, service)));
        Self {
            name: format!("{service} (sentinels {})", places.join(", ")),
            scouts: scouts.collect(),
            server,
            patience: deadline.saturating_mul(4).clamp(ANSWER_MIN, ANSWER_MAX),
            runtime,
            last: Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where the primary is, by what sentinels say who are asked from now on.
    pub(super) async fn primary(&self) -> Result<Address, NoPlace> {
        let node = newest(&self.asked(false).await)?;
        Ok(self.server.at(&node.host, node.port))
    }

    /// What every sentinel says, and where the primary is by that.
    pub(super) async fn report(&self) -> (Vec<SentinelAnswer>, Result<Node, NoPlace>) {
        let said = self.asked(true).await;
        let found = newest(&said);
        let answers = said.into_iter().filter_map(|(address, answer)| {
            let primary = answer?.map(|answer| answer.node.to_string());
            Some(SentinelAnswer { address, primary: primary.map_err(Refusal::into_error) })
        });
        (answers.collect(), found)
    }

    /// Asks them, one survey at a time; what others asked meanwhile is good enough.
    async fn asked(&self, all: bool) -> Said {
        let since = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((_, said)) = last.said.as_ref().filter(|(begun, _)| *begun >= since && !all) {
            return said.clone();
        }
        let begun = Instant::now();
        let said = self.survey(all, last.floor()).await;
        last.note(begun, &said);
        said
    }

    /// Asks all at once; without `all`, only until more than half of them agree.
    async fn survey(&self, all: bool, floor: u64) -> Said {
        let mut said: Said = self.scouts.iter().map(|scout| (scout.address(), None)).collect();
        let mut asked = JoinSet::new();
        for (index, scout) in self.scouts.iter().enumerate() {
            let (scout, runtime, patience) = (Arc::clone(scout), self.runtime.clone(), self.patience);
            let answer = async move { (index, scout.ask(patience, &runtime).await) };
            asked.spawn_on(answer, &self.runtime);
        }
        while let Some(joined) = asked.join_next().await {
            // A task that died has said nothing.
            let Ok((index, answer)) = joined else { continue };
            said[index].1 = Some(answer.and_then(|answer| answer.not_before(floor)));
            if !all && agreed(&said).is_some_and(|(_, votes)| votes * 2 > said.len()) {
                break;
            }
        }
        said
    }
}

fn answers(said: &Said) -> impl Iterator<Item = (&str, &Answer)> {
    said.iter().filter_map(|(address, answer)| Some((address.as_str(), answer.as_ref()?.as_ref().ok()?)))
}

/// Of the answers of the newest epoch, the place that more than half of them name, and how many do.
fn agreed(said: &Said) -> Option<(&Node, usize)> {
    let newest = answers(said).map(|(_, answer)| answer.epoch).max()?;
    let mut votes: BTreeMap<&Node, usize> = BTreeMap::new();
    for (_, answer) in answers(said).filter(|(_, answer)| answer.epoch == newest) {
        *votes.entry(&answer.node).or_default() += 1;
    }
    let cast: usize = votes.values().sum();
    votes.into_iter().find(|(_, votes)| votes * 2 > cast)
}

/// Where the primary is by all that was said.
fn newest(said: &Said) -> Result<Node, NoPlace> {
    if let Some((node, _)) = agreed(said) {
        return Ok(node.clone());
    }
    if answers(said).next().is_some() {
        let why = format!("{}: see that the URL names sentinels of one group only", disagreement(said));
        return Err(NoPlace { kind: StoreErrorKind::Unavailable, why });
    }
    let refused = || said.iter().filter_map(|(_, answer)| answer.as_ref()?.as_ref().err());
    let is_refused = refused().any(|refusal| refusal.kind == StoreErrorKind::Permission);
    let kind = if is_refused { StoreErrorKind::Permission } else { StoreErrorKind::Unavailable };
    Err(NoPlace { kind, why: format!("no sentinel says where the primary is: {}", refusals(said)) })
}

/// Who says what.
fn disagreement(said: &Said) -> String {
    let mut places: BTreeMap<&Node, Vec<&str>> = BTreeMap::new();
    answers(said).for_each(|(address, answer)| places.entry(&answer.node).or_default().push(address));
    let places = places.into_iter().map(|(node, by)| format!("{} says {node}", names(&by)));
    format!("the sentinels disagree: {}", places.collect::<Vec<_>>().join(", "))
}

/// Who does not answer, and why; empty if all do.
fn refusals(said: &Said) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (address, answer) in said {
        if let Some(Err(refusal)) = answer {
            reasons.entry(&refusal.why).or_default().push(address);
        }
    }
    let reasons = reasons.into_iter().map(|(why, by)| format!("{} {why}", names(&by)));
    reasons.collect::<Vec<_>>().join("; ")
}

/// The first few, and how many more.
fn names(all: &[&str]) -> String {
    let shown = all[..all.len().min(NAMED_MAX)].join(", ");
    match all.len() - all.len().min(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answers: &[(u64, u16)]) -> Said {
        let each = answers.iter().enumerate().map(|(index, (epoch, port))| {
            let node = Node { host: "10.0.0.9".to_owned(), port: *port };
            (format!("s{index}"), Some(Ok(Answer { node, epoch: *epoch })))
        });
        each.collect()
    }

    fn port(answers: &[(u64, u16)]) -> Result<u16, String> {
        newest(&said(answers)).map(|node| node.port).map_err(|no_place| no_place.why)
    }

    #[test]
    fn the_newest_epoch_counts_and_more_than_half_of_its_answers() {
        assert_eq!(port(&[(3, 1), (3, 1), (3, 1)]), Ok(1));
        assert_eq!(port(&[(3, 1), (3, 2), (3, 1)]), Ok(1));
        assert_eq!(port(&[(3, 1), (4, 2), (3, 1)]), Ok(2), "two have not heard of the failover yet");
        assert_eq!(port(&[(0, 7)]), Ok(7));
    }

    #[test]
    fn nobody_goes_back_before_a_failover_that_was_heard_of() {
        let mut last = Last::default();
        assert_eq!(last.floor(), 0);
        last.note(Instant::now(), &said(&[(3, 1), (4, 2)]));
        assert_eq!(last.floor(), 4);
        let (_, answer) = said(&[(3, 1)]).remove(0);
        let refusal = answer.unwrap().and_then(|answer| answer.not_before(last.floor())).unwrap_err();
        assert!(refusal.why.contains("has not heard"), "{}", refusal.why);
        // Nobody says anything, which changes nothing; and then it is too long ago.
        last.note(Instant::now(), &Said::new());
        assert_eq!(last.floor(), 4);
        last.epoch = Instant::now().checked_sub(EPOCH_HOLDS).map(|heard| (4, heard));
        assert_eq!(last.floor(), 0);
    }

    #[test]
    fn without_a_majority_nobody_is_believed() {
        let why = port(&[(0, 1), (0, 2)]).unwrap_err();
        let told = "the sentinels disagree: s0 says 10.0.0.9:1, s1 says 10.0.0.9:2: see that";
        assert!(why.starts_with(told), "{why}");
        assert!(port(&[(5, 1), (5, 2), (4, 1)]).is_err(), "an old answer is no vote");
    }

    #[test]
    fn reasons_are_told_once_with_who_gave_them() {
        let refusal = |kind, why: &str| Some(Err(Refusal { kind, why: why.to_owned() }));
        let mut all: Said = (0..6)
            .map(|index| (format!("s{index}"), refusal(StoreErrorKind::Unavailable, "is away")))
            .collect();
        let no_place = newest(&all).unwrap_err();
        assert!(no_place.why.ends_with(": s0, s1, s2, s3 and 2 more is away"), "{}", no_place.why);
        assert_eq!(no_place.kind, StoreErrorKind::Unavailable);
        all[5].1 = refusal(StoreErrorKind::Permission, "wants a password");
        let no_place = newest(&all).unwrap_err();
        assert_eq!(no_place.kind, StoreErrorKind::Permission);
        assert!(no_place.why.contains("; s5 wants a password"), "{}", no_place.why);
    }
}
