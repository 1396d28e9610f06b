//! What can happen to servers, and when it happened.

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillAndRestart,
    Pause,
    Sever,
    HoldAll,
    HoldAnswers,
    FlushScripts,
    FillMemory,
    StepClock,
    KillPrimary,
    PausePrimary,
    FailOver,
    HandOver,
    KillReplica,
    KillSentinel,
    Reshard,
}

impl Fault {
    /// As the table and the command line call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KillAndRestart => "kill",
            Self::Pause => "pause",
            Self::Sever => "sever",
            Self::HoldAll => "partition",
            Self::HoldAnswers => "hold-answers",
            Self::FlushScripts => "flush-scripts",
            Self::FillMemory => "fill-memory",
            Self::StepClock => "step-clock",
            Self::KillPrimary => "kill-primary",
            Self::PausePrimary => "pause-primary",
            Self::FailOver => "fail-over",
            Self::HandOver => "hand-over",
            Self::KillReplica => "kill-replica",
            Self::KillSentinel => "kill-sentinel",
            Self::Reshard => "reshard",
        }
    }

    /// Why a limit may be exceeded by it, up to the whole limit once again; nothing if no charge can be lost.
    pub(crate) const fn loses(self) -> Option<&'static str> {
        match self {
            Self::KillAndRestart => Some("a server without persistence comes back empty"),
            Self::StepClock => Some("ahead, windows end early; back, they begin anew"),
            Self::KillPrimary => Some("what the replica did not have yet"),
            Self::PausePrimary => {
                Some("what the replica did not have yet, and what a primary of yesterday admits")
            }
            Self::FailOver => {
                Some("what the replica did not have yet, and what a primary of yesterday admits")
            }
            Self::Pause
            | Self::Sever
            | Self::HoldAll
            | Self::HoldAnswers
            | Self::FlushScripts
            | Self::FillMemory
            | Self::HandOver
            | Self::KillReplica
            | Self::KillSentinel
            | Self::Reshard => None,
        }
    }

    /// What happens, in a few words.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::KillAndRestart => "SIGKILL, then started again, empty",
            Self::Pause => "SIGSTOP, then SIGCONT before anybody takes over",
            Self::Sever => "connections end, new ones too",
            Self::HoldAll => "nothing passes in either direction; it arrives afterwards",
            Self::HoldAnswers => "calls arrive, answers do not until afterwards",
            Self::FlushScripts => "SCRIPT FLUSH, five times",
            Self::FillMemory => "maxmemory below what is used, noeviction",
            Self::StepClock => "the server's clock 5 s ahead, then back",
            Self::KillPrimary => {
                "SIGKILL of a primary, its replica takes over; the old one comes back as a replica"
            }
            Self::PausePrimary => "SIGSTOP of a primary until its replica has taken over, then SIGCONT",
            Self::FailOver => "SENTINEL FAILOVER: the replica is made the primary while both run",
            Self::HandOver => "CLUSTER FAILOVER: a primary hands over to its replica when that has all",
            Self::KillReplica => "SIGKILL of a replica, then started again",
            Self::KillSentinel => "SIGSTOP of a sentinel, then SIGCONT",
            Self::Reshard => "slots with counters move to another primary, with a rest half-way",
        }
    }
}

/// A fault as it happened, in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) fault: Fault,
    pub(crate) start: u64,
    /// When all was well again as far as the servers know.
    pub(crate) end: u64,
    /// Whether a replica had what was admitted.
    pub(crate) is_confirmed: bool,
}

impl Event {
    /// How often the whole limit may be admitted again because of it.
    pub(crate) const fn losses(&self) -> u64 {
        match self.fault {
            // Ahead, windows end early; back, they begin anew.
            Fault::StepClock => 2,
            Fault::KillPrimary | Fault::PausePrimary | Fault::FailOver if self.is_confirmed => 0,
            _ if self.fault.loses().is_some() => 1,
            _ => 0,
        }
    }

    /// Whether it went on at some time between two instants, with a `margin` on both sides.
    pub(crate) const fn touches(&self, from: u64, to: u64, margin: u64) -> bool {
        to + margin >= self.start && from <= self.end + margin
    }
}
