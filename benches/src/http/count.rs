//! What a request costs in instructions, without sockets: callgrind counts them, so a busy machine changes nothing.

use std::net::SocketAddr;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use tower_service::Service as _;

use super::candidates::{BARE, router};
use crate::Result;

/// Tells this program to answer requests that it makes itself.
pub const COUNT_FLAG: &str = "--count";
/// Under callgrind time passes quickly: what comes back more slowly than requests leaves their counters in use.
const PLENTY: &str = "100000/d";
/// Requests that are counted.
const STEPS: u64 = 5_000;
/// Addresses that requests come from. The first request of each is not counted.
const ADDRESSES: u64 = 1_000;

/// Requests to the service of that name, for callgrind.
///
/// # Errors
/// If there is none of that name, or it answers otherwise than it should.
pub fn count(name: &str) -> Result<()> {
    let mut service = router(name, PLENTY)?;
    let requests = |count| (0..count).map(request).collect::<Result<Vec<_>>>();
    let (first, counted) = (requests(ADDRESSES)?, requests(STEPS)?);
    let allowed =
        first.into_iter().filter_map(|request| is_allowed(&mut service, request).then_some(())).count()
            as u64;
    if allowed != ADDRESSES {
        return Err(format!("{name}: {allowed} of the first {ADDRESSES} requests were allowed").into());
    }
    let expected = if name.ends_with("denies") { 0 } else { STEPS };
    let allowed = count_instructions_of(&mut service, counted);
    if allowed != expected {
        return Err(format!("{name}: {allowed} of {STEPS} requests were allowed").into());
    }
    Ok(())
}

/// What callgrind counts; it knows the function by its name.
#[inline(never)]
fn count_instructions_of(service: &mut Router, requests: Vec<Request>) -> u64 {
    requests.into_iter().map(|request| u64::from(is_allowed(service, request))).sum()
}

fn is_allowed(service: &mut Router, request: Request) -> bool {
    let answer = pin!(service.call(request));
    match answer.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response.status() == StatusCode::OK,
        Poll::Pending => false,
    }
}

fn request(number: u64) -> Result<Request> {
    let address = u8::try_from(number % ADDRESSES / 250)?;
    let peer = SocketAddr::from(([10, 0, address, u8::try_from(number % 250)?], 4_711));
    let request = Request::builder().uri("/").header("host", "127.0.0.1:8080");
    Ok(request.extension(ConnectInfo(peer)).body(Body::empty())?)
}

/// Instructions for a request to each of these services, above those of the bare one; none without valgrind.
pub(super) fn above_bare<'n>(names: impl Iterator<Item = &'n str>) -> Result<Vec<(&'n str, f64)>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(Vec::new());
    }
    let bare = instructions(BARE)?;
    names.map(|name| Ok((name, instructions(name)? - bare))).collect()
}

fn instructions(name: &str) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*http::count::count_instructions_of*")
        .arg(std::env::current_exe()?)
        .args([COUNT_FLAG, name])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse::<f64>().ok());
    let count =
        count.filter(|_| output.status.success()).ok_or_else(|| format!("callgrind said:\n{said}"))?;
    Ok(count / STEPS as f64)
}
