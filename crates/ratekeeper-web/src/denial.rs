//! A body of one's own for denials.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ratekeeper::Decision;
use ratekeeper_http::{Denial, HttpOptions};

/// The body of a denial, as a service writes it itself: see [`Gate::denial_body`](crate::Gate::denial_body).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialBody {
    pub(crate) content_type: Cow<'static, str>,
    pub(crate) text: Cow<'static, str>,
}

impl DenialBody {
    /// A text of this type.
    #[must_use]
    pub fn new(content_type: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { content_type: content_type.into(), text: text.into() }
    }

    /// A text that is JSON.
    #[must_use]
    pub fn json(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new("application/json", text)
    }
}

type Write = dyn Fn(&Denial<'_>) -> Option<DenialBody> + Send + Sync;

/// What writes the bodies of denials, if the service does.
#[derive(Clone, Default)]
pub(crate) struct DenialBodies(Option<Arc<Write>>);

impl DenialBodies {
    pub(crate) fn new(write: impl Fn(&Denial<'_>) -> Option<DenialBody> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(write)))
    }

    /// The body for a denial, if it is not the usual one.
    pub(crate) fn of(&self, decision: &Decision, options: &HttpOptions) -> Option<DenialBody> {
        let write = self.0.as_ref()?;
        write(&Denial::of(decision, options)?)
    }
}

impl fmt::Debug for DenialBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DenialBodies").field(&self.0.is_some()).finish()
    }
}
