//! `make bench-instructions`: each path of a decision, asked so many times that callgrind can count.
//!
//! `scripts/instructions.py` runs this under callgrind, once for each path, and compares. A path is a
//! function that sets something up and gives its step to [`Run::count`]; callgrind counts what happens
//! inside of [`count_instructions_of`] and nothing else. For the paths of the script callgrind is
//! around the server instead, and this is only its client.
//!
//! The paths use what programs use, so that they outlive changes to the inside.

#![forbid(unsafe_code)]

mod memory;
mod policy;
mod redis;
mod router;
mod server;
mod web;

use std::error::Error;
use std::process::ExitCode;

/// What can go wrong while a path is set up.
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;
type Path = fn(&Run) -> Result<()>;

/// The paths that are asked here; `scripts/instructions.py` has the list with the others.
const PATHS: [(&str, Path); 17] = [
    ("memory-admitted", memory::admitted),
    ("memory-data-dir", memory::in_a_directory),
    ("memory-denied", memory::denied),
    ("memory-three-quotas", memory::three_quotas),
    ("limiter", memory::limiter),
    ("policy", policy::decision),
    ("redis-batch", redis::batch),
    ("script-short-way", redis::short_way),
    ("script-four-tiers", redis::four_tiers),
    ("script-mixed-tiers", redis::mixed_tiers),
    ("script-override", redis::overridden),
    ("http-fields", web::fields),
    ("web-layer", web::layer),
    ("axum-bare", router::bare),
    ("axum-allowed", router::allowed),
    ("axum-denied", router::denied),
    ("server-limit", server::limit),
];
/// How many different keys a path asks for. A store in memory hashes under a secret of its own:
/// one key may be easier to find than another, a thousand are not.
const KEYS: u64 = 1_000;
/// The first steps make the counters, and are not counted.
const WARM_UP: u64 = KEYS;
/// So much that nobody is denied, and so slow to come back that a counter once made stays in use.
const PLENTY: &str = "100000/d";

/// How a path is run.
#[derive(Debug)]
struct Run {
    iterations: u64,
    /// The server, for paths that need one.
    url: Option<String>,
}

impl Run {
    /// Takes steps: some to warm up, then those that are counted. A step says whether it went as it should.
    fn count(&self, mut step: impl FnMut(u64) -> bool) -> Result<()> {
        let warm = (0..WARM_UP).filter(|number| step(*number)).count() as u64;
        let right = count_instructions_of(self.iterations, &mut step);
        match (warm, right) {
            (WARM_UP, right) if right == self.iterations => Ok(()),
            _ => {
                Err(format!("{right} of {} steps went right; {warm} of {WARM_UP} before", self.iterations)
                    .into())
            }
        }
    }

    /// How many steps [`Run::count`] takes in all.
    fn steps(&self) -> u64 {
        WARM_UP + self.iterations
    }

    fn url(&self) -> Result<&str> {
        self.url.as_deref().ok_or_else(|| "this path needs the URL of a server".into())
    }
}

/// What callgrind counts; it knows the function by its name.
#[inline(never)]
fn count_instructions_of(iterations: u64, step: &mut dyn FnMut(u64) -> bool) -> u64 {
    let mut right = 0;
    for number in 0..iterations {
        right += u64::from(step(number));
    }
    right
}

/// The keys of a path, 32 bytes each.
fn keys(kind: &str) -> Vec<String> {
    (0..KEYS).map(|number| format!("{kind}:tenant-00000042:id={number:08}")).collect()
}

/// The key of a step.
fn of<T>(keys: &[T], number: u64) -> &T {
    &keys[(number % KEYS) as usize]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (path, iterations, url) = match arguments {
        [path, iterations] => (path, iterations, None),
        [path, iterations, url] => (path, iterations, Some(url.clone())),
        _ => return Err("expected PATH ITERATIONS [URL]".into()),
    };
    let known = PATHS.iter().find(|(name, _)| name == path);
    let (_, path) = known
        .ok_or_else(|| format!("path: got {path}; expected one of {:?}", PATHS.map(|(name, _)| name)))?;
    path(&Run { iterations: iterations.parse()?, url })
}
