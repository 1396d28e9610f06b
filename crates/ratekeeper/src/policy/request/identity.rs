//! Who a request comes from, as far as the service has found out.

use std::borrow::Cow;

use super::Scalar;

/// What a service knows about a caller once it is authenticated: what policies see
/// as `identity.NAME`.
///
/// ```
/// use ratekeeper::policy::Identity;
///
/// let identity = Identity::new().org("12").project("7").user("ann").claim("region", "eu");
/// assert_eq!(identity.get("region"), Some("eu".into()));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    claims: Vec<(Cow<'static, str>, Scalar<'static>)>,
}

impl Identity {
    /// Somebody of whom nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The organisation, `identity.org`.
    #[must_use]
    pub fn org(self, org: impl Into<Scalar<'static>>) -> Self {
        self.claim("org", org)
    }

    /// The project, `identity.project`.
    #[must_use]
    pub fn project(self, project: impl Into<Scalar<'static>>) -> Self {
        self.claim("project", project)
    }

    /// The user, `identity.user`.
    #[must_use]
    pub fn user(self, user: impl Into<Scalar<'static>>) -> Self {
        self.claim("user", user)
    }

    /// The plan, `identity.plan`.
    #[must_use]
    pub fn plan(self, plan: impl Into<Scalar<'static>>) -> Self {
        self.claim("plan", plan)
    }

    /// Any other claim; one of the same name is replaced.
    #[must_use]
    pub fn claim(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Scalar<'static>>) -> Self {
        let (name, value) = (name.into(), value.into());
        match self.claims.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.claims.push((name, value)),
        }
        self
    }

    /// A claim.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Scalar<'_>> {
        self.claims.iter().find(|(key, _)| key == name).map(|(_, value)| value.borrowed())
    }
}
