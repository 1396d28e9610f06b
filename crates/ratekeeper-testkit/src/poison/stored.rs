//! What a server has at its keys, read, changed as a fuzzer's bytes say, and put back.

use std::fmt;

use super::Draw;
use crate::servers::{Answer, Client, Command};

/// The longest text that is made up.
const BYTES_MAX: usize = 64;
/// How much of a value is shown.
const SHOWN_PARTS_MAX: usize = 3;
const SHOWN_BYTES_MAX: usize = 160;
/// The most changes to one value.
const CHANGES_MAX: usize = 4;
/// Numbers that no history makes.
const DOUBLES: [f64; 20] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1.5e300,
    -1.5e300,
    -1.0,
    -0.0,
    0.0,
    0.5,
    1.0,
    2.0,
    1000.0,
    3_600_000_000.0,
    4_294_967_296.0,
    31_622_400_000_001.0,
    1.0e15,
    1.7e15,
    1_700_000_000_000_000.0,
    9_007_199_254_740_992.0,
    9_223_372_036_854_775_808.0,
];

/// A value on a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Stored {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
    /// Names and values in turn.
    Hash(Vec<Vec<u8>>),
}

impl fmt::Debug for Stored {
    /// The beginning of it: lists are long, and the fuzzer's bytes make the value again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, parts) = match self {
            Self::Text(text) => ("text", std::slice::from_ref(text)),
            Self::List(elements) => ("list", &**elements),
            Self::Hash(pairs) => ("hash", &**pairs),
        };
        write!(f, "{kind} of {}:", parts.len())?;
        for part in parts.iter().take(SHOWN_PARTS_MAX) {
            write!(f, " '{}'", part[..part.len().min(SHOWN_BYTES_MAX)].escape_ascii())?;
        }
        Ok(())
    }
}

/// A key and its value.
pub type Entry = (Vec<u8>, Stored);

/// Everything on a server, in the order of its keys.
pub fn read(client: &mut Client) -> Vec<Entry> {
    let mut keys = client.call(&[b"KEYS", b"*"]).into_texts();
    keys.sort();
    keys.into_iter()
        .map(|key| {
            let kind = client.call(&[b"TYPE", &key]);
            let stored = match &kind {
                Answer::Status(kind) if kind == "string" => {
                    Stored::Text(client.call(&[b"GET", &key]).into_text())
                }
                Answer::Status(kind) if kind == "list" => {
                    Stored::List(client.call(&[b"LRANGE", &key, b"0", b"-1"]).into_texts())
                }
                Answer::Status(kind) if kind == "hash" => {
                    Stored::Hash(client.call(&[b"HGETALL", &key]).into_texts())
                }
                other => panic!("no value of ours is {other:?}"),
            };
            (key, stored)
        })
        .collect()
}

/// Puts a value back, to live for an hour or for ever.
#[must_use]
pub fn plant((key, stored): &Entry, expires: bool) -> Vec<Command> {
    let command = |name: &str, words: &[Vec<u8>]| -> Command {
        [name.as_bytes().to_vec(), key.clone()].into_iter().chain(words.iter().cloned()).collect()
    };
    let mut commands = vec![match stored {
        Stored::Text(text) => command("SET", std::slice::from_ref(text)),
        Stored::List(elements) => command("RPUSH", elements),
        Stored::Hash(pairs) => command("HSET", pairs),
    }];
    if expires {
        commands.push(command("EXPIRE", &[b"3600".to_vec()]));
    }
    commands
}

/// A value that differs a little from a real one, or is nothing like it.
#[must_use]
pub fn changed(draw: &mut Draw<'_>, real: &Stored, others: &[Entry]) -> Stored {
    if draw.byte().is_multiple_of(16) {
        return unlike(draw, others);
    }
    let mut stored = real.clone();
    for _ in 0..=draw.below(CHANGES_MAX) {
        match &mut stored {
            Stored::Text(text) => change(draw, text, others),
            Stored::List(elements) => change_list(draw, elements, others),
            Stored::Hash(pairs) => {
                let index = draw.below(pairs.len());
                change(draw, &mut pairs[index], others);
            }
        }
    }
    stored
}

/// Bytes of chance, something of another type, or what belongs to another key.
fn unlike(draw: &mut Draw<'_>, others: &[Entry]) -> Stored {
    let length = draw.below(BYTES_MAX);
    match draw.byte() % 4 {
        0 => Stored::Text(draw.take(length).to_vec()),
        1 => Stored::List(vec![draw.take(length).to_vec(), draw.take(length).to_vec()]),
        2 => Stored::Hash(vec![b"max_requests".to_vec(), draw.take(length).to_vec()]),
        _ => others[draw.below(others.len())].1.clone(),
    }
}

/// Elements that change, go, come, or change places.
fn change_list(draw: &mut Draw<'_>, elements: &mut Vec<Vec<u8>>, others: &[Entry]) {
    // Mostly the index, which says what the others mean.
    let index = if draw.byte().is_multiple_of(2) { 0 } else { draw.below(elements.len()) };
    let other = draw.below(elements.len());
    match draw.byte() % 16 {
        0 if elements.len() > 1 => {
            elements.remove(other);
        }
        1 => elements.push(elements[other].clone()),
        2 => elements.swap(index, other),
        3 => elements[index].clear(),
        _ => change(draw, &mut elements[index], others),
    }
}

/// Bytes that change, go or come.
fn change(draw: &mut Draw<'_>, text: &mut Vec<u8>, others: &[Entry]) {
    let anywhere = draw.below(text.len() + 1);
    // Mostly where a number may begin.
    let at = anywhere & draw.one(&[!0, !1, !3, !3]);
    let number: Vec<u8> = match draw.byte() % 10 {
        // Some of what is there goes, is there twice, or comes from elsewhere.
        0 => return text.truncate(at),
        1 => return drop(text.splice(at..at, draw.take(8).iter().copied())),
        2 => {
            let again = text[at..].to_vec();
            return text.extend(again.into_iter().take(BYTES_MAX));
        }
        3 => {
            let Stored::Text(other) = &others[draw.below(others.len())].1 else { return };
            other[at.min(other.len())..].to_vec()
        }
        4 => vec![text.get(at).copied().unwrap_or_default() ^ (1 << (draw.byte() % 8))],
        5 => vec![draw.byte()],
        6 => (draw.number() as u32).to_le_bytes().to_vec(),
        7 => draw.any().to_le_bytes().to_vec(),
        _ => draw.one(&DOUBLES).to_le_bytes().to_vec(),
    };
    let end = text.len().min(at + number.len());
    text[at..end].copy_from_slice(&number[..end - at]);
}
