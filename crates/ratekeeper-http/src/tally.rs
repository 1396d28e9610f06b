//! What one request met: the policies of all its decisions, and the fields that
//! tell of them.

use std::borrow::Cow;

use ratekeeper_core::{CHARGES_MAX, Decision, Labels, Verdict};
use smallvec::SmallVec;

use crate::field;
use crate::member::Member;
use crate::options::{HttpOptions, Legacy, Reset};
use crate::text::Text;

/// The most policies that are told about one request. More are left out of the
/// fields, the later ones; they still decide.
pub const MEMBERS_MAX: usize = CHARGES_MAX;

/// The longest partition key, in bytes. Longer ones are left out, because two
/// that are cut might look the same; hash them.
pub const PARTITION_BYTES_MAX: usize = 64;

/// Policies that are kept without allocating.
const MEMBERS_INLINE: usize = 4;

/// The most fields that a response can have: those of the standard, and those of old.
pub const FIELDS_MAX: usize = 5;

/// A header field: its name in lower case, and its value, which is ASCII.
pub type Field = (&'static str, Cow<'static, str>);

/// The policies that one request met.
///
/// A request may be judged several times: by a layer, by another around it, by a
/// handler that counts what it found in the body. Every policy is told once, in
/// the order in which they were met. Of several keys under one policy, which is a
/// name and a quota, the worst off is told, and of those that are alike the latest.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    members: SmallVec<[Member; MEMBERS_INLINE]>,
}

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Of a single decision.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        let mut tally = Self::new();
        tally.add(decision);
        tally
    }

    /// Of a single decision on raw charges, under the names that their caller gave them.
    #[must_use]
    pub fn labelled(decision: &Decision, labels: Labels<'_>) -> Self {
        let mut tally = Self::new();
        tally.add_labelled(decision, labels, |_| None);
        tally
    }

    /// Adds what a decision says of each policy.
    pub fn add(&mut self, decision: &Decision) {
        self.add_partitioned(decision, |_| None);
    }

    /// The same, and tells clients by `pk` whose share of a policy it was. The
    /// key is public: derive it from what the client knows, and hash what is
    /// not for everybody's eyes.
    pub fn add_partitioned(
        &mut self,
        decision: &Decision,
        partition_of: impl FnMut(&Verdict) -> Option<Box<[u8]>>,
    ) {
        self.add_labelled(decision, Labels::default(), partition_of);
    }

    /// The same for raw charges, under the names that their caller gave them.
    #[inline]
    pub fn add_labelled(
        &mut self,
        decision: &Decision,
        labels: Labels<'_>,
        mut partition_of: impl FnMut(&Verdict) -> Option<Box<[u8]>>,
    ) {
        for verdict in decision.verdicts() {
            let partition = partition_of(verdict).filter(|key| key.len() <= PARTITION_BYTES_MAX);
            let label = labels.0.get(verdict.index()).map(|label| Box::from(*label));
            let member = Member::new(verdict, label, decision.at(), partition);
            self.add_member(member);
        }
    }

    /// Adds what another tally has.
    pub fn add_all(&mut self, other: &Self) {
        other.members.iter().cloned().for_each(|member| self.add_member(member));
    }

    #[inline]
    fn add_member(&mut self, member: Member) {
        match self.members.iter().position(|known| known.is_same_policy(&member)) {
            Some(at) if self.members[at].yields_to(&member) => self.members[at] = member,
            None if self.members.len() < MEMBERS_MAX => self.members.push(member),
            Some(_) | None => {}
        }
    }

    /// Whether there is nothing to tell: no rule applied, or nothing is known
    /// because no store could be asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The fields for the response, whether it was allowed or denied; what comes
    /// with a denial besides is [`Denial::fields`](crate::Denial::fields).
    pub fn fields(&self, options: &HttpOptions) -> impl Iterator<Item = Field> + use<> {
        let mut fields = [const { None }; FIELDS_MAX];
        let mut room = fields.iter_mut();
        self.each_field(options, |name, value| {
            if let Some(field) = room.next() {
                *field = Some((name, Cow::Owned(value.to_owned())));
            }
        });
        fields.into_iter().flatten()
    }

    /// Hands out the fields of [`Tally::fields`] one by one, for header types that copy
    /// values anyway: no string is made for any of them.
    pub fn each_field(&self, options: &HttpOptions, tell: impl FnMut(&'static str, &str)) {
        each_field_of(&self.members, options, false, tell);
    }

    /// [`Tally::each_field`] of a single decision, for which no tally has to be made if it is about one policy.
    ///
    /// The value of `RateLimit-Policy` follows from the names and quotas of the verdicts alone. Callers that have kept
    /// it say that they know it (`knows_policies`), and it is left out.
    #[inline]
    pub fn each_field_of(
        decision: &Decision,
        options: &HttpOptions,
        knows_policies: bool,
        tell: impl FnMut(&'static str, &str),
    ) {
        if let [verdict] = decision.verdicts() {
            let member = Member::new(verdict, None, decision.at(), None);
            each_field_of(std::slice::from_ref(&member), options, knows_policies, tell);
        } else {
            each_field_of(&Self::of(decision).members, options, knows_policies, tell);
        }
    }
}

fn each_field_of(
    members: &[Member],
    options: &HttpOptions,
    knows_policies: bool,
    mut tell: impl FnMut(&'static str, &str),
) {
    if members.is_empty() {
        return;
    }
    let mut text = Text::default();
    if let Some(draft) = options.draft {
        if !knows_policies {
            list(members, &mut text, Member::write_policy);
            tell(field::RATELIMIT_POLICY, text.as_str());
            text.clear();
        }
        list(members, &mut text, |member, text| member.write_status(text, draft));
        tell(field::RATELIMIT, text.as_str());
    }
    if options.legacy == Legacy::Off {
        return;
    }
    let Some(strictest) = members.iter().max_by(|left, right| left.by_strictness(right)) else {
        return;
    };
    for (name, value) in legacy(strictest, options).into_iter().flatten() {
        text.clear();
        text.integer(value);
        tell(name, text.as_str());
    }
}

#[inline]
fn list(members: &[Member], text: &mut Text, write: impl Fn(&Member, &mut Text)) {
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            text.push(", ");
        }
        write(member, text);
    }
}

/// The three fields of old, which have room for one policy.
fn legacy(member: &Member, options: &HttpOptions) -> [Option<(&'static str, u64)>; 3] {
    let [limit, remaining, reset] = match options.legacy {
        Legacy::Off => return [None; 3],
        Legacy::RateLimit => field::LEGACY,
        Legacy::XRateLimit => field::LEGACY_X,
    };
    let resets = match options.legacy_reset {
        Reset::Delta => member.after(),
        Reset::Epoch => member.ends_at(),
    };
    [
        Some((limit, member.limit())),
        Some((remaining, member.remaining())),
        resets.map(|resets| (reset, resets)),
    ]
}
