//! From an offset in a text to a line and a column.

use super::Place;

/// Tells places from offsets, in a time that does not depend on how long lines
/// are: a document that a program wrote may be a single one.
pub(super) struct Lines<'t> {
    text: &'t [u8],
    /// Where each line begins.
    starts: Vec<usize>,
    /// How many characters there are before each block.
    before: Vec<usize>,
}

const BLOCK_BYTES: usize = 1_024;

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(offset, _)| offset + 1);
        let starts = std::iter::once(0).chain(after_breaks).collect();
        let text = text.as_bytes();
        let mut before = vec![0];
        for block in text.chunks(BLOCK_BYTES) {
            before.push(before.last().copied().unwrap_or_default() + characters(block));
        }
        Self { text, starts, before }
    }

    /// The place of the character at `offset`.
    pub(super) fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let column = self.characters_to(offset) - self.characters_to(self.starts[line - 1]) + 1;
        super::place(line, column)
    }

    fn characters_to(&self, offset: usize) -> usize {
        let offset = offset.min(self.text.len());
        let block = offset / BLOCK_BYTES;
        self.before[block] + characters(&self.text[block * BLOCK_BYTES..offset])
    }
}

/// Every character has one byte that does not continue another.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let lines = Lines::of("a\n\u{e9}b\n");
        let cases = [(0, (1, 1)), (1, (1, 2)), (2, (2, 1)), (4, (2, 2)), (6, (3, 1)), (99, (3, 1))];
        for (offset, (line, column)) in cases {
            assert_eq!(lines.place(offset), Place { line, column }, "{offset}");
        }
        let long = "\u{e9}".repeat(2_000);
        assert_eq!(Lines::of(&long).place(3_000), Place { line: 1, column: 1_501 });
        assert_eq!(Lines::of(&long).place(4_000), Place { line: 1, column: 2_001 });
    }
}
