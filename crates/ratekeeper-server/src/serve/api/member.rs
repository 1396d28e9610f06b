//! The members of a call, and which have no place in it. Every call has some that it refuses,
//! so they are told apart by number and not by name.

use super::call::Call;
use super::problem::Problem;

macro_rules! members {
    ($($member:ident $field:ident,)+) => {
        /// A member of a call.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Member {
            $($member,)+
        }

        impl Member {
            const fn name(self) -> &'static str {
                match self {
                    $(Self::$member => stringify!($field),)+
                }
            }
        }

        impl Call<'_> {
            fn has(&self, member: Member) -> bool {
                match member {
                    $(Member::$member => self.$field.is_some(),)+
                }
            }
        }
    };
}

members! {
    Charges charges,
    OnOutage on_outage,
    Service service,
    Method method,
    Path path,
    Route route,
    Query query,
    Headers headers,
    Client client,
    Identity identity,
    Body body,
    Key key,
    Cost cost,
    Id id,
    KeepSeconds keep_seconds,
    HoldSeconds hold_seconds,
    Actual actual,
    Units units,
    Decision decision,
}

/// What tells of a request.
pub(super) const REQUEST: [Member; 11] = [
    Member::Service,
    Member::Method,
    Member::Path,
    Member::Route,
    Member::Query,
    Member::Headers,
    Member::Client,
    Member::Identity,
    Member::Body,
    Member::Key,
    Member::Cost,
];

/// What tells what to do with it.
pub(super) const DOING: [Member; 6] =
    [Member::Id, Member::KeepSeconds, Member::HoldSeconds, Member::Actual, Member::Units, Member::Decision];

impl Call<'_> {
    /// Refuses members that have no place in a call.
    pub(super) fn refuse(&self, members: &[Member]) -> Result<(), Problem> {
        match members.iter().find(|member| self.has(**member)) {
            Some(member) => Err(Problem::out_of_place(member.name())),
            None => Ok(()),
        }
    }
}
