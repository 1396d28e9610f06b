//! What a gate asks: the rules of a policy, or rules in code.

use std::any::Any;
use std::fmt;

use ratekeeper::policy::ServiceLimiter;
use ratekeeper::{Demand, Limiter};

#[derive(Debug)]
pub(crate) enum Rules {
    Policy(ServiceLimiter),
    Code(Box<dyn InCode>),
}

/// A limiter with rules in code, whatever kind of request its closures look at.
pub(crate) trait InCode: fmt::Debug + Send + Sync {
    /// Whether this is a request of its kind.
    fn takes(&self, request: &dyn Any) -> bool;

    /// What a request asks for, if it is of its kind.
    fn demand<'r>(&'r self, request: &'r dyn Any) -> Option<Demand<'r>>;
}

impl<R: 'static> InCode for Limiter<R> {
    fn takes(&self, request: &dyn Any) -> bool {
        request.is::<R>()
    }

    fn demand<'r>(&'r self, request: &'r dyn Any) -> Option<Demand<'r>> {
        request.downcast_ref::<R>().map(|request| Limiter::demand(self, request))
    }
}
