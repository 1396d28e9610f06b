//! Every verb, once: what is done with a demand, whichever class made it, and in which form.

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use ratekeeper::{Demand, Engine, Labels};

use crate::awaiting::{awaited, block, ready};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::logging;
use crate::runtime::Reach;

/// An id that a call is charged under once, and for how long that is remembered.
pub(crate) type Once = Option<(String, Duration)>;

/// A demand that can wait for its answer.
pub(crate) struct Asking {
    demand: Box<Demand<'static>>,
    /// What the decision is about. `None`: the demand itself, because policies change.
    about: Option<About>,
}

/// What a verb of the demand comes to: an outage is an error to whoever put charges together.
macro_rules! answer {
    ($asking:ident.$verb:ident($($argument:expr),*)) => {
        match $asking.raises() {
            true => $asking.demand.strict().$verb($($argument),*).await?,
            false => $asking.demand.$verb($($argument),*).await?,
        }
    };
}

impl Asking {
    pub(crate) fn new(demand: Demand<'static>, about: Option<About>) -> Self {
        Self { demand: Box::new(demand), about }
    }

    pub(crate) fn under(self, once: Once) -> PyResult<Self> {
        let Some((id, keep)) = once else { return Ok(self) };
        Ok(Self { demand: Box::new(self.demand.once(id, keep).map_err(Failure::from)?), ..self })
    }

    fn raises(&self) -> bool {
        self.about.as_ref().is_some_and(About::raises)
    }

    fn with(self, inner: Arc<ratekeeper::Decision>) -> Decision {
        Decision { inner, about: self.about.unwrap_or(About::Demand(self.demand)) }
    }

    pub(crate) async fn check(self) -> Result<Decision, Failure> {
        let inner = Arc::new(answer!(self.check()));
        Ok(self.with(inner))
    }

    pub(crate) async fn peek(self) -> Result<Decision, Failure> {
        let inner = Arc::new(answer!(self.peek()));
        Ok(self.with(inner))
    }

    pub(crate) async fn explain(self) -> Result<String, Failure> {
        let names = self.about.as_ref().map(About::names).unwrap_or_default();
        Ok(answer!(self.explain(Labels(&names))))
    }

    pub(crate) async fn until_allowed(self, patience: Duration) -> Result<Decision, Failure> {
        let inner = Arc::new(answer!(self.until_allowed(patience)));
        Ok(self.with(inner))
    }

    pub(crate) async fn reserve(self, id: String, hold: Duration) -> Result<Decision, Failure> {
        let inner = Arc::new(answer!(self.reserve(&id, hold)));
        Ok(self.with(inner))
    }
}

/// A class that makes demands.
pub(crate) trait Front {
    /// What a call asks for.
    type Asked;

    fn reach(&self) -> Reach;

    /// What decides, in this process.
    fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>>;

    /// A demand that can wait.
    fn ask(&self, py: Python<'_>, asked: Self::Asked) -> PyResult<Asking>;

    /// What a decision of this class has charged.
    fn charged(&self, py: Python<'_>, decision: &Decision) -> PyResult<Demand<'static>>;

    /// Decides in memory. Classes whose demands can be borrowed do without [`Front::ask`].
    fn check_now(&self, py: Python<'_>, asked: Self::Asked, once: Once) -> PyResult<Decision> {
        let asking = self.ask(py, asked)?.under(once)?;
        let inner = judged_now(&asking.demand, asking.raises())?;
        Ok(asking.with(inner))
    }

    fn checked(&self, py: Python<'_>, asked: Self::Asked, once: Once) -> PyResult<Decision> {
        if self.reach() == Reach::Memory {
            let decision = self.check_now(py, asked, once)?;
            logging::tell(py);
            return Ok(decision);
        }
        block(py, self.reach(), self.ask(py, asked)?.under(once)?.check())
    }

    fn achecked<'py>(&self, py: Python<'py>, asked: Self::Asked, once: Once) -> PyResult<Bound<'py, PyAny>> {
        if self.reach() == Reach::Memory {
            return ready(py, self.checked(py, asked, once)?.into_py_any(py)?);
        }
        awaited(py, self.reach(), self.ask(py, asked)?.under(once)?.check())
    }
}

/// Judges a demand in memory.
#[inline]
pub(crate) fn decide_now(
    demand: Demand<'_>,
    once: Once,
    raises: bool,
) -> Result<Arc<ratekeeper::Decision>, Failure> {
    match once {
        None => judged_now(&demand, raises),
        Some((id, keep)) => judged_now(&demand.once(id, keep)?, raises),
    }
}

#[inline]
fn judged_now(demand: &Demand<'_>, raises: bool) -> Result<Arc<ratekeeper::Decision>, Failure> {
    written(|decision| match raises {
        true => Ok(demand.strict().try_check(decision).ok_or(Failure::Lost)??),
        false => Ok(demand.now().check_into(decision)?),
    })
}

/// A decision that is written where it stays.
#[inline]
pub(crate) fn written(
    decide: impl FnOnce(&mut ratekeeper::Decision) -> Result<(), Failure>,
) -> Result<Arc<ratekeeper::Decision>, Failure> {
    let mut inner = Arc::<ratekeeper::Decision>::default();
    // Nobody else has it yet.
    decide(Arc::get_mut(&mut inner).ok_or(Failure::Lost)?)?;
    Ok(inner)
}

/// What becomes of a reservation, in a word.
pub(crate) async fn settle(
    engine: Arc<Engine>,
    id: String,
    actual: Option<u64>,
) -> Result<&'static str, Failure> {
    Ok(engine.settle(&id, actual).await?.as_str())
}

/// Gives back what a decision has charged; how many units.
pub(crate) async fn refund(
    demand: Demand<'static>,
    (decision, raises): (Arc<ratekeeper::Decision>, bool),
    units: u32,
) -> Result<u64, Failure> {
    if raises {
        return Ok(demand.try_refund(&decision, units).await?);
    }
    Ok(demand.refund(&decision, units).await?)
}

/// Forgets the counters of a demand; how many there were.
pub(crate) async fn reset(demand: Demand<'static>) -> Result<usize, Failure> {
    Ok(demand.reset().await?)
}
