//! The wire format of protocol buffers, as far as a few messages need it.
//!
//! Messages are read where they lie, and nothing is allocated before it is known how much there is of it. Text need not be
//! UTF-8: what is not becomes U+FFFD, because clients choose values, and a call that fails is one that is not limited.

use std::borrow::Cow;

/// How deep groups that nobody asks for may be nested.
const GROUPS_DEPTH_MAX: usize = 32;
/// The most bytes of a number.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    /// Something that none of our fields is.
    Other,
}

impl<'b> Value<'b> {
    /// Text, if it is of that kind at all.
    pub(super) fn text(self) -> Option<Cow<'b, str>> {
        match self {
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }
}

/// The fields of a message, as they come: the number of each, and its value.
#[derive(Clone, Debug)]
pub(super) struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    pub(super) fn of(message: &'b [u8]) -> Self {
        Self(message)
    }

    fn field(&mut self) -> Result<(u64, Value<'b>), Malformed> {
        let (number, kind) = self.tag()?;
        let value = match kind {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            3 => self.group(number)?,
            5 => self.skip(4)?,
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }

    fn tag(&mut self) -> Result<(u64, u64), Malformed> {
        let tag = self.varint()?;
        if tag > u32::MAX.into() || tag >> 3 == 0 {
            return Err(Malformed);
        }
        Ok((tag >> 3, tag & 7))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for (index, byte) in self.0.iter().take(VARINT_BYTES_MAX).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                // The last has one bit of the number.
                let is_over = index + 1 == VARINT_BYTES_MAX && *byte > 1;
                self.0 = &self.0[index + 1..];
                return if is_over { Err(Malformed) } else { Ok(number) };
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, length: usize) -> Result<Value<'b>, Malformed> {
        self.take(length).map(|_| Value::Other)
    }

    /// Goes on behind the end of a group.
    fn group(&mut self, number: u64) -> Result<Value<'b>, Malformed> {
        let mut open = vec![number];
        while let Some(innermost) = open.last().copied() {
            let (number, kind) = self.tag()?;
            match kind {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                    self.take(length)?;
                }
                3 if open.len() < GROUPS_DEPTH_MAX => open.push(number),
                4 if number == innermost => drop(open.pop()),
                5 => drop(self.take(4)?),
                _ => return Err(Malformed),
            }
        }
        Ok(Value::Other)
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(u64, Value<'b>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// A message that is written. Fields with nothing in them are left out, as the format has it.
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.tag(field, 0);
            self.varint(number);
        }
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.tag(field, 2);
            self.varint(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A message within this one; there also if it is empty.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.tag(field, 2);
        let start = self.0.len();
        // Most lengths take one byte.
        self.0.push(0);
        write(self);
        let length = self.0.len() - start - 1;
        if length < 0x80 {
            self.0[start] = length as u8;
            return;
        }
        let mut prefix = Self::default();
        prefix.varint(length as u64);
        self.0.splice(start..=start, prefix.0);
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint((field << 3 | kind).into());
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u64, Value<'_>)>, Malformed> {
        Fields::of(bytes).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut message = Message::default();
        message.number(1, 0);
        message.number(2, u64::MAX);
        message.text(3, "");
        message.text(4, "text");
        message.message(5, |inner| inner.bytes(1, &[7; 300]));
        message.message(6, |_| {});
        let fields = read(&message.0).unwrap();
        let [number, text, inner, empty] = fields.as_slice() else { panic!("{fields:?}") };
        assert_eq!((number, text), (&(2, Value::Number(u64::MAX)), &(4, Value::Bytes(b"text"))));
        let (5, Value::Bytes(inner)) = inner else { panic!("{inner:?}") };
        assert_eq!(read(inner), Ok(vec![(1, Value::Bytes(&[7; 300]))]));
        assert_eq!(empty, &(6, Value::Bytes(b"")));
    }

    #[test]
    fn what_nobody_asks_for_is_passed_over() {
        // A fixed number of 8 bytes, one of 4, and a group with a group in it.
        let bytes = [
            &[0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4][..],
            &[0x1b, 0x08, 1, 0x23, 0x12, 1, 0, 0x24, 0x1c],
            &[0x28, 5],
        ];
        let bytes = bytes.concat();
        let fields = read(&bytes).unwrap();
        assert_eq!(fields, [(1, Value::Other), (2, Value::Other), (3, Value::Other), (5, Value::Number(5))]);
    }

    #[test]
    fn what_is_no_message_is_told() {
        let long = [&[0x08][..], &[0xff; 9], &[0x02]].concat();
        let endless = [&[0x08][..], &[0x80; 20]].concat();
        let deep = [0x0b].repeat(1_000);
        let cases: [&[u8]; 13] = [
            &[0x08],
            &[0x0a],
            &[0x0a, 5, 1],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x09, 1],
            &[0x0d, 1],
            &[0x00, 0],
            &[0x0e, 0],
            &[0x0c],
            &[0x0b, 0x14],
            &long,
            &endless,
            &deep,
        ];
        for bytes in cases {
            assert_eq!(read(bytes), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(read(&[0x80; 6]), Err(Malformed));
    }
}
