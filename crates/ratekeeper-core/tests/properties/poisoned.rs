//! A state that no history makes is no reason to panic, whatever is done with it.

use proptest::collection::vec;
use proptest::prelude::any;
use ratekeeper_testkit::fuzz;

use crate::support::hold;

#[test]
fn any_state_can_be_judged_and_changed() {
    hold(50_000, vec(any::<u8>(), 0..400), |bytes| {
        fuzz::poisoned_states(&bytes);
        Ok(())
    });
}
