//! What stands in for regular expressions in a program that was built without the feature `policy`: there are none.

#[derive(Clone, Debug)]
pub(super) enum Pattern {}

impl Pattern {
    pub(super) fn steps(&self, _: &str) -> usize {
        match *self {}
    }

    pub(super) fn is_in(&self, _: &str) -> Option<bool> {
        match *self {}
    }
}
