//! What a request holds while it is under way, and gives back when it is over.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ratekeeper_core::Decision;

use super::matched::Matched;

/// A decision on a request, and what it holds until the request is over.
#[derive(Debug)]
pub struct Admission {
    /// The decision; in a box, because it is large and handed on often.
    pub decision: Box<Decision>,
    /// What is given back when this is dropped: places in quotas for requests
    /// that are under way. `None` if there are none, or the request was denied.
    pub hold: Option<Hold>,
}

/// Places in quotas for requests that are under way. Dropping it gives them
/// back: at once where the store is at hand, in the background where it is not.
/// Outside of a runtime they come back when their lease ends.
#[derive(Debug)]
pub struct Hold(Option<Box<(Matched, Decision)>>);

impl Hold {
    pub(super) fn new(matched: Matched, decision: Decision) -> Self {
        Self(Some(Box::new((matched, decision))))
    }

    /// Gives everything back and waits until it is done.
    pub async fn release(mut self) {
        if let Some(held) = self.0.take() {
            give_back(held).await;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        let mut release: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(give_back(held));
        let done = release.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let (Poll::Pending, Ok(runtime)) = (done, tokio::runtime::Handle::try_current()) {
            runtime.spawn(release);
        }
    }
}

async fn give_back(held: Box<(Matched, Decision)>) {
    let (matched, decision) = &*held;
    if let Err(error) = matched.release(decision).await {
        tracing::warn!(%error, "what a request held cannot be given back; its lease will end");
    }
}
