//! Receipts that leave the process, signed.
//!
//! A receipt says which charge it is of. Whoever could make one up could give back what others were
//! charged, so each is signed; and each has a number, under which the store counts what was given back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::bail;
use ratekeeper::bounds::SECRET_BYTES;
use ratekeeper::{CounterName, Level, Origin, Receipt, Store, Timestamp};
use smallvec::SmallVec;
use subtle::ConstantTimeEq as _;

use crate::files;
use crate::serve::reread::Reread;

/// The longest file of keys, in bytes.
const KEY_FILE_BYTES_MAX: u64 = 4 << 10;
/// Keys that are accepted at once: the one that signs, and the one before it.
const KEYS_MAX: usize = 2;
/// The shortest key in a file, in bytes.
const KEY_BYTES_MIN: usize = 32;
/// How often the store is asked for the key it keeps, which also keeps it alive.
const RENEW_EVERY: Duration = Duration::from_secs(3_600);
/// How often it is asked while it does not answer.
const RETRY_EVERY: Duration = Duration::from_secs(5);
/// What keys are derived for.
const CONTEXT: &str = "ratekeeper 2026-11-18 receipts";
/// Bytes of a signature: too many to guess.
const SIGNATURE_BYTES: usize = 16;
/// The latest instant that a receipt can name: stores count no further.
const INSTANT_MAX: u64 = 1 << 53;
/// What is signed takes so many bytes as a rule: two steps of the hash.
const INLINE: usize = 128;

type Key = [u8; SECRET_BYTES];

/// Signs receipts, and knows its own again.
#[derive(Debug)]
pub(super) struct Receipts {
    keys: RwLock<Arc<Keys>>,
    file: Option<PathBuf>,
    nonce: AtomicU64,
    /// Nobody but this process has it: for receipts of counters that nobody else has.
    process: u64,
}

/// The first signs; all are accepted.
#[derive(Default)]
struct Keys {
    all: Vec<Key>,
    /// When the store was last asked for it, and when to ask again; never for keys from a file.
    asked_at: Option<Instant>,
    ask_after: Duration,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

/// What a receipt is about, beside the receipt itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    /// Who counted it.
    pub(super) origin: Origin,
    /// The quota, as it was told.
    pub(super) quota: &'a [u8],
    pub(super) cost: u32,
    /// What the counter is called.
    pub(super) counter: &'a [u8],
    /// Whether it is in the memory of this process.
    pub(super) is_own: bool,
    /// Whether an override had another quota.
    pub(super) under: Override,
}

/// The override that a charge was made under. The quota that was told is the override's then, so it does not say on
/// which side of the long windows the counter of rule or plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Override {
    None = 0,
    /// On the side of short windows, ...
    Short = 4,
    /// ... or of long ones.
    Long = 8,
}

impl Override {
    pub(super) const fn of(level: Level, counter: &CounterName) -> Self {
        match (level, counter.is_long) {
            (Level::Organisation | Level::Project, true) => Self::Long,
            (Level::Organisation | Level::Project, false) => Self::Short,
            _ => Self::None,
        }
    }
}

/// A receipt as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) receipt: Receipt,
    /// A number for the counter that means the same in every process.
    pub(super) counter: u64,
    /// When the decision was made.
    pub(super) at: Timestamp,
    pub(super) nonce: u64,
}

/// Signs the receipts of one decision.
#[derive(Clone, Debug)]
pub(super) struct Pen {
    keys: Arc<Keys>,
    process: u64,
    pub(super) nonce: u64,
}

impl Receipts {
    /// With the secret that the store keeps.
    pub(super) fn new(store: &dyn Store) -> Self {
        let (nonce, process) = (AtomicU64::new(fastrand::u64(1..)), fastrand::u64(..));
        let receipts = Self { keys: RwLock::default(), file: None, nonce, process };
        if !store.needs_io()
            && let Some(Ok(secret)) = store.shared_secret().now()
        {
            receipts.replace(Keys { all: vec![derived(&secret)], asked_at: None, ask_after: RENEW_EVERY });
        }
        receipts
    }

    /// With keys from a file: one in a line, the one that signs first.
    pub(super) fn in_file(path: &Path) -> anyhow::Result<Self> {
        let keys = Keys { all: keys_in(path)?, asked_at: None, ask_after: RENEW_EVERY };
        let (nonce, process) = (AtomicU64::new(fastrand::u64(1..)), fastrand::u64(..));
        Ok(Self { keys: RwLock::new(Arc::new(keys)), file: Some(path.to_owned()), nonce, process })
    }

    /// Reads the keys again, if they are in a file. What cannot be used leaves those before.
    pub(super) fn read_again(&self) -> anyhow::Result<Reread> {
        let Some(file) = &self.file else { return Ok(Reread::None) };
        let all = keys_in(file)?;
        if self.keys().all == all {
            return Ok(Reread::Same);
        }
        self.replace(Keys { all, asked_at: None, ask_after: RENEW_EVERY });
        Ok(Reread::Renewed)
    }

    /// Asks the store for the secret, if it is time to. Without one, decisions are told without receipts.
    pub(super) async fn renew(&self, store: &dyn Store) {
        let keys = self.keys();
        let is_fresh = keys.asked_at.is_some_and(|at| at.elapsed() < keys.ask_after);
        if self.file.is_some() || !store.needs_io() || is_fresh {
            return;
        }
        // Before it is asked: others go on with what there is.
        let asked_at = Some(Instant::now());
        self.replace(Keys { all: keys.all.clone(), asked_at, ask_after: RETRY_EVERY });
        if let Ok(secret) = store.shared_secret().await {
            let (new, before) = (derived(&secret), keys.all.first().copied());
            let all = std::iter::once(new).chain(before.filter(|before| *before != new)).collect();
            self.replace(Keys { all, asked_at, ask_after: RENEW_EVERY });
        }
    }

    /// For the receipts of a decision; `None` while there is no key. A decision under an id has a number of
    /// its own (`known`), and is told again with the same.
    pub(super) fn pen(&self, known: u64) -> Option<Pen> {
        let keys = self.keys();
        // 0 is no number.
        let nonce = if known > 0 { known } else { self.nonce.fetch_add(1, Ordering::Relaxed).max(1) };
        (!keys.all.is_empty()).then_some(Pen { nonce, process: self.process, keys })
    }

    /// Whether we have signed what was read, about this.
    pub(super) fn has_signed(&self, read: &Read, about: About<'_>) -> bool {
        let keys = self.keys();
        let is_ours =
            |key: &Key| read.signed.signature(key, self.process, about).ct_eq(&read.signature).into();
        keys.all.iter().any(is_ours)
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

impl Pen {
    /// Appends a receipt.
    pub(super) fn write(&self, into: &mut Vec<u8>, signed: &Signed, about: About<'_>) {
        let Some(key) = self.keys.all.first() else { return };
        let signature = signed.signature(key, self.process, about);
        let Signed { receipt, counter, at, nonce } = signed;
        for number in [receipt.at, receipt.detail.into(), at.as_micros()] {
            decimal(into, number);
            into.push(b'.');
        }
        for part in [&counter.to_be_bytes(), &nonce.to_be_bytes()] {
            hexadecimal(into, part);
            into.push(b'.');
        }
        hexadecimal(into, &signature);
    }
}

impl Signed {
    fn signature(&self, key: &Key, process: u64, about: About<'_>) -> [u8; SIGNATURE_BYTES] {
        let mut text: SmallVec<[u8; INLINE]> = SmallVec::new();
        for number in [self.receipt.at, self.counter, self.at.as_micros(), self.nonce] {
            text.extend_from_slice(&number.to_le_bytes());
        }
        text.extend_from_slice(&self.receipt.detail.to_le_bytes());
        text.extend_from_slice(&about.cost.to_le_bytes());
        let is_own = about.is_own || about.origin == Origin::Outage;
        text.push(u8::from(is_own) + 2 * u8::from(about.origin == Origin::Outage) + about.under as u8);
        text.extend_from_slice(&if is_own { process } else { 0 }.to_le_bytes());
        // No quota has a zero in it, and the counter comes last.
        text.extend_from_slice(about.quota);
        text.push(0);
        text.extend_from_slice(about.counter);
        let mut signature = [0; SIGNATURE_BYTES];
        signature.copy_from_slice(&blake3::keyed_hash(key, &text).as_bytes()[..SIGNATURE_BYTES]);
        signature
    }
}

/// A receipt as somebody sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) signed: Signed,
    signature: [u8; SIGNATURE_BYTES],
}

/// Reads a receipt; nothing if it does not look like one.
pub(super) fn read(text: &str) -> Option<Read> {
    let mut parts = text.split('.');
    let mut instant = || parts.next()?.parse().ok().filter(|at: &u64| *at <= INSTANT_MAX);
    let at = instant()?;
    let detail = u32::try_from(instant()?).ok()?;
    let decided_at = instant()?;
    let counter = u64::from_be_bytes(bytes(parts.next()?)?);
    let nonce = u64::from_be_bytes(bytes(parts.next()?)?);
    let signature = bytes(parts.next()?)?;
    let signed =
        Signed { receipt: Receipt { at, detail }, counter, at: Timestamp::from_micros(decided_at), nonce };
    parts.next().is_none().then_some(Read { signed, signature })
}

/// What is kept in the store or a file is nobody's key but ours.
fn derived(secret: &[u8]) -> Key {
    blake3::derive_key(CONTEXT, secret)
}

fn keys_in(path: &Path) -> anyhow::Result<Vec<Key>> {
    let shown = path.display();
    let text = files::text(path, KEY_FILE_BYTES_MAX)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() || lines.len() > KEYS_MAX {
        let count = lines.len();
        bail!("{shown}: got {count} keys; expected one, or two while one takes the place of the other");
    }
    if let Some(short) = lines.iter().position(|line| line.len() < KEY_BYTES_MIN) {
        let (line, length) = (short + 1, lines[short].len());
        bail!("{shown}: key {line}: got {length} characters; expected at least {KEY_BYTES_MIN}");
    }
    Ok(lines.iter().map(|line| derived(line.as_bytes())).collect())
}

fn decimal(into: &mut Vec<u8>, number: u64) {
    let _ = serde_json::to_writer(into, &number);
}

/// The formatter of the standard library takes four times as long.
fn hexadecimal(into: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        into.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Bytes in hexadecimal, so many and no others.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_plain = text.len() == 2 * N && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut read = [0; N];
    for (byte, digits) in read.iter_mut().zip(text.as_bytes().chunks(2).filter(|_| is_plain)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    is_plain.then_some(read)
}

#[cfg(test)]
mod tests {
    use ratekeeper::MemoryStore;

    use super::*;

    const ABOUT: About<'_> = About {
        origin: Origin::Store,
        quota: b"10/s",
        cost: 3,
        counter: b"user",
        is_own: false,
        under: Override::None,
    };

    fn signed(receipts: &Receipts) -> (Signed, String) {
        signed_about(receipts, ABOUT)
    }

    fn known(receipts: &Receipts, text: &str, about: About<'_>) -> Result<Option<Signed>, ()> {
        let read = read(text).ok_or(())?;
        Ok(receipts.has_signed(&read, about).then_some(read.signed))
    }

    fn signed_about(receipts: &Receipts, about: About<'_>) -> (Signed, String) {
        let pen = receipts.pen(0).unwrap();
        let signed = Signed {
            receipt: Receipt { at: 17, detail: 3 },
            counter: 99,
            at: Timestamp::from_micros(5),
            nonce: pen.nonce,
        };
        let mut text = Vec::new();
        pen.write(&mut text, &signed, about);
        (signed, String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_receipt_is_known_again_and_nothing_in_it_can_be_changed() {
        let receipts = Receipts::new(&MemoryStore::new());
        let (signed, text) = signed(&receipts);
        assert_eq!(known(&receipts, &text, ABOUT), Ok(Some(signed)));
        for about in [
            About { cost: 4, ..ABOUT },
            About { quota: b"10/h", ..ABOUT },
            About { origin: Origin::Outage, ..ABOUT },
            About { counter: b"other", ..ABOUT },
            About { is_own: true, ..ABOUT },
            About { under: Override::Short, ..ABOUT },
            About { under: Override::Long, ..ABOUT },
        ] {
            assert_eq!(known(&receipts, &text, about), Ok(None), "{about:?}");
        }
        for (place, digit) in text.char_indices().filter(|(_, digit)| *digit != '.') {
            let other = if digit == '1' { "2" } else { "1" };
            let mut changed = text.clone();
            changed.replace_range(place..=place, other);
            assert_eq!(known(&receipts, &changed, ABOUT), Ok(None), "{changed}");
        }
        let elsewhere = Receipts::new(&MemoryStore::new());
        assert_eq!(known(&elsewhere, &text, ABOUT), Ok(None), "another store's");
    }

    #[test]
    fn every_decision_has_a_number_and_one_under_an_id_its_own() {
        let receipts = Receipts::new(&MemoryStore::new());
        let number = |known| receipts.pen(known).unwrap().nonce;
        assert_ne!(number(0), number(0));
        assert_eq!((number(7), number(7)), (7, 7));
    }

    #[test]
    fn what_is_in_the_memory_of_a_process_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "k".repeat(32)).unwrap();
        let [one, other] = [(); 2].map(|()| Receipts::in_file(&path).unwrap());
        let own = About { is_own: true, ..ABOUT };
        for (about, is_known) in
            [(ABOUT, true), (own, false), (About { origin: Origin::Outage, ..ABOUT }, false)]
        {
            let (_, text) = signed_about(&one, about);
            let receipt = read(&text).unwrap();
            assert!(one.has_signed(&receipt, about));
            assert_eq!(other.has_signed(&receipt, about), is_known, "{about:?}");
        }
    }

    #[test]
    fn what_is_no_receipt_is_told_from_one_that_is_not_ours() {
        let receipts = Receipts::new(&MemoryStore::new());
        let (_, text) = signed(&receipts);
        let cut = &text[..text.len() - 1];
        for wrong in ["", ".", "1.2.3", "1700000000010000.0.c107e29521708709", cut, "é.1.1.1.1.1"] {
            assert_eq!(known(&receipts, wrong, ABOUT), Err(()), "{wrong}");
        }
        assert_eq!(known(&receipts, &format!("{text}.0"), ABOUT), Err(()));
    }

    #[test]
    fn while_keys_change_both_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let [old, new, newer] = ["a", "b", "c"].map(|letter| letter.repeat(32));
        std::fs::write(&path, format!("{old}\n")).unwrap();
        let receipts = Receipts::in_file(&path).unwrap();
        let (ours, text) = signed(&receipts);
        assert_eq!(receipts.read_again().unwrap(), Reread::Same);

        std::fs::write(&path, format!("{new}\n{old}\n")).unwrap();
        assert_eq!(receipts.read_again().unwrap(), Reread::Renewed);
        assert_eq!(known(&receipts, &text, ABOUT), Ok(Some(ours)));
        let (later, by_new) = signed(&receipts);

        std::fs::write(&path, format!("{new}\n")).unwrap();
        assert_eq!(receipts.read_again().unwrap(), Reread::Renewed);
        assert_eq!(known(&receipts, &text, ABOUT), Ok(None));
        assert_eq!(known(&receipts, &by_new, ABOUT), Ok(Some(later)));

        for (wrong, expected) in [
            (String::new(), "got 0 keys; expected one"),
            (format!("{new}\n{old}\n{newer}"), "got 3 keys; expected one"),
            (format!("{new}\nshort"), "key 2: got 5 characters; expected at least 32"),
        ] {
            std::fs::write(&path, wrong).unwrap();
            let error = format!("{:#}", receipts.read_again().unwrap_err());
            assert!(error.contains(expected), "{error}");
            assert_eq!(known(&receipts, &by_new, ABOUT), Ok(Some(later)), "those before stay");
        }
    }
}
