//! Bytes per key: what the process grows by while counters are made.
//!
//! Each figure comes from a process of its own, this program started again
//! with [`CHILD_FLAG`]: memory that another candidate gave back would hide
//! what the next one takes.

use std::process::Command;

use crate::Result;
use crate::candidate::Candidate;
use crate::scenario::Load;

/// Tells the program that it is the child: a row's number and a count follow.
pub const CHILD_FLAG: &str = "--rss-of";

/// Keys in the comparison.
pub const KEYS: u32 = 1_000_000;
/// Other numbers of keys for our own store. Its tables grow by a quarter at a
/// time and are emptiest just after that, which is where a sweep from 400 000 to
/// 1 600 000 keys has its peaks: the worst sizes, not typical ones.
const OUR_OTHER_KEYS: [u32; 5] = [460_000, 580_000, 720_000, 900_000, 1_400_000];

const CANDIDATES: [Candidate; 6] = [
    Candidate::Floor,
    Candidate::TryCheck,
    Candidate::Governor,
    Candidate::Limitador,
    Candidate::Throttlecrab,
    Candidate::Pingora,
];

/// What a candidate takes for every key.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Who.
    pub candidate: Candidate,
    /// With how many keys.
    pub keys: u32,
    /// Bytes for each of them.
    pub bytes_per_key: f64,
}

/// Measures every candidate, our own at several sizes.
///
/// # Errors
/// If a child fails.
pub fn run() -> Result<Vec<Finding>> {
    let same_size = CANDIDATES.map(|candidate| (candidate, KEYS));
    let sizes = OUR_OTHER_KEYS.map(|keys| (Candidate::TryCheck, keys));
    same_size.into_iter().chain(sizes).map(|(candidate, keys)| in_a_child(candidate, keys)).collect()
}

fn in_a_child(candidate: Candidate, keys: u32) -> Result<Finding> {
    let row = Candidate::ALL.iter().position(|known| *known == candidate).ok_or("no such row")?;
    let program = std::env::current_exe()?;
    let child = Command::new(program).args([CHILD_FLAG, &row.to_string(), &keys.to_string()]).output()?;
    if !child.status.success() {
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        return Err(format!("the child for {} failed: {said}", candidate.name()).into());
    }
    let bytes: f64 = String::from_utf8(child.stdout)?.trim().parse()?;
    Ok(Finding { candidate, keys, bytes_per_key: bytes / f64::from(keys) })
}

/// What the child does: prints the bytes that `keys` keys take.
///
/// # Errors
/// If there is no such candidate or it cannot be set up.
pub fn child(row: usize, keys: u32) -> Result<()> {
    let candidate = *Candidate::ALL.get(row).ok_or("no such row")?;
    let before = resident_bytes("self")?;
    let contestant = candidate.build(Load::Admitted, keys)?;
    let after = resident_bytes("self")?;
    drop(contestant);
    println!("{}", after.saturating_sub(before));
    Ok(())
}

/// The resident set of a process, by its number or `self`: the second of `statm`, in pages.
pub(crate) fn resident_bytes(process: &str) -> Result<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm"))?;
    let pages: u64 = statm.split_whitespace().nth(1).ok_or("statm has no resident set")?.parse()?;
    Ok(pages * page_bytes()?)
}

fn page_bytes() -> Result<u64> {
    let output = Command::new("getconf").arg("PAGESIZE").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
