//! From a check to an item of a batch, and from items to a call of the script.
//!
//! The bytes are what `script/contract.lua` says. An item is made by whoever
//! asks, before the batch it travels in is known, so it names its keys by its
//! own numbers; putting a batch together gives them the batch's.

use std::collections::HashMap;

use ratekeeper_core::{
    Algorithm, CalendarUnit, Charge, Check, Emergency, Enforcement, Key, Quota, Receipt, ReceiptNote,
    Reservation, Timestamp,
};
use smallvec::SmallVec;

use super::layout::{CLASSES, Class, Layout, quota_part};
use super::penal;
use super::script::{
    B_BYTES, CHARGE_BYTES, FIXED_BYTES, FORMAT, GROUP_BYTES, HEAD_BYTES, HEADER_BYTES, MOVING_BYTES,
    PLAN_BYTES, TERMS_BYTES, TOLD_BYTES, TTL_BYTES,
};

/// An item of a batch.
#[derive(Debug, Default)]
pub(super) struct Item {
    /// The names of its keys, one after the other.
    names: Vec<u8>,
    keys: SmallVec<[OwnKey; 4]>,
    /// The charges of a check without their keys: the same for all requests that
    /// cost the same under the same rules. Empty for other items.
    plan: Vec<u8>,
    body: Vec<u8>,
    /// Where in `body` a key is named by its own number, and that number.
    references: SmallVec<[(u32, u16); 4]>,
    /// What the script keeps beside an answer, and where that argument is named.
    kept: Option<(u32, Vec<u8>)>,
    /// What its answer is about.
    pub(super) asked: Asked,
}

/// How many charges and penalties an answer tells of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) charges: usize,
    pub(super) penalties: usize,
}

#[derive(Clone, Copy, Debug)]
struct OwnKey {
    class: Class,
    start: u32,
    end: u32,
}

/// What is done to a charge of an earlier check.
#[derive(Clone, Debug)]
pub(super) struct Change<'a> {
    pub(super) target: Target<'a>,
    pub(super) units: Units,
    pub(super) receipt: Receipt,
    /// Where it is noted how much was given back, if the receipt left the process.
    pub(super) note: Option<(Vec<u8>, ReceiptNote)>,
}

/// How the charge is changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Units {
    /// So many units are given back.
    Refund(u32),
    /// So many units more are charged, whether or not there is room.
    TopUp(u32),
}

/// A counter in the words of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) class: Class,
    pub(super) name: &'a [u8],
    pub(super) tag: u32,
    pub(super) quota: Quota,
    /// The window of the rule or plan, which a log and leases have, whatever an override's is.
    pub(super) own_window: u64,
    pub(super) any_window: bool,
}

pub(super) const SHADOW: u8 = 1;
pub(super) const OVERRIDABLE: u8 = 2;
pub(super) const LIFTED: u8 = 4;
pub(super) const BLOCKED: u8 = 8;
pub(super) const BY_THE_CLOCK: u8 = 16;
pub(super) const CLOSED_BUCKET: u8 = 32;
pub(super) const ANY_WINDOW: u8 = 64;
/// How the script tells a value.
const VALUE_TOLD: u8 = 2;
/// The algorithm number of counters that Application Kit shares.
pub(super) const KIT: u8 = 7;
/// Bytes of a change before its charge: how, the receipt, its key, the note.
pub(super) const CHANGE_BYTES: usize = 1 + 8 + 4 + 2 + 2 + 4 + 8;
/// What a charge on a log or on leases counts as of the server's time, as `tests/redis/fullest.rs` measures it, ...
const LIST_MICROS_MAX: usize = 85;
/// ... any other one, ...
const CHARGE_MICROS_MAX: usize = 25;
/// ... one that takes the careful way, under an id or to give back, in a value with as many counters as there may be, ...
const CAREFUL_MICROS_MAX: usize = 55;
/// ... and a penalty, whose three counters are in one value.
const PENALTY_MICROS_MAX: usize = 11;
/// The kind of items that only look; those of checks are one less, and all others more.
const PEEK: u8 = 1;
/// The kind of items that have penalties.
const PENAL: u8 = 5;
/// Bytes of a group of one charge; those of several share a head.
const GROUP_BYTES_MAX: usize = GROUP_BYTES + HEAD_BYTES + FIXED_BYTES + B_BYTES + TOLD_BYTES + TERMS_BYTES;

/// The algorithm and the quota within its rule, in one word.
pub(super) fn tag_of(key: Key<'_>, algorithm: Algorithm) -> u32 {
    key.scope().tag() << 3 | algorithm as u32
}

fn algorithm_number(class: Class, quota: &Quota) -> u8 {
    if class == Class::Kit { KIT } else { quota.algorithm() as u8 }
}

impl Item {
    /// A check or a peek.
    pub(super) fn check(layout: &Layout, check: &Check<'_>) -> Self {
        Self::with_charges(layout, check, u8::from(check.is_peek()))
    }

    /// The charges of a check and its penalties.
    fn with_charges(layout: &Layout, check: &Check<'_>, kind: u8) -> Self {
        let mut item = Self::sized(check.charges().len());
        item.body.extend_from_slice(&[kind, 0, 0]);
        item.plan.extend_from_slice(&[check.charges().len() as u8, 0, PLAN_BYTES as u8, 0, 0, 0]);
        if check.penalties().is_empty() {
            item.charges(layout, check.charges());
        } else {
            item.body[0] = PENAL;
            item.body.push(kind);
            item.penalties(layout, check);
        }
        item
    }

    /// A check under an id, with what to keep beside its answer.
    pub(super) fn once(
        layout: &Layout,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
        kept: Vec<u8>,
    ) -> Self {
        let mut item = Self::with_charges(layout, check, 2);
        item.body.push(u8::from(check.is_peek()));
        let id =
            item.key(Class::Text, |names| names.extend_from_slice(&layout.id_of(check, reservation.id())));
        item.refer(id);
        item.kept = Some((item.body.len() as u32, kept));
        item.body.extend_from_slice(&[0, 0]);
        item.number(micros(reservation.keep()));
        item.number(reservation.held_for().map_or(-1.0, micros));
        item.body.extend_from_slice(&check.digest().to_le_bytes());
        item
    }

    /// Changes to charges of an earlier check; under an id, only if its
    /// reservation is open still.
    pub(super) fn adjust<'t>(
        id: Option<(&[u8], u64)>,
        changes: impl ExactSizeIterator<Item = Change<'t>>,
    ) -> Self {
        let mut item = Self::sized(changes.len());
        item.body.extend_from_slice(&[3, changes.len() as u8, 0]);
        match id {
            Some((id, _)) => {
                let key = item.key(Class::Text, |names| names.extend_from_slice(id));
                item.refer(key);
            }
            None => item.body.extend_from_slice(&[0, 0]),
        }
        item.body.extend_from_slice(&id.map_or(0, |(_, digest)| digest).to_le_bytes());
        for Change { target, units, receipt, note } in changes {
            let start = item.body.len();
            let (kind, units) = match units {
                Units::Refund(units) => (0, units),
                Units::TopUp(units) => (1, units),
            };
            item.body.push(kind);
            item.number(receipt.at as f64);
            item.body.extend_from_slice(&receipt.detail.to_le_bytes());
            let key = item.key(target.class, |names| names.extend_from_slice(target.name));
            item.refer(key);
            item.noted(note);
            debug_assert_eq!(item.body.len() - start, CHANGE_BYTES);
            let flags = flags_of(&target.quota, target.any_window);
            let head = [algorithm_number(target.class, &target.quota), flags, 0, 0];
            terms(&mut item.body, head, target.tag, units, &target.quota, target.own_window);
        }
        item
    }

    /// Where to note what is given back.
    fn noted(&mut self, note: Option<(Vec<u8>, ReceiptNote)>) {
        let (cost, until) = note.as_ref().map_or((0, 0), |(_, note)| (note.cost, note.until));
        match note {
            Some((name, _)) => {
                let key = self.key(Class::Text, |names| names.extend_from_slice(&name));
                self.refer(key);
            }
            None => self.body.extend_from_slice(&[0, 0]),
        }
        self.body.extend_from_slice(&cost.to_le_bytes());
        self.number(until as f64);
    }

    /// Forgets a counter under all names that it may have.
    pub(super) fn reset(counters: &[(Class, Vec<u8>)], algorithm: Algorithm, tag: u32) -> Self {
        let mut item = Self::sized(1);
        item.body.extend_from_slice(&[4, counters.len() as u8, 0]);
        item.body.extend_from_slice(&tag.to_le_bytes());
        for (class, name) in counters {
            item.body.push(if *class == Class::Kit { KIT } else { algorithm as u8 });
            let key = item.key(*class, |names| names.extend_from_slice(name));
            item.refer(key);
        }
        item
    }

    fn sized(charges: usize) -> Self {
        Self {
            names: Vec::with_capacity(32 * charges),
            plan: Vec::with_capacity(PLAN_BYTES + (CHARGE_BYTES + GROUP_BYTES_MAX) * charges),
            body: Vec::with_capacity(8 + 8 * charges),
            asked: Asked { charges, penalties: 0 },
            ..Self::default()
        }
    }

    fn charges(&mut self, layout: &Layout, charges: &[Charge<'_>]) {
        let keys: SmallVec<[u16; 4]> = charges
            .iter()
            .map(|charge| {
                let start = self.names.len();
                let class = layout.counter(charge, &mut self.names);
                self.intern(class, start)
            })
            .collect();
        // Penalties stand where the groups would.
        if self.plan.len() == PLAN_BYTES {
            self.groups(charges, &keys);
        }
        let mut index = 0;
        while index < charges.len() {
            // Neighbours on one key are the quotas of one rule: the script has
            // a short way for them, unless the key turns up again elsewhere.
            let run = keys[index..].iter().take_while(|key| **key == keys[index]).count();
            let apart = keys.iter().filter(|key| **key == keys[index]).count() > run;
            for place in 0..run {
                let shape = if apart { (0, 0) } else { (place as u8, run as u8) };
                self.charge(layout, &charges[index + place], keys[index + place], shape);
            }
            index += run;
        }
        self.names(charges);
    }

    /// The names of quotas, which values end with.
    fn names(&mut self, charges: &[Charge<'_>]) {
        let bytes = names_bytes(charges);
        if bytes > 0 {
            self.plan[4..6].copy_from_slice(&bytes.to_le_bytes());
            for name in charges.iter().map(name_of) {
                self.plan.push(name.len() as u8);
                self.plan.extend_from_slice(name.as_bytes());
            }
        }
    }

    /// What the script needs for its short way, which most checks go: a group
    /// for each value. None if a charge of the check is out of the ordinary.
    fn groups(&mut self, charges: &[Charge<'_>], keys: &[u16]) {
        let runs = || keys.chunk_by(|left, right| left == right);
        let is_apart = |run: &[u16]| keys.iter().filter(|key| **key == run[0]).count() > run.len();
        if !charges.iter().all(is_plain) || runs().any(is_apart) {
            return;
        }
        let (mut rest, start) = (charges, self.plan.len());
        for run in runs() {
            let (group, others) = rest.split_at(run.len());
            rest = others;
            let is_fixed = group[0].quota().algorithm() == Algorithm::FixedWindow;
            let is_mixed =
                group.iter().any(|charge| charge.quota().algorithm() != group[0].quota().algorithm());
            if is_mixed || is_fixed && group.len() > 1 {
                return self.plan.truncate(start);
            }
            self.group(group, is_fixed);
        }
        self.plan[1] = runs().count() as u8;
        self.charges_begin();
    }

    /// Notes that the charges of the plan begin here.
    fn charges_begin(&mut self) {
        let length = self.plan.len() as u16;
        self.plan[2..4].copy_from_slice(&length.to_le_bytes());
    }

    /// A check with penalties: their terms are in the plan, because they are the same for all
    /// subjects, and the keys of their counters behind those of the charges.
    fn penalties(&mut self, layout: &Layout, check: &Check<'_>) {
        let penalties = check.penalties();
        self.asked.penalties = penalties.len();
        self.plan.push(penalties.len() as u8);
        penalties.iter().for_each(|penalty| penal::terms(&mut self.plan, penalty));
        self.charges_begin();
        self.charges(layout, check.charges());
        for penalty in penalties {
            // All counters of a rule and subject are in one value.
            for (gate, quota, _) in penalty.counters().take(1) {
                let key = self.key(Class::Text, |names| {
                    let start = names.len();
                    layout.own_counter(gate, quota.algorithm(), false, names);
                    layout.tag_penalty(penalty, check.charges(), start, names);
                });
                self.refer(key);
            }
        }
    }

    /// Token buckets in one value, or a fixed window.
    fn group(&mut self, charges: &[Charge<'_>], is_fixed: bool) {
        let overridable = charges.iter().filter(|charge| charge.is_overridable()).count();
        let kind = if is_fixed { 2 } else { 1 };
        self.plan.extend_from_slice(&[charges.len() as u8, kind, overridable as u8]);
        let names = names_bytes(charges);
        let [low, high] = names.to_le_bytes();
        self.plan.extend_from_slice(&[FORMAT, charges.len() as u8, low, high]);
        for charge in charges {
            let quota = charge.quota();
            let tag = tag_of(charge.key(), quota.algorithm());
            self.plan.extend_from_slice(&tag.to_le_bytes());
            self.plan.extend_from_slice(&(quota.window_micros() as f64).to_le_bytes());
            self.plan.extend_from_slice(&quota.limit().to_le_bytes());
            self.plan.extend_from_slice(&quota.capacity().to_le_bytes());
        }
        for charge in charges {
            let quota = charge.quota();
            let (full, part) = if is_fixed { (quota.window_micros(), 0) } else { quota.debt_full() };
            // In whole milliseconds, as precise as stores keep it; windows are that anyway.
            let b = (full + u64::from(part > 0)).div_ceil(1_000) * 1_000;
            self.plan.extend_from_slice(&(b as f64).to_le_bytes());
        }
        let counters = (FIXED_BYTES + B_BYTES + MOVING_BYTES) * charges.len();
        let value = (HEAD_BYTES + TTL_BYTES + counters) as u16 + names;
        self.plan.push(VALUE_TOLD);
        self.plan.extend_from_slice(&value.to_le_bytes());
        for charge in charges {
            let (quota, cost) = (charge.quota(), charge.units());
            let terms = if is_fixed {
                [(quota.window_micros(), cost), (0, 0)]
            } else {
                [quota.debt_of(cost), quota.debt_allowed()]
            };
            self.plan.extend_from_slice(&quota.limit().to_le_bytes());
            for (micros, rest) in terms {
                self.plan.extend_from_slice(&(micros as f64).to_le_bytes());
                self.plan.extend_from_slice(&rest.to_le_bytes());
            }
        }
    }

    fn charge(&mut self, layout: &Layout, charge: &Charge<'_>, key: u16, (place, size): (u8, u8)) {
        let quota = charge.quota();
        let mut flags = flags_of(quota, charge.is_in_any_window());
        if charge.enforced() == Enforcement::Shadow {
            flags |= SHADOW;
        }
        flags |= match charge.switched() {
            Emergency::Off => 0,
            Emergency::Lift => LIFTED,
            Emergency::Block => BLOCKED,
        };
        if is_bucket(quota) && quota.is_closed() {
            flags |= CLOSED_BUCKET;
        }
        let scope = charge.override_scope();
        if scope.is_some() {
            flags |= OVERRIDABLE;
        }
        let class = self.keys[usize::from(key)].class;
        let head = [algorithm_number(class, quota), flags, place, size];
        let tag = tag_of(charge.key(), quota.algorithm());
        terms(&mut self.plan, head, tag, charge.units(), quota, quota.window_micros());
        if place == 0 {
            self.refer(key);
        }
        if let Some(scope) = scope {
            let project = scope.project_id().map(|_| scope);
            for scope in [project, Some(scope.without_project())] {
                match scope {
                    Some(scope) => {
                        let key = self.key(Class::Override, |names| layout.override_of(scope, names));
                        self.refer(key);
                    }
                    None => self.body.extend_from_slice(&[0, 0]),
                }
            }
        }
    }

    fn number(&mut self, number: f64) {
        self.body.extend_from_slice(&number.to_le_bytes());
    }

    /// A key by its own number: the one there is, or a new one.
    fn key(&mut self, class: Class, write: impl FnOnce(&mut Vec<u8>)) -> u16 {
        let start = self.names.len();
        write(&mut self.names);
        self.intern(class, start)
    }

    /// The number of the key whose name begins at `start`.
    fn intern(&mut self, class: Class, start: usize) -> u16 {
        let (known, name) = self.names.split_at(start);
        let same = |key: &OwnKey| known[key.start as usize..key.end as usize] == *name;
        if let Some(index) = self.keys.iter().position(same) {
            self.names.truncate(start);
            return index as u16;
        }
        self.keys.push(OwnKey { class, start: start as u32, end: self.names.len() as u32 });
        (self.keys.len() - 1) as u16
    }

    fn refer(&mut self, key: u16) {
        self.references.push((self.body.len() as u32, key));
        self.body.extend_from_slice(&[0, 0]);
    }

    fn name(&self, key: &OwnKey) -> &[u8] {
        &self.names[key.start as usize..key.end as usize]
    }

    /// How long it should keep the server busy at most, in microseconds.
    pub(super) fn work_micros(&self) -> usize {
        let lists = self.keys.iter().filter(|key| key.class == Class::List).count();
        let is_plain = self.body.first().is_none_or(|kind| *kind <= PEEK);
        let each = if is_plain { CHARGE_MICROS_MAX } else { CAREFUL_MICROS_MAX };
        let others = self.asked.charges.saturating_sub(lists);
        lists * LIST_MICROS_MAX + others * each + self.asked.penalties * PENALTY_MICROS_MAX
    }

    /// How many keys it has.
    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }
}

/// What a quota is called within its rule. The rule, or the name that a caller made up, is in the name of the key.
fn name_of(charge: &Charge<'_>) -> &'static str {
    let scope = charge.key().scope();
    quota_part(scope, scope.rule())
}

/// Bytes of the names of quotas, each with its length before it; none if no quota has a name. A check has at most
/// 64 names of at most 128 bytes.
fn names_bytes(charges: &[Charge<'_>]) -> u16 {
    let bytes: usize = charges.iter().map(|charge| name_of(charge).len()).sum();
    if bytes == 0 { 0 } else { (bytes + charges.len()) as u16 }
}

fn is_bucket(quota: &Quota) -> bool {
    matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// Whether the script has a short way for a charge: enforced, not under an
/// operator's switch, in a packed value, off the clock and of more than nothing.
fn is_plain(charge: &Charge<'_>) -> bool {
    let quota = charge.quota();
    let is_known = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::FixedWindow);
    is_known
        && !quota.is_closed()
        && !quota.is_clocked()
        && !charge.is_in_any_window()
        && charge.units() > 0
        && charge.enforced() == Enforcement::Enforce
        && charge.switched() == Emergency::Off
}

/// Stands for windows on multiples of their length where the unit of a calendar would stand.
pub(super) const ALIGNED: u8 = 6;

/// The flags that say in which window a charge counts.
fn flags_of(quota: &Quota, any_window: bool) -> u8 {
    let by_the_clock = if quota.is_clocked() { BY_THE_CLOCK } else { 0 };
    if any_window { by_the_clock | ANY_WINDOW } else { by_the_clock }
}

/// A charge in the words of the script.
fn terms(into: &mut Vec<u8>, head: [u8; 4], tag: u32, cost: u32, quota: &Quota, own_window: u64) {
    let algorithm = quota.algorithm();
    into.extend_from_slice(&head);
    for word in [tag, cost, quota.limit()] {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(&(quota.window_micros() as f64).to_le_bytes());
    let spans = if is_bucket(quota) {
        [quota.debt_of(cost), quota.debt_allowed()]
    } else {
        [(0, 0), (if algorithm.keeps_all() { own_window } else { 0 }, 0)]
    };
    for (micros, rest) in spans {
        into.extend_from_slice(&(micros as f64).to_le_bytes());
        into.extend_from_slice(&rest.to_le_bytes());
    }
    let extra = if algorithm == Algorithm::LeakyBucket { quota.queue() } else { quota.capacity() };
    into.extend_from_slice(&extra.to_le_bytes());
    let (unit, offset) = clock_of(quota);
    into.push(unit);
    into.extend_from_slice(&offset.to_le_bytes());
}

/// Which clock the windows of a quota follow: the unit of its calendar and the minutes east of UTC.
pub(super) fn clock_of(quota: &Quota) -> (u8, i16) {
    let without = if quota.is_aligned() { ALIGNED } else { 0 };
    quota.calendar_window().map_or((without, 0), |calendar| {
        let unit = match calendar.unit() {
            CalendarUnit::Minute => 1,
            CalendarUnit::Hour => 2,
            CalendarUnit::Day => 3,
            CalendarUnit::Week => 4,
            CalendarUnit::Month => 5,
        };
        (unit, calendar.offset_minutes())
    })
}

fn micros(length: std::time::Duration) -> f64 {
    length.as_micros() as f64
}

/// A call of the script: its keys in order, then its arguments.
#[derive(Debug)]
pub(super) struct Call<'i> {
    pub(super) keys: Vec<&'i [u8]>,
    pub(super) batch: Vec<u8>,
    pub(super) kept: Vec<&'i [u8]>,
}

/// Puts items together. `now` is what to judge them at, if not the server's
/// time.
pub(super) fn call<'i>(items: &'i [&'i Item], now: Option<Timestamp>) -> Call<'i> {
    let mut by_class: [Vec<&'i [u8]>; CLASSES] = std::array::from_fn(|_| Vec::new());
    let mut known: HashMap<&'i [u8], u16> = HashMap::new();
    // Numbers within the class first: where a class begins is known at the end.
    let mut numbers: Vec<u16> = Vec::with_capacity(items.len() * 2);
    let mut plans = Plans::default();
    for item in items {
        for key in &item.keys {
            let (name, class) = (item.name(key), &mut by_class[key.class as usize]);
            let mut new = || {
                class.push(name);
                class.len() as u16
            };
            numbers.push(if items.len() == 1 { new() } else { *known.entry(name).or_insert_with(new) });
        }
        plans.add(&item.plan);
    }
    let mut begins = [0u16; CLASSES];
    for class in 1..CLASSES {
        begins[class] = begins[class - 1] + by_class[class - 1].len() as u16;
    }
    let size = items.iter().map(|item| item.plan.len() + item.body.len()).sum::<usize>();
    let mut batch = Vec::with_capacity(HEADER_BYTES + size);
    let now = now.map_or(-1.0, |now| now.as_micros() as f64);
    batch.extend_from_slice(&now.to_le_bytes());
    for count in [items.len(), plans.distinct.len()].into_iter().chain(by_class.iter().map(Vec::len)) {
        batch.extend_from_slice(&(count as u16).to_le_bytes());
    }
    debug_assert_eq!(batch.len(), HEADER_BYTES);
    plans.distinct.iter().for_each(|plan| batch.extend_from_slice(plan));
    let (mut kept, mut first) = (Vec::new(), 0);
    for (item, plan) in items.iter().zip(&plans.numbers) {
        let start = batch.len();
        batch.extend_from_slice(&item.body);
        let mut patch = |offset: u32, number: u16| {
            let at = start + offset as usize;
            batch[at..at + 2].copy_from_slice(&number.to_le_bytes());
        };
        if *plan > 0 {
            patch(1, *plan);
        }
        for (offset, key) in &item.references {
            let class = item.keys[usize::from(*key)].class;
            patch(*offset, begins[class as usize] + numbers[first + usize::from(*key)]);
        }
        if let Some((offset, value)) = &item.kept {
            kept.push(value.as_slice());
            patch(*offset, kept.len() as u16 + 1);
        }
        first += item.keys.len();
    }
    Call { keys: by_class.concat(), batch, kept }
}

/// The plans of a batch, each once.
#[derive(Default)]
struct Plans<'i> {
    distinct: Vec<&'i [u8]>,
    /// The number of each item's plan; 0 for an item without one.
    numbers: Vec<u16>,
}

impl<'i> Plans<'i> {
    fn add(&mut self, plan: &'i [u8]) {
        if plan.is_empty() {
            return self.numbers.push(0);
        }
        // A service has few different plans, and the last one is the likeliest.
        let known = self.distinct.iter().rposition(|known| *known == plan);
        let index = known.unwrap_or_else(|| {
            self.distinct.push(plan);
            self.distinct.len() - 1
        });
        self.numbers.push(index as u16 + 1);
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{CHARGES_MAX, Charges, LIST_CHARGES_MAX, Name, PENALTIES_MAX, Penalty};

    use super::super::lane::BATCH_MICROS_MAX;
    use super::*;

    /// A check is never cut, so bounds on checks have to see to it that none is longer than a batch.
    #[test]
    fn the_check_with_most_work_counts_as_no_more_than_a_batch() {
        let quota = |text: &str| text.parse::<Quota>().unwrap();
        let (log, own, one) =
            (quota("9/h sliding_log"), quota("9/h sliding_window"), quota("1/h fixed_window"));
        let bucket = quota("9/h");
        let name = |index: usize| Name::new(&format!("r{index}")).unwrap();
        let mut charges = Charges::new();
        for index in 0..CHARGES_MAX {
            let quota = if index < LIST_CHARGES_MAX { &log } else { &own };
            charges.push(Charge::new(Key::new(name(index), "ann").unwrap(), quota)).unwrap();
        }
        let part = |index: usize, part: &str| Name::joined(name(index), part).unwrap();
        let penalties: Vec<Penalty<'_>> = (0..PENALTIES_MAX)
            .map(|index| Penalty {
                gate: (part(index, "penalty"), &one),
                strikes: (part(index, "strikes"), &one),
                offences: Some((part(index, "offences"), &bucket)),
                sentences: std::slice::from_ref(&one),
                subject: b"ann",
                enforcement: Enforcement::Enforce,
                charges: index..index + 1,
                counts: true,
            })
            .collect();
        let check = charges.check().unwrap().with_penalties(&penalties).unwrap();
        let once = Reservation::once("id", std::time::Duration::from_secs(60)).unwrap();
        let work = Item::once(&Layout::new(""), &check, &once, Vec::new()).work_micros();
        assert!((4_000..=BATCH_MICROS_MAX).contains(&work), "{work}");
    }
}
