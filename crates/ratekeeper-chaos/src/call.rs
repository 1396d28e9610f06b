//! What a caller logs of a call: a line for each, the same from every language.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};

use crate::limits::Service;

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Store,
    /// The failure policy.
    Outage,
    /// The call failed: over HTTP, nothing came back.
    None,
}

/// A call, as its caller saw it. All instants are microseconds since 1970.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// By the caller's clock.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// The index of its service.
    pub(crate) service: usize,
    pub(crate) tenant: usize,
    pub(crate) address: usize,
    pub(crate) allowed: bool,
    pub(crate) origin: Origin,
    /// The instant of the decision, by the store's clock.
    pub(crate) at: u64,
    /// The end of the window of the first quota, by the store's clock; 0 if there is none.
    pub(crate) window_end: u64,
    /// How long after its total bound the answer came, less what a control timer in the same process was late meanwhile.
    pub(crate) late: u64,
}

impl Origin {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "store" => Self::Store,
            "none" => Self::None,
            _ => Self::Outage,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Outage => "outage",
            Self::None => "none",
        }
    }
}

impl Call {
    pub(crate) fn line(&self) -> String {
        let Self { sent, answered, service, tenant, address, allowed, origin, at, window_end, late } = self;
        let (service, allowed) = (crate::limits::SERVICES[*service].name, u8::from(*allowed));
        let origin = origin.name();
        format!(
            "{sent},{answered},{service},{tenant},{address},{allowed},{origin},{at},{window_end},{late}\n"
        )
    }

    pub(crate) fn read(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split(',').collect();
        let [sent, answered, service, tenant, address, allowed, origin, at, window_end, late] = words[..]
        else {
            bail!("`{line}` is no line of a call");
        };
        let number = |word: &str| word.parse::<u64>().with_context(|| format!("`{word}` of `{line}`"));
        let (service, _) = Service::named(service).with_context(|| format!("the service of `{line}`"))?;
        Ok(Self {
            sent: number(sent)?,
            answered: number(answered)?,
            service,
            tenant: tenant.parse()?,
            address: address.parse()?,
            allowed: allowed == "1",
            origin: Origin::named(origin),
            at: number(at)?,
            window_end: number(window_end)?,
            late: number(late)?,
        })
    }
}

/// The machine's clock, in microseconds since 1970.
pub(crate) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
