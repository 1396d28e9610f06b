//! Switches that operators throw while everything runs: mode, ramp, emergency.
//!
//! They live in the store, so that every instance obeys the same ones, and are
//! looked up on every request from a copy that costs next to nothing: where no
//! switch is set, one load of an atomic.

mod behind;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
#[cfg(feature = "redis")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ratekeeper_core::{Emergency, Field, InvalidInput, NAME_BYTES_MAX, Timestamp};

use crate::store::StoreFuture;

/// The most switches there can be at once.
pub const SWITCHES_MAX: usize = 1_000;
/// The name under which a switch applies to every rule.
pub const ALL_RULES: &str = "*";

/// The variable of the environment that holds the mode of a service.
pub const MODE_VARIABLE: &str = "RATE_LIMIT_MODE";

/// The name under which a switch applies to every rule of a service.
#[must_use]
pub fn all_rules_of(service: &str) -> String {
    format!("{service}/{ALL_RULES}")
}

/// What the name of an emergency begins with: it stands beside the switch of the same rule, so that neither
/// replaces the other.
const EMERGENCY_PREFIX: &str = "emergency ";

/// The name under which an emergency of a rule, of a service or of all rules is set.
#[must_use]
pub fn emergency_of(rule: &str) -> String {
    format!("{EMERGENCY_PREFIX}{rule}")
}

/// What stands before the key in the name of a block of one key.
const KEY_PART: &str = " key=";
/// The longest key that can be blocked, in bytes.
pub const BLOCKED_KEY_BYTES_MAX: usize = 512;

/// The name under which one key is blocked: of a rule, of all rules of a service or of all rules.
#[must_use]
pub fn emergency_of_key(rule: &str, key: &str) -> String {
    format!("{EMERGENCY_PREFIX}{rule}{KEY_PART}{key}")
}

/// The rule and the key in what [`rule_of_switch`] says a switch is about.
#[must_use]
pub fn key_of_switch(rule: &str) -> (&str, Option<&str>) {
    rule.split_once(KEY_PART).map_or((rule, None), |(rule, key)| (rule, Some(key)))
}

/// The rule that the name of a switch is about, and whether it is the name of an emergency.
#[must_use]
pub fn rule_of_switch(name: &str) -> (&str, bool) {
    name.strip_prefix(EMERGENCY_PREFIX).map_or((name, false), |rule| (rule, true))
}

/// What a rule does with requests; the later, the less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Counts and denies.
    #[default]
    On,
    /// Counts and tells, never denies.
    Monitor,
    /// Does nothing at all.
    Off,
}

impl Mode {
    /// All of them, by the word for each.
    pub const NAMES: [(&'static str, Self); 3] =
        [("on", Mode::On), ("monitor", Mode::Monitor), ("off", Mode::Off)];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The mode in the environment ([`MODE_VARIABLE`]), if it says one.
    ///
    /// # Errors
    /// If it says something else.
    pub fn from_environment() -> Result<Option<Self>, InvalidInput> {
        let Some(text) = std::env::var_os(MODE_VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let text = text.to_string_lossy().to_ascii_lowercase();
        let wrong = |_| wrong_mode(&format!("`{text}` in {MODE_VARIABLE}"));
        text.parse().map(Some).map_err(wrong)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let found = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, mode)| mode).ok_or_else(|| wrong_mode(&format!("`{text}`")))
    }
}

fn wrong_mode(got: &str) -> InvalidInput {
    InvalidInput::new(Field::Switch, got, "on, monitor or off")
}

/// What an operator has set for one rule, for a service, or for all.
///
/// Written and read as text: `mode=monitor enforce=10 emergency=lift
/// until=1700000000000000`, each part optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// The mode, if not the rule's own.
    pub mode: Option<Mode>,
    /// Per cent of the keys to enforce for; the others are only watched. The
    /// same keys stay in as it grows.
    pub enforce_percent: Option<u8>,
    /// Lets everything pass, or nothing.
    pub emergency: Emergency,
    /// From this instant on the switch is as if it had never been set.
    pub until: Option<Timestamp>,
}

impl Switch {
    /// Whether it counts at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// This switch, and where it says nothing `other`.
    fn or(self, other: Self) -> Self {
        let emergency = if self.emergency == Emergency::Off { other.emergency } else { self.emergency };
        Self {
            mode: self.mode.or(other.mode),
            enforce_percent: self.enforce_percent.or(other.enforce_percent),
            emergency,
            until: None,
        }
    }
}

/// What the switches say about one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switched {
    /// The mode that is set for this very rule.
    pub own_mode: Option<Mode>,
    /// The mode that is set for its service, or for all rules.
    pub service_mode: Option<Mode>,
    /// Per cent of the keys to enforce for.
    pub enforce_percent: Option<u8>,
    /// Lets everything pass, or nothing.
    pub emergency: Emergency,
}

impl Switched {
    /// The mode of a rule that says `rule` for itself, or else takes `default`.
    ///
    /// What is set for the rule itself holds. What is set for its service holds
    /// for rules that say nothing, and makes the others do less but never more:
    /// a service that is switched on does not enforce a rule that only watches.
    #[must_use]
    pub fn mode(&self, rule: Option<Mode>, default: Mode) -> Mode {
        match (self.own_mode, self.service_mode, rule) {
            (Some(own), _, _) => own,
            (None, Some(service), Some(rule)) => service.max(rule),
            (None, service, rule) => service.or(rule).unwrap_or(default),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.mode.map(|mode| format!("mode={mode}")));
        parts.extend(self.enforce_percent.map(|percent| format!("enforce={percent}")));
        match self.emergency {
            Emergency::Lift => parts.push("emergency=lift".to_owned()),
            Emergency::Block => parts.push("emergency=block".to_owned()),
            Emergency::Off => {}
        }
        parts.extend(self.until.map(|until| format!("until={}", until.as_micros())));
        f.write_str(&parts.join(" "))
    }
}

impl FromStr for Switch {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let mut switch = Self::default();
        for part in text.split_whitespace() {
            let wrong = |expected: &str| InvalidInput::new(Field::Switch, format!("`{part}`"), expected);
            match part.split_once('=') {
                Some(("mode", mode)) => {
                    let mode = mode.parse().map_err(|_| wrong("mode=on, mode=monitor or mode=off"))?;
                    switch.mode = Some(mode);
                }
                Some(("enforce", percent)) => {
                    let percent = percent.parse().ok().filter(|percent| *percent <= 100);
                    switch.enforce_percent = Some(percent.ok_or_else(|| wrong("enforce=0 to enforce=100"))?);
                }
                Some(("emergency", "lift")) => switch.emergency = Emergency::Lift,
                Some(("emergency", "block")) => switch.emergency = Emergency::Block,
                Some(("emergency", "off")) => switch.emergency = Emergency::Off,
                Some(("until", micros)) => {
                    let micros = micros.parse().map_err(|_| wrong("until=MICROSECONDS since 1970"))?;
                    switch.until = Some(Timestamp::from_micros(micros));
                }
                _ => return Err(wrong("mode=, enforce=, emergency=lift|block|off or until=")),
            }
        }
        Ok(switch)
    }
}

/// All switches at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    by_name: HashMap<String, Switch>,
    /// Whether any key is blocked, so that requests look for theirs only then.
    has_keys: bool,
}

impl Switches {
    /// What applies to a rule at `now`: its own switch, where that says nothing
    /// the one of its service (`search/*` for `search/per-user`), and where that
    /// says nothing the one for all rules. Each has its emergency beside it ([`emergency_of`]), which comes first.
    #[must_use]
    pub fn of_rule(&self, rule: &str, now: Timestamp) -> Switched {
        let set = |name: &str| self.by_name.get(name).copied().filter(|switch| switch.is_live(now));
        let live = |name: &str| {
            let emergency = set(&emergency_of(name)).map_or(Emergency::Off, |switch| switch.emergency);
            let emergency = Switch { emergency, ..Switch::default() };
            emergency.or(set(name).unwrap_or_default())
        };
        let service = rule.split_once('/').map(|(service, _)| live(&all_rules_of(service)));
        let (own, others) = (live(rule), service.unwrap_or_default().or(live(ALL_RULES)));
        let all = own.or(others);
        Switched {
            own_mode: own.mode,
            service_mode: others.mode,
            enforce_percent: all.enforce_percent,
            emergency: all.emergency,
        }
    }

    /// Whether an operator has blocked exactly this key, for a rule, for its service or for all rules.
    #[must_use]
    pub fn blocks_key(&self, rule: &str, key: &str, now: Timestamp) -> bool {
        if !self.has_keys {
            return false;
        }
        let service = rule.split_once('/').map(|(service, _)| all_rules_of(service));
        let mut names = [Some(rule), service.as_deref(), Some(ALL_RULES)].into_iter().flatten();
        names.any(|of| {
            let found = self.by_name.get(&emergency_of_key(of, key));
            found.is_some_and(|switch| switch.is_live(now) && switch.emergency == Emergency::Block)
        })
    }

    /// Each switch with the rule it is for, [`ALL_RULES`] for all.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Switch)> {
        self.by_name.iter().map(|(rule, switch)| (rule.as_str(), switch))
    }
}

impl FromIterator<(String, Switch)> for Switches {
    fn from_iter<I: IntoIterator<Item = (String, Switch)>>(switches: I) -> Self {
        let by_name: HashMap<String, Switch> = switches.into_iter().collect();
        let has_keys = by_name.keys().any(|name| name.contains(KEY_PART));
        Self { by_name, has_keys }
    }
}

/// The switches of a store, the same for every instance within a second.
pub trait Control: Send + Sync {
    /// The switches as this process knows them; `None` if none is set.
    fn switches(&self) -> Option<Arc<Switches>>;

    /// The switches as the store has them now; [`Control::switches`] may be a second behind.
    fn read_switches(&self) -> StoreFuture<'_, Switches>;

    /// Sets the switch of a rule, or of [`ALL_RULES`]; under [`emergency_of`] its emergency.
    fn set_switch<'a>(&'a self, rule: &'a str, switch: Switch) -> StoreFuture<'a, ()>;

    /// Takes the switch of a rule back; says whether there was one.
    fn clear_switch<'a>(&'a self, rule: &'a str) -> StoreFuture<'a, bool>;
}

/// Refuses what could not be the name of a rule, and what is not its emergency but stands there.
pub(crate) fn validated(name: &str, switch: Switch) -> Result<Switch, InvalidInput> {
    let (rule, is_emergency) = rule_of_switch(name);
    if is_emergency && (switch.mode, switch.enforce_percent) != (None, None) {
        return Err(InvalidInput::new(
            Field::Switch,
            format!("`{switch}`"),
            "emergency=lift or emergency=block",
        ));
    }
    let (rule, key) = key_of_switch(rule);
    let is_block = is_emergency && switch.emergency == Emergency::Block;
    let is_key =
        |key: &str| (1..=BLOCKED_KEY_BYTES_MAX).contains(&key.len()) && !key.contains(char::is_control);
    if key.is_some_and(|key| !is_block || !is_key(key)) {
        let expected = format!("emergency=block of a key of 1 to {BLOCKED_KEY_BYTES_MAX} printable bytes");
        return Err(InvalidInput::new(Field::Switch, format!("`{switch}`"), expected));
    }
    let printable = rule.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if rule.is_empty() || rule.len() > NAME_BYTES_MAX || !printable {
        let expected = format!("the name of a rule, or {ALL_RULES} for all");
        return Err(InvalidInput::new(Field::Switch, format!("`{rule}`"), expected));
    }
    if switch.enforce_percent.is_some_and(|percent| percent > 100) {
        return Err(InvalidInput::new(Field::Switch, format!("`{switch}`"), "enforce=0 to enforce=100"));
    }
    Ok(switch)
}

/// This process's copy of the switches.
#[derive(Debug, Default)]
pub(crate) struct ControlCell {
    any: AtomicBool,
    switches: RwLock<Arc<Switches>>,
    /// How often this process has changed a switch itself.
    #[cfg(feature = "redis")]
    changes: AtomicU64,
}

impl ControlCell {
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<Switches>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        Some(Arc::clone(&self.switches.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Changes the copy.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut HashMap<String, Switch>) -> T) -> T {
        let mut current = self.switches.write().unwrap_or_else(PoisonError::into_inner);
        let switches = Arc::make_mut(&mut current);
        let changed = change(&mut switches.by_name);
        switches.has_keys = switches.by_name.keys().any(|name| name.contains(KEY_PART));
        self.any.store(!current.by_name.is_empty(), Ordering::Release);
        #[cfg(feature = "redis")]
        self.changes.fetch_add(1, Ordering::Relaxed);
        changed
    }

    /// How often it was changed: what is read from now on is not older than that.
    #[cfg(feature = "redis")]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Takes the switches that were read since so many changes. If there were more meanwhile, they may have been read
    /// before: the next reading has them all.
    #[cfg(feature = "redis")]
    pub(crate) fn replace(&self, since: u64, switches: Switches) {
        let mut current = self.switches.write().unwrap_or_else(PoisonError::into_inner);
        if self.changes() == since {
            self.any.store(!switches.by_name.is_empty(), Ordering::Release);
            *current = Arc::new(switches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_read_as_they_print() {
        let cases = ["", "mode=on", "mode=monitor enforce=10", "emergency=block until=17", "mode=off"];
        for text in cases {
            assert_eq!(text.parse::<Switch>().unwrap().to_string(), text);
        }
        let wrong = ["mode=maybe", "enforce=101", "enforce=-1", "until=soon", "emergency=yes", "on"];
        for text in wrong {
            let error = text.parse::<Switch>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("switch: got `{text}`; expected ")), "{error}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn what_was_read_before_a_change_does_not_undo_it() {
        let (cell, switch) = (ControlCell::default(), "emergency=lift".parse::<Switch>().unwrap());
        let since = cell.changes();
        cell.update(|switches| switches.insert("api".to_owned(), switch));
        cell.replace(since, Switches::default());
        assert_eq!(cell.get().map(|switches| switches.iter().count()), Some(1));
        cell.replace(cell.changes(), Switches::default());
        assert_eq!(cell.get(), None);
    }

    #[test]
    fn a_rules_own_switch_comes_before_that_for_all_and_ends_in_time() {
        let switch = |text: &str| text.parse::<Switch>().unwrap();
        let switches: Switches = [
            ("*".to_owned(), switch("mode=monitor enforce=50 emergency=lift")),
            ("api".to_owned(), switch("mode=on until=1000")),
        ]
        .into_iter()
        .collect();
        let at = |rule: &str, now| switches.of_rule(rule, Timestamp::from_micros(now));
        let (on, watches) = (Some(Mode::On), Some(Mode::Monitor));
        assert_eq!(at("api", 999).mode(watches, Mode::Off), Mode::On);
        assert_eq!(at("api", 1_000).mode(on, Mode::On), Mode::Monitor);
        assert_eq!((at("other", 0).own_mode, at("other", 0).service_mode), (None, watches));
        assert_eq!((at("api", 0).enforce_percent, at("api", 0).emergency), (Some(50), Emergency::Lift));
    }

    #[test]
    fn an_emergency_stands_beside_the_switch_and_neither_replaces_the_other() {
        let switch = |text: &str| text.parse::<Switch>().unwrap();
        let switches: Switches = [
            ("api".to_owned(), switch("mode=monitor emergency=block")),
            (emergency_of("api"), switch("emergency=lift until=1000")),
            (emergency_of("search/*"), switch("emergency=block")),
            (emergency_of("*"), switch("emergency=lift until=500")),
        ]
        .into_iter()
        .collect();
        let at = |rule: &str, now| switches.of_rule(rule, Timestamp::from_micros(now));
        assert_eq!((at("api", 0).emergency, at("api", 0).own_mode), (Emergency::Lift, Some(Mode::Monitor)));
        assert_eq!(at("api", 1_000).emergency, Emergency::Block, "the switch itself says so");
        assert_eq!(at("search/any", 0).emergency, Emergency::Block, "a service comes before all");
        assert_eq!(
            (at("other", 499).emergency, at("other", 500).emergency),
            (Emergency::Lift, Emergency::Off)
        );
        assert!(validated(&emergency_of("api"), switch("mode=on")).is_err());
        assert!(validated(&emergency_of(""), switch("emergency=lift")).is_err());
        assert_eq!(rule_of_switch(&emergency_of("*")), ("*", true));
    }

    #[test]
    fn one_key_is_blocked_until_its_end_and_no_other() {
        let block = "emergency=block until=1000".parse::<Switch>().unwrap();
        let switches: Switches = [
            (emergency_of_key("search/user", "user:eve"), block),
            (emergency_of_key("shop/*", "ip:192.0.2.7"), block),
        ]
        .into_iter()
        .collect();
        let is_blocked =
            |rule: &str, key: &str, now| switches.blocks_key(rule, key, Timestamp::from_micros(now));
        assert!(is_blocked("search/user", "user:eve", 999) && !is_blocked("search/user", "user:eve", 1_000));
        assert!(!is_blocked("search/user", "user:ann", 0) && !is_blocked("search/other", "user:eve", 0));
        assert!(is_blocked("shop/any", "ip:192.0.2.7", 0) && !is_blocked("search/any", "ip:192.0.2.7", 0));
        assert_eq!(switches.of_rule("search/user", Timestamp::from_micros(0)).emergency, Emergency::Off);
        let name = emergency_of_key("search/user", "user:eve");
        assert_eq!(key_of_switch(rule_of_switch(&name).0), ("search/user", Some("user:eve")));
        assert!(validated(&name, block).is_ok());
        for (name, text) in [
            (name.as_str(), "emergency=lift"),
            (name.as_str(), "mode=off"),
            (&emergency_of_key("search/user", ""), "emergency=block"),
            (&emergency_of_key("search/user", "a\nb"), "emergency=block"),
            (&emergency_of_key("", "a"), "emergency=block"),
            ("search/user key=a", "emergency=block"),
        ] {
            assert!(validated(name, text.parse().unwrap()).is_err(), "{name} {text}");
        }
    }

    #[test]
    fn a_service_has_switches_of_its_own_that_never_make_a_rule_do_more() {
        let switch = |text: &str| text.parse::<Switch>().unwrap();
        let switches: Switches = [
            ("*".to_owned(), switch("mode=off enforce=5")),
            (all_rules_of("search"), switch("mode=on")),
            ("search/own".to_owned(), switch("enforce=70")),
        ]
        .into_iter()
        .collect();
        let of = |rule: &str| switches.of_rule(rule, Timestamp::from_micros(0));
        assert_eq!(of("search/any").mode(None, Mode::Monitor), Mode::On, "the rule says nothing itself");
        assert_eq!(of("search/any").mode(Some(Mode::Monitor), Mode::On), Mode::Monitor);
        assert_eq!(of("images/any").mode(Some(Mode::Monitor), Mode::On), Mode::Off);
        assert_eq!((of("search/own").enforce_percent, of("search/any").enforce_percent), (Some(70), Some(5)));
    }
}
