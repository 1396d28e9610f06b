//! Bytes of records, written and read. Whatever is read is from a file: nothing in it is believed before it was checked.

use ratekeeper_core::{Name, NameParts, Quota};

/// Why a record cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable;

pub(super) type Read<T> = Result<T, Unreadable>;

/// Numbers are little-endian; but those of keys big-endian, so that keys are in their order.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    /// As the first part of a key.
    pub(super) fn first(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// A text, whose length is bounded by what it is.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.u32(text.len() as u32).raw(text.as_bytes())
    }

    pub(super) fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.u8(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    pub(super) fn quota(&mut self, quota: &Quota) -> &mut Self {
        let text = quota.to_string();
        // A queue that an override left on a limit of 0 lets nothing wait; nobody can write it.
        let queue = text.find(" queue ").filter(|_| quota.is_closed());
        self.text(&text[..queue.unwrap_or(text.len())])
    }

    pub(super) fn name(&mut self, name: Name) -> &mut Self {
        if name == Name::RAW {
            return self.u8(0);
        }
        let NameParts { service, rule, quota } = name.parts();
        self.u8(1)
            .optional(service, |writer, service| {
                writer.text(service);
            })
            .text(rule);
        self.optional(quota, |writer, quota| {
            writer.text(quota);
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Unreadable)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Unreadable)
    }

    pub(super) fn u8(&mut self) -> Read<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn first(&mut self) -> Read<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable),
        }
    }

    pub(super) fn text(&mut self) -> Read<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| Unreadable)
    }

    pub(super) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn quota(&mut self) -> Read<Quota> {
        self.text()?.parse().map_err(|_| Unreadable)
    }

    pub(super) fn name(&mut self) -> Read<Name> {
        if !self.flag()? {
            return Ok(Name::RAW);
        }
        let service = self.optional(Self::text)?;
        let rule = self.text()?;
        let quota = self.optional(Self::text)?;
        Name::from_parts(NameParts { service, rule, quota }).map_err(|_| Unreadable)
    }

    /// So many things, of which each takes at least `bytes`: no more than there can be.
    pub(super) fn many<T>(
        &mut self,
        bytes: usize,
        mut read: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let count = self.u32()? as usize;
        if count > self.0.len() / bytes {
            return Err(Unreadable);
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// All of it as a text.
    pub(super) fn rest(self) -> Read<&'a str> {
        std::str::from_utf8(self.0).map_err(|_| Unreadable)
    }

    /// Refuses what has more behind it.
    pub(super) fn end(self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Unreadable) }
    }
}
