//! What a request holds while it is under way, and gives back when it is over.

use std::sync::Arc;

use ratekeeper_core::{Decision, InvalidInput};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

use super::Demand;
use super::verbs::at_once;

/// A decision on a request, and what it holds until the request is over.
#[derive(Debug)]
pub struct Admission {
    /// The decision; in a box, because it is large and handed on often.
    pub decision: Box<Decision>,
    /// What is given back when this is dropped: places in quotas for requests that are under way.
    /// `None` if there are none, or the request was denied.
    pub hold: Option<Hold>,
}

impl Admission {
    #[inline]
    pub(super) fn new(demand: Demand<'_>, decision: Box<Decision>) -> Self {
        let holds = decision.is_allowed() && demand.holds();
        let hold = holds.then(|| Hold(Some(Box::new((demand.into_owned(), Decision::clone(&decision))))));
        Self { decision, hold }
    }
}

/// Places in quotas for requests that are under way. Dropping it gives them back: at once where the
/// store is in this process, in the background where it is not. Outside of a runtime, places in a store
/// that needs I/O come back when their lease ends.
#[derive(Debug)]
pub struct Hold(Option<Box<(Demand<'static>, Decision)>>);

impl Hold {
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
        if !held.0.engine.needs_io {
            let _ = at_once(give_back(held));
        } else if let Ok(runtime) = Handle::try_current() {
            // A timer outside of a runtime would panic, so nothing is polled there.
            runtime.spawn(give_back(held));
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
                    Err(_) => {
                        Ok(Admission { decision: Box::new(Arc::as_ref(&engine).unlimited()), hold: None })
                    }
                }
            }
            _ => self.admit_here().await,
        }
    }

    async fn admit_here(self) -> Result<Admission, InvalidInput> {
        let decision = Box::new(self.check().await?);
        Ok(Admission::new(self, decision))
    }
}
