//! Numbers drawn from the bytes of a fuzzer.

/// What a fuzzer's bytes stand for; zeros when there are none left.
#[derive(Debug)]
pub struct Draw<'a>(pub(super) &'a [u8]);

/// Numbers at which something changes.
const EDGES: [u64; 12] =
    [0, 1, 2, 1 << 31, u32::MAX as u64, 1 << 32, 1 << 52, 1 << 53, 1 << 63, u64::MAX - 1, u64::MAX, 10];

impl<'a> Draw<'a> {
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % bound
    }

    /// One of several.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Up to `length` of the bytes that are left.
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn any(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// Mostly a number at which something changes.
    pub(super) fn number(&mut self) -> u64 {
        match self.byte() {
            choice @ 0..=199 => EDGES[usize::from(choice) % EDGES.len()],
            200..=229 => u64::from(self.byte()),
            _ => self.any(),
        }
    }
}
