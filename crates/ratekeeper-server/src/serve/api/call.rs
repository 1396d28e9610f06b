//! What each call can say.

use ratekeeper::bounds::{CHARGES_MAX, SUBJECT_BYTES_MAX};
use serde::Deserialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;

use super::members::{Member, Members, Placed, members, parts};
use super::object::only_objects;
use super::problem::Problem;
use super::value::{CLAIMS_MAX, Claim, Few, HEADERS_MAX, Lines, Pairs, Query, Text, Whole};

/// Checks that one batch may have.
pub const BATCH_MAX: usize = 1_000;
/// The longest key of a charge, in bytes: one less than a subject, for what tells it
/// from the subjects of policies.
pub const KEY_BYTES_MAX: usize = SUBJECT_BYTES_MAX - 1;

members! {
    /// Charges without a policy.
    RawCharges<'a> {
        charges: Few<ChargeCall<'a>, CHARGES_MAX>,
        on_outage: Text<'a>,
    }

    /// A request that a policy decides on.
    PolicyRequest<'a> {
        service: Text<'a>,
        method: Text<'a>,
        path: Text<'a>,
        route: Text<'a>,
        query: Query<'a>,
        headers: Pairs<Lines<'a>, HEADERS_MAX>,
        client: Text<'a>,
        identity: Pairs<Claim<'a>, CLAIMS_MAX>,
        body: &'a RawValue,
        body_unreadable: bool,
        key: Text<'a>,
        cost: Whole,
    }

    /// An id under which a call is decided once.
    Once<'a> {
        id: Text<'a>,
        keep_seconds: Whole,
    }

    /// A reservation.
    Hold<'a> {
        id: Text<'a>,
        hold_seconds: Whole,
    }

    /// What is given back.
    GivenBack<'a> {
        decision: ToldDecision<'a>,
        units: Whole,
    }

    /// `/v1/settle`.
    SettleCall<'a> {
        id: Text<'a>,
        actual: Whole,
    }

    /// `/v1/cancel`.
    CancelCall<'a> {
        id: Text<'a>,
    }

    /// A batch, of which each check is read for itself.
    UnreadBatchCall<'a> {
        checks: Few<&'a RawValue, BATCH_MAX>,
    }

    /// `/v1/limit/batch`.
    LimitBatchCall<'a> {
        checks: Few<Placed<LimitCall<'a>>, BATCH_MAX>,
    }

    /// `/v1/check/batch`.
    CheckBatchCall<'a> {
        checks: Few<Placed<CheckCall<'a>>, BATCH_MAX>,
    }
}

parts! {
    /// `/v1/limit`.
    LimitCall<'a> {
        raw: RawCharges<'a>,
        once: Once<'a>,
    }

    /// `/v1/check`.
    CheckCall<'a> {
        request: PolicyRequest<'a>,
        once: Once<'a>,
    }

    /// `/v1/reset`: charges or a request.
    TargetCall<'a> {
        raw: RawCharges<'a>,
        request: PolicyRequest<'a>,
    }

    /// `/v1/peek` and `/v1/explain`.
    LookCall<'a> {
        target: TargetCall<'a>,
        once: Once<'a>,
    }

    /// `/v1/reserve`.
    ReserveCall<'a> {
        target: TargetCall<'a>,
        hold: Hold<'a>,
    }

    /// `/v1/refund`.
    RefundCall<'a> {
        target: TargetCall<'a>,
        given_back: GivenBack<'a>,
    }
}

/// What a call is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'c> {
    Charges(&'c RawCharges<'c>),
    Request(&'c PolicyRequest<'c>),
}

impl TargetCall<'_> {
    /// Which of the two it is about.
    pub(super) fn target(&self) -> Result<Target<'_>, Problem> {
        match (&self.raw.charges, self.request.first(), &self.raw.on_outage) {
            (Some(_), Some(member), _) => {
                Err(Problem::got(member, "it beside charges", "charges or a request, not both"))
            }
            (Some(_), None, _) => Ok(Target::Charges(&self.raw)),
            (None, _, Some(_)) => Err(Problem::got("on_outage", "it without charges", "charges beside it")),
            (None, _, None) => Ok(Target::Request(&self.request)),
        }
    }
}

impl PolicyRequest<'_> {
    /// The key, if nothing is said of a request.
    pub(super) fn key_alone(&self) -> Option<&str> {
        let Self { method, path, route, query, headers, client, identity, body, body_unreadable, .. } = self;
        let has_request = method.is_some()
            || path.is_some()
            || route.is_some()
            || query.is_some()
            || headers.is_some()
            || client.is_some()
            || identity.is_some()
            || body.is_some()
            || body_unreadable.is_some();
        self.key.as_ref().filter(|_| !has_request).map(Text::as_str)
    }
}

/// One quota, one key, one cost.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct ChargeCall<'a> {
    #[serde(borrow)]
    pub(super) key: Text<'a>,
    #[serde(borrow)]
    pub(super) quota: Text<'a>,
    #[serde(borrow, default)]
    pub(super) algorithm: Option<Text<'a>>,
    #[serde(default)]
    pub(super) cost: Option<Whole>,
    #[serde(borrow, default)]
    pub(super) name: Option<Text<'a>>,
    #[serde(default)]
    pub(super) shadow: Option<bool>,
    #[serde(default)]
    pub(super) flat: Option<bool>,
    #[serde(borrow, default)]
    pub(super) emergency: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) overrides: Option<OverridesCall<'a>>,
}

/// Whose overrides may replace the quota.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct OverridesCall<'a> {
    #[serde(borrow)]
    pub(super) endpoint: Text<'a>,
    #[serde(borrow)]
    pub(super) organisation: Text<'a>,
    #[serde(borrow, default)]
    pub(super) project: Option<Text<'a>>,
}

/// A decision as it was told, as far as a refund needs it. It comes back whole, so
/// what is not needed is passed over.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct ToldDecision<'a> {
    #[serde(default)]
    pub(super) allowed: Option<bool>,
    #[serde(borrow, default)]
    pub(super) origin: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) limits: Few<ToldLimit<'a>, CHARGES_MAX>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct ToldLimit<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) quota: Text<'a>,
    pub(super) cost: Whole,
    #[serde(borrow, default)]
    pub(super) receipt: Option<Text<'a>>,
}

only_objects!(ChargeCall, OverridesCall, ToldDecision, ToldLimit);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::serve::api::members::names;

    #[track_caller]
    fn is_told<'a, T: Members<'a>>(schema: &str) {
        let document: serde_json::Value = serde_json::from_str(crate::serve::openapi::text()).unwrap();
        let told = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        let names: BTreeSet<&str> = names(T::TAKES).into_iter().collect();
        assert_eq!(names, told.keys().map(String::as_str).collect(), "{schema}");
    }

    #[test]
    fn the_document_has_the_members_that_are_read_and_no_others() {
        is_told::<LimitCall<'_>>("LimitCall");
        is_told::<CheckCall<'_>>("CheckCall");
        is_told::<TargetCall<'_>>("Call");
        is_told::<LookCall<'_>>("LookCall");
        is_told::<ReserveCall<'_>>("ReserveCall");
        is_told::<RefundCall<'_>>("RefundCall");
        is_told::<SettleCall<'_>>("SettleCall");
        is_told::<CancelCall<'_>>("CancelCall");
        is_told::<LimitBatchCall<'_>>("LimitBatchCall");
        is_told::<CheckBatchCall<'_>>("CheckBatchCall");
    }
}
