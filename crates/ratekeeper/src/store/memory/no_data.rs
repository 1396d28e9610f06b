//! What stands in for a data directory in a program that was built without one.

use ratekeeper_core::{Override, OverrideScope};

use crate::control::Switch;
use crate::store::{DataHealth, SECRET_BYTES, ScopedOverride, StoreError};

/// There is none.
#[derive(Debug)]
pub(super) enum DataDir {}

impl DataDir {
    pub(super) fn set_override(
        &self,
        _: OverrideScope<'_>,
        _: &Override,
        _: &[ScopedOverride],
    ) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn delete_overrides(&self, _: &[ScopedOverride]) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn set_switch(&self, _: &str, _: Switch, _: &[String]) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn clear_switch(&self, _: &str) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn append_line(&self, _: &str) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn receipt_key(&self, _: &[u8; SECRET_BYTES]) -> Result<[u8; SECRET_BYTES], StoreError> {
        match *self {}
    }

    pub(super) fn flush(&self) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) fn health(&self) -> DataHealth {
        match *self {}
    }
}
