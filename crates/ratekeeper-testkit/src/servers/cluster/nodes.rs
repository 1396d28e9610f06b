//! What a node says of the others: the answer to `CLUSTER NODES`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// All nodes that one knows, by their port. Two that see the same are equal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nodes(BTreeMap<u16, Node>);

#[derive(Debug, PartialEq, Eq)]
struct Node {
    id: String,
    /// The id of its primary, if it is a replica.
    follows: Option<String>,
    /// Whether others find that it is there.
    is_there: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl Nodes {
    pub(super) fn read(answer: &str) -> Self {
        Self(answer.lines().filter_map(Node::read).collect())
    }

    /// Whether all six are here and there.
    pub(super) fn all_known(&self) -> bool {
        self.0.len() == 2 * super::PRIMARIES && self.0.values().all(|node| node.is_there)
    }

    /// Whether there is one at a port.
    pub(super) fn has(&self, port: u16) -> bool {
        self.0.contains_key(&port)
    }

    /// How many are no replicas.
    pub(super) fn primaries(&self) -> usize {
        self.0.values().filter(|node| node.follows.is_none()).count()
    }

    /// The ports of those that serve slots.
    pub(super) fn serving(&self) -> Vec<u16> {
        let serving = self.0.iter().filter(|(_, node)| node.is_there && !node.slots.is_empty());
        serving.map(|(port, _)| *port).collect()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<u16> {
        let owns = |node: &Node| node.slots.iter().any(|range| range.contains(&slot));
        self.0.iter().find(|(_, node)| owns(node)).map(|(port, _)| *port)
    }

    pub(super) fn a_slot_of(&self, port: u16) -> Option<u16> {
        self.0.get(&port)?.slots.first().map(|range| *range.start())
    }

    pub(super) fn replicas_of(&self, port: u16) -> Vec<u16> {
        let Some(primary) = self.0.get(&port) else { return Vec::new() };
        let follows = |node: &Node| node.follows.as_ref() == Some(&primary.id);
        self.0.iter().filter(|(_, node)| follows(node)).map(|(port, _)| *port).collect()
    }
}

impl Node {
    /// `ID HOST:PORT@BUS FLAG,FLAG PRIMARY-OR-DASH PING PONG EPOCH LINK SLOT SLOT-SLOT [SLOT->-ID]`
    fn read(line: &str) -> Option<(u16, Self)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, place, flags, primary, _, _, _, link, slots @ ..] = words.as_slice() else { return None };
        let (_, port) = place.split_once('@')?.0.rsplit_once(':')?;
        let away = |flag: &str| matches!(flag, "fail" | "fail?" | "handshake" | "noaddr");
        let mut is_there = *link == "connected";
        is_there &= !flags.split(',').any(away);
        let follows = (*primary != "-").then(|| (*primary).to_owned());
        let slots = slots.iter().filter_map(|word| range(word)).collect();
        Some((port.parse().ok()?, Self { id: (*id).to_owned(), follows, is_there, slots }))
    }
}

/// The slots of `7` or `7-9`; what is under way is in brackets and no part of it.
fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (from, to) = word.split_once('-').unwrap_or((word, word));
    Some(from.parse().ok()?..=to.parse().ok()?)
}
