//! The one spelling of a path.

use std::borrow::Cow;

/// The one spelling of a path: `/%65xpensive` and `/expensive` are the same path.
///
/// A character that may stand in a path as it is (RFC 3986: `pchar`) stands there as it is. Any other byte is an
/// escape in upper case. `%2F` stays: it is no separator, unless a router decodes paths first, and then it
/// has become a `/` before. A `%` that begins no escape is `%25`. Slashes and dot segments are left
/// as they are.
///
/// Implementations of [`Facts::path`](super::Facts::path) call it. A path that is in this form already is borrowed.
///
/// ```
/// use ratekeeper::policy::canonical_path;
///
/// assert_eq!(canonical_path("/%65xpensive"), "/expensive");
/// assert_eq!(canonical_path("/caf%c3%a9/a b"), "/caf%C3%A9/a%20b");
/// ```
#[must_use]
#[inline]
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    match path.bytes().position(|byte| !IS_PLAIN[usize::from(byte)]) {
        None => Cow::Borrowed(path),
        Some(at) => escaped_path(path, at),
    }
}

/// What may stand in a path as it is: `pchar` of RFC 3986, and the slash.
static IS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/";
    let mut at = 0;
    while at < plain.len() {
        table[plain[at] as usize] = true;
        at += 1;
    }
    table
};

/// A path of which everything before `from` is plain, and what stands there is not.
#[cold]
fn escaped_path(path: &str, from: usize) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    let mut written: Option<String> = None;
    let mut at = from;
    while let Some(sent) = bytes.get(at) {
        let (byte, length) = escape_at(bytes, at).map_or((*sent, 1), |byte| (byte, ESCAPE_BYTES));
        let is_escape = length == ESCAPE_BYTES;
        let plain = IS_PLAIN[usize::from(byte)] && !(is_escape && byte == b'/');
        let is_canonical = match is_escape {
            true => !plain && !bytes[at..at + length].iter().any(u8::is_ascii_lowercase),
            false => plain,
        };
        if written.is_none() && !is_canonical {
            // Everything before is ASCII.
            written = Some(String::with_capacity(path.len() + SPARE_BYTES) + &path[..at]);
        }
        if let Some(written) = &mut written {
            match plain {
                true => written.push(char::from(byte)),
                false => push_escape(written, byte),
            }
        }
        at += length;
    }
    written.map_or(Cow::Borrowed(path), Cow::Owned)
}

const ESCAPE_BYTES: usize = 3;
/// Room for a few characters that become escapes.
const SPARE_BYTES: usize = 16;

/// The byte that the escape there stands for.
fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let [b'%', high, low] = bytes.get(at..at + ESCAPE_BYTES)? else { return None };
    let digit = |letter: u8| char::from(letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(*high)? << 4 | digit(*low)?)
}

fn push_escape(to: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    to.extend(['%', digit(byte >> 4), digit(byte & 0xF)]);
}
