//! What a request holds while it is under way, and gives back when it is over.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ratekeeper_core::{Decision, InvalidInput};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

use super::Demand;

/// A decision on a request, and what it holds until the request is over.
#[derive(Debug)]
pub struct Admission {
    /// The decision; in a box, because it is large and handed on often.
    pub decision: Box<Decision>,
    /// What is given back when this is dropped: places in quotas for requests that are under way.
    /// `None` if there are none, or the request was denied.
    pub hold: Option<Hold>,
    /// What was asked, if it is at hand without another copy.
    demand: Option<Box<Demand<'static>>>,
}

impl Admission {
    /// A decision that no demand led to.
    #[must_use]
    pub fn of(decision: Decision) -> Self {
        Self { decision: Box::new(decision), hold: None, demand: None }
    }

    /// Its parts, with what was asked: only if that had to outlive the request, as for a store that needs I/O.
    /// Otherwise whoever wants to charge more or give something back makes the demand again.
    #[must_use]
    #[inline]
    pub fn into_parts(self) -> (Box<Decision>, Option<Hold>, Option<Box<Demand<'static>>>) {
        (self.decision, self.hold, self.demand)
    }

    /// A decision to be written over, in the memory of one that is done with.
    #[inline]
    pub(crate) fn blank() -> Box<Decision> {
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    /// Keeps the memory of a decision that is done with for the next one of this thread: decisions are large, and
    /// every request has one.
    #[inline]
    pub fn recycle(decision: Box<Decision>) {
        if decision.verdicts().len() <= SPARE_VERDICTS_MAX {
            let _ = SPARE.try_with(|spare| spare.set(Some(decision)));
        }
    }

    #[inline]
    pub(crate) fn new(demand: &Demand<'_>, decision: Box<Decision>) -> Self {
        let hold = (decision.is_allowed() && demand.holds()).then(|| Hold::of(demand, &decision));
        Self { decision, hold, demand: None }
    }
}

/// The most verdicts of a decision whose memory is kept: those that it has room for without allocating.
const SPARE_VERDICTS_MAX: usize = 4;

thread_local! {
    static SPARE: Cell<Option<Box<Decision>>> = const { Cell::new(None) };
}

/// Places in quotas for requests that are under way. Dropping it gives them back: at once where the
/// store is in this process, in the background where it is not. Outside of a runtime, places in a store
/// that needs I/O come back when their lease ends.
#[derive(Debug)]
pub struct Hold(Option<Box<(Demand<'static>, Decision)>>);

impl Hold {
    #[cold]
    fn of(demand: &Demand<'_>, decision: &Decision) -> Self {
        Self(Some(Box::new((demand.clone().into_owned(), decision.clone()))))
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
        let runtime = Handle::try_current().ok();
        // A store that needs I/O may reach a timer, which panics outside of a runtime.
        if held.0.engine.needs_io && runtime.is_none() {
            return;
        }
        let mut release: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(give_back(held));
        let done = release.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let (Poll::Pending, Some(runtime)) = (done, runtime) {
            runtime.spawn(release);
        }
    }
}

async fn give_back(held: Box<(Demand<'static>, Decision)>) {
    let (demand, decision) = &*held;
    if let Err(error) = demand.release(decision).await {
        tracing::warn!(%error, "what a request held cannot be given back; its lease will end");
    }
}

impl Demand<'static> {
    /// Judges the request and charges it, and keeps hold of what is to be given back when it is over.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn admit(self) -> Result<Admission, InvalidInput> {
        match Handle::try_current() {
            // The caller may go away between the charge and the answer. The task goes on, and an
            // admission that is not taken from it is dropped, which gives places back.
            Ok(runtime) if self.engine.needs_io && self.holds() => {
                let engine = self.engine.shared();
                match runtime.spawn(self.admit_here().instrument(Span::current())).await {
                    Ok(answer) => answer,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // The runtime ends, and with it everything that could be limited.
                    Err(_) => Ok(Admission::of(Arc::as_ref(&engine).unlimited())),
                }
            }
            _ => self.admit_here().await,
        }
    }

    async fn admit_here(self) -> Result<Admission, InvalidInput> {
        let decision = Box::new(self.check().await?);
        let admission = Admission::new(&self, decision);
        Ok(Admission { demand: Some(Box::new(self)), ..admission })
    }
}
