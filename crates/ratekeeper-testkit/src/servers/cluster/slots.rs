//! Slots that move from node to node, a step at a time, and slots that nobody serves.

use super::Cluster;
use crate::servers::Answer;

/// How long a node may take to hand over some keys.
const MIGRATE_MILLIS: &[u8] = b"10000";

/// A slot on its way to another primary. In between, the old one answers `ASK` for keys it no longer has.
#[derive(Clone, Copy, Debug)]
#[must_use = "a move ends with Cluster::end_move"]
pub struct SlotMove {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Cluster {
    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        let node = self.running().next().expect("a node that runs");
        match self.client(node).call(&[b"CLUSTER", b"KEYSLOT", key]) {
            Answer::Number(slot) => u16::try_from(slot).expect("a slot"),
            other => panic!("a slot was expected, not {other:?}"),
        }
    }

    /// Begins to move a slot to another primary. Its keys stay where they are for now.
    pub fn begin_move(&self, slot: u16, to: usize) -> SlotMove {
        let from = self.owner(slot).expect("a slot that is served");
        let (giving, taking) = (self.id(from), self.id(to));
        let set = |node, state, other: &str| {
            assert_eq!(self.ask(node, &["CLUSTER", "SETSLOT", &slot.to_string(), state, other]), "OK");
        };
        set(to, "IMPORTING", &giving);
        set(from, "MIGRATING", &taking);
        SlotMove { slot, from, to }
    }

    /// Hands over up to so many keys of the slot; returns how many.
    pub fn move_keys(&self, of: &SlotMove, count: usize) -> usize {
        let mut giving = self.client(of.from);
        let (slot, count) = (of.slot.to_string(), count.to_string());
        let found = giving.call(&[b"CLUSTER", b"GETKEYSINSLOT", slot.as_bytes(), count.as_bytes()]);
        let keys = found.into_texts();
        if keys.is_empty() {
            return 0;
        }
        let port = self.nodes[of.to].node_port().to_string();
        let mut words: Vec<&[u8]> =
            vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", MIGRATE_MILLIS];
        if let Some(password) = self.options.password {
            words.extend([b"AUTH".as_slice(), password.as_bytes()]);
        }
        words.push(b"KEYS");
        words.extend(keys.iter().map(Vec::as_slice));
        giving.call(&words);
        keys.len()
    }

    /// Ends a move: hands over what is left, and all primaries hear of it.
    pub fn end_move(&self, of: SlotMove) {
        while self.move_keys(&of, 100) > 0 {}
        let SlotMove { slot, from, to } = of;
        let (slot, id) = (slot.to_string(), self.id(to));
        let others = self.primaries().into_iter().filter(|node| ![from, to].contains(node));
        let told: Vec<usize> = [to, from].into_iter().chain(others).collect();
        for node in told {
            assert_eq!(self.ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id]), "OK");
        }
    }

    /// Moves a slot and all its keys.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let moving = self.begin_move(slot, to);
        self.end_move(moving);
    }

    /// Takes slots from all nodes that run, so that nobody serves them; the cluster's state is then `fail`.
    pub fn uncover(&self, from: u16, to: u16) {
        let (from, to) = (from.to_string(), to.to_string());
        for node in self.running() {
            assert_eq!(self.ask(node, &["CLUSTER", "DELSLOTSRANGE", &from, &to]), "OK");
        }
    }

    fn id(&self, node: usize) -> String {
        self.ask(node, &["CLUSTER", "MYID"])
    }
}
