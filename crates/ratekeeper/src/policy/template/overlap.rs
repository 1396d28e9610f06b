//! Whether two templates can give the same subject.
//!
//! Both are patterns: bytes, and runs of bytes that values may consist of. A
//! walk over the pairs of places in them finds out whether some text fits both.
//! What fits is taken a little too wide (any run of `0-9a-f:./` is an address),
//! so that it errs on the side of telling.

use super::{Part, Template};
use crate::policy::request::Fact;

/// One place of a pattern.
enum Place {
    Byte(u8),
    /// One or more of these.
    Run(Box<[bool; 256]>),
}

impl Template {
    /// Whether some values could make this template and another one give the
    /// same subject. Then whoever chooses a value of the one can use up a limit
    /// that is counted under the other: `{header.x-user}` and `{client.ip}` do,
    /// `user:{header.x-user}` and `ip:{client.ip}` do not.
    #[must_use]
    pub fn overlaps(&self, other: &Template) -> bool {
        let (a, b) = (self.pattern(), other.pattern());
        let mut seen = vec![false; (2 * a.len() + 2) * (2 * b.len() + 2)];
        let mut open = vec![(0, 0)];
        // A state is twice the place, and one more inside of a run: that may go
        // on or be over.
        while let Some((left, right)) = open.pop() {
            if std::mem::replace(&mut seen[left * (2 * b.len() + 2) + right], true) {
                continue;
            }
            if left % 2 == 1 {
                open.push((left + 1, right));
            }
            if right % 2 == 1 {
                open.push((left, right + 1));
            }
            if left == 2 * a.len() && right == 2 * b.len() {
                return true;
            }
            if let (Some(x), Some(y)) = (a.get(left / 2), b.get(right / 2))
                && x.meets(y)
            {
                open.push((x.after(left), y.after(right)));
            }
        }
        false
    }

    fn pattern(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => places.extend(text.bytes().map(Place::Byte)),
                Part::Value(fact) => places.push(Place::Run(Box::new(std::array::from_fn(|byte| {
                    // Within range: the array has 256 places.
                    self.may_have(fact, byte as u8)
                })))),
            }
        }
        places
    }

    fn may_have(&self, fact: &Fact, byte: u8) -> bool {
        match (&self.hashing, fact) {
            (Some(_), _) => byte == b'#' || byte.is_ascii_hexdigit(),
            (None, Fact::ClientIp) => byte.is_ascii_hexdigit() || b":./".contains(&byte),
            (None, _) => self.plain.keeps(byte) || byte == b'%' || !byte.is_ascii(),
        }
    }
}

impl Place {
    fn meets(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Byte(x), Place::Byte(y)) => x == y,
            (Place::Byte(byte), Place::Run(run)) | (Place::Run(run), Place::Byte(byte)) => {
                run[usize::from(*byte)]
            }
            (Place::Run(x), Place::Run(y)) => x.iter().zip(y.iter()).any(|(x, y)| *x && *y),
        }
    }

    /// The state after one more byte.
    fn after(&self, state: usize) -> usize {
        match self {
            Place::Byte(_) => state / 2 * 2 + 2,
            Place::Run(_) => state / 2 * 2 + 1,
        }
    }
}
