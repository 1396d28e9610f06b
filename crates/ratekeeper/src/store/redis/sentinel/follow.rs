//! Asks the sentinels every now and then whether the primary is still where connections go.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::link::Link;
use super::{Node, Said, Sentinels, answers, disagreement, newest, refusals};

/// How often they are asked, up to a quarter more or less, so that instances do not ask together.
const EVERY: Duration = Duration::from_millis(500);
/// After so many surveys with the same trouble, the log has it: while a failover is told around, they differ.
const LASTS: u32 = 3;

/// Sends connections to where the primary is, until the store is gone.
pub(in crate::store::redis) async fn follow(sentinels: Weak<Sentinels>, links: Vec<Weak<Link>>) {
    let mut known: Option<Node> = None;
    let mut trouble = Trouble::default();
    loop {
        tokio::time::sleep(EVERY.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        let Some(sentinels) = sentinels.upgrade() else { return };
        let said = sentinels.asked(true).await;
        trouble.note(&sentinels, &said);
        // While nobody knows better, connections stay where they are.
        let Ok(node) = newest(&said) else { continue };
        let is_new = known.as_ref() != Some(&node);
        for link in links.iter().filter_map(Weak::upgrade) {
            Link::belongs_at(&link, &node.to_string(), is_new);
        }
        known = Some(node);
    }
}

/// Sentinels that do not answer or do not agree: one line when that begins to last, one when it is over.
#[derive(Default)]
struct Trouble {
    rounds: u32,
}

impl Trouble {
    fn note(&mut self, sentinels: &Arc<Sentinels>, said: &Said) {
        let is_one = agreement(said);
        let mut reason = refusals(said);
        if !is_one {
            reason = [reason, disagreement(said)]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
        }
        let server = sentinels.name();
        if reason.is_empty() {
            if self.rounds >= LASTS {
                tracing::info!(server, "all sentinels answer and agree");
            }
            self.rounds = 0;
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds == LASTS {
            tracing::warn!(server, reason, "some sentinels do not answer or do not agree");
        }
    }
}

fn agreement(said: &Said) -> bool {
    let mut places = answers(said).map(|(_, answer)| &answer.node);
    let first = places.next();
    places.all(|place| Some(place) == first)
}
