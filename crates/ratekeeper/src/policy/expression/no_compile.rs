//! What stands in for the reader of expressions in a program that was built without the feature `policy`: there are none.

use super::node::{Kind, Node};
use crate::policy::request::Needs;
use crate::policy::syntax::SyntaxError;

/// An expression, which there is none of.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) text: Box<str>,
    pub(super) root: Node,
    pub(super) needs: Needs,
    none: None,
}

#[derive(Clone, Copy, Debug)]
enum None {}

impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        match self.none {}
    }
}

impl Eq for Compiled {}

impl Compiled {
    pub(super) fn new(text: &str) -> Result<Self, SyntaxError> {
        let expected = "none: expressions need the feature `policy` of the crate `ratekeeper`";
        Err(SyntaxError::new(text, 0, "an expression", expected))
    }

    pub(super) fn must_be(&self, _: Kind, _: &str) -> Result<(), SyntaxError> {
        match self.none {}
    }

    pub(super) fn fixed_cost(&self, _: &str) -> Result<Option<u32>, SyntaxError> {
        match self.none {}
    }
}
