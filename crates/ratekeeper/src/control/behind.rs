//! Which switches are behind what a rule does: for those who ask why.

use ratekeeper_core::{Emergency, Timestamp};

use super::{ALL_RULES, Switch, Switches, all_rules_of, emergency_of, emergency_of_key};

impl Switches {
    /// The switch behind the emergency that a rule, or this key of it, is in at `now`, with the name it is set under.
    /// A block of the key comes first, as it does in decisions.
    #[must_use]
    pub fn emergency(&self, rule: &str, key: Option<&str>, now: Timestamp) -> Option<(&str, Switch)> {
        let names = names_for(rule);
        let blocks_key = |of: &String| {
            let found = self.live(&emergency_of_key(of, key.filter(|_| self.has_keys)?), now);
            found.filter(|(_, switch)| switch.emergency == Emergency::Block)
        };
        let is_any = |(_, switch): &(&str, Switch)| switch.emergency != Emergency::Off;
        let of_rule = |of: &String| {
            let beside = self.live(&emergency_of(of), now).filter(is_any);
            beside.or_else(|| self.live(of, now).filter(is_any))
        };
        names.iter().find_map(blocks_key).or_else(|| names.iter().find_map(of_rule))
    }

    /// The switches that say at `now` what a rule does with a key, each with the name it is set under: the emergency,
    /// the mode and the share of the keys, where they are set. A mode for a whole service never makes a rule do
    /// more than it says itself.
    #[must_use]
    pub fn behind(&self, rule: &str, key: Option<&str>, now: Timestamp) -> Vec<(&str, Switch)> {
        let names = names_for(rule);
        let first = |says: fn(&Switch) -> bool| {
            let found = names.iter().find_map(|of| self.live(of, now).filter(|(_, switch)| says(switch)));
            found.into_iter()
        };
        let mut behind: Vec<_> = self.emergency(rule, key, now).into_iter().collect();
        let modes = first(|switch| switch.mode.is_some());
        for found in modes.chain(first(|switch| switch.enforce_percent.is_some())) {
            if !behind.contains(&found) {
                behind.push(found);
            }
        }
        behind
    }

    fn live(&self, name: &str, now: Timestamp) -> Option<(&str, Switch)> {
        let (name, switch) = self.by_name.get_key_value(name)?;
        switch.is_live(now).then_some((name.as_str(), *switch))
    }
}

/// Under which names a rule may have a switch, the one that comes first first.
fn names_for(rule: &str) -> Vec<String> {
    let service = rule.split_once('/').map(|(service, _)| all_rules_of(service));
    [Some(rule.to_owned()), service, Some(ALL_RULES.to_owned())].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(all: &[(String, &str)]) -> Switches {
        all.iter().map(|(name, text)| (name.clone(), text.parse().unwrap())).collect()
    }

    #[test]
    fn the_switch_that_is_named_is_the_one_that_decides() {
        let texts = ["", "mode=off", "emergency=lift", "mode=monitor emergency=block until=5", "enforce=10"];
        let of_emergency = ["", "emergency=lift until=5", "emergency=block"];
        let names = ["search/own", "search/*", "*"];
        // Every way to have one of these under each name, and one as an emergency of one of them.
        for case in 0..texts.len().pow(3) * of_emergency.len() * names.len() {
            let (index, at) = (case / 9, case % 9);
            let mut all: Vec<(String, &str)> = (0_u32..)
                .zip(names)
                .map(|(place, name)| (name.to_owned(), texts[index / texts.len().pow(place) % texts.len()]))
                .collect();
            all.push((emergency_of(names[at % 3]), of_emergency[at / 3]));
            let set = switches(&all);
            for now in [0, 5].map(Timestamp::from_micros) {
                let said = set.of_rule("search/own", now);
                let found = set.emergency("search/own", Some("user:ann"), now);
                assert_eq!(found.map_or(Emergency::Off, |(_, of)| of.emergency), said.emergency, "{all:?}");
                let behind = set.behind("search/own", None, now);
                let has = |says: &dyn Fn(&Switch) -> bool| behind.iter().any(|(_, switch)| says(switch));
                let mode = said.own_mode.or(said.service_mode);
                assert!(mode.is_none() || has(&|switch| switch.mode == mode), "{all:?}");
                let percent = said.enforce_percent;
                assert!(percent.is_none() || has(&|switch| switch.enforce_percent == percent), "{all:?}");
                assert!(behind.len() <= 3 && behind.iter().all(|(_, switch)| switch.is_live(now)), "{all:?}");
            }
        }
    }

    #[test]
    fn a_block_of_the_key_is_behind_it_before_a_lift_of_its_rule() {
        let block = emergency_of_key("search/*", "user:eve");
        let set = switches(&[
            (block.clone(), "emergency=block until=9"),
            (emergency_of("search/own"), "emergency=lift"),
        ]);
        let of = |key, now| set.emergency("search/own", key, Timestamp::from_micros(now)).unwrap();
        assert_eq!(of(Some("user:eve"), 8).0, block);
        assert_eq!(of(Some("user:eve"), 9).1.emergency, Emergency::Lift);
        assert_eq!(of(Some("user:ann"), 8).1.emergency, Emergency::Lift);
        assert_eq!(of(None, 8).1.emergency, Emergency::Lift);
        assert_eq!(set.emergency("shop/own", Some("user:eve"), Timestamp::from_micros(0)), None);
    }
}
