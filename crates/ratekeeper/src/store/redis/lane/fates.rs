//! What became of the items of a batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::redis::{RedisError, Value};
use ratekeeper_core::Clock as _;

use super::super::answer::{split, unreadable_key};
use super::super::encode::{Call, Item};
use super::super::link::bytes_of;
use super::super::redirect::Redirect;
use super::queue::{Errand, Refused};
use super::{Lane, Reply};
use crate::store::StoreError;

/// What became of an item that was sent.
pub(super) enum Fate {
    Answered(Reply),
    Failed(StoreError),
    /// Nothing: its keys are elsewhere.
    Redirected(Redirect),
}

impl Fate {
    /// What is said to who asked.
    pub(super) fn told(self, errand: Errand) -> Result<Reply, Refused> {
        match self {
            Self::Answered(reply) => Ok(reply),
            Self::Failed(error) => Err(Refused::Failed(error)),
            Self::Redirected(redirect) => Err(Refused::Elsewhere(Box::new((redirect, errand)))),
        }
    }
}

impl Lane {
    /// What becomes of the items of one call.
    pub(super) fn fates(
        &self,
        reply: Result<Value, RedisError>,
        items: &[&Item],
        call: &Call<'_>,
        is_confirmed: bool,
    ) -> Vec<Fate> {
        let taken_apart = match reply {
            Ok(value) => bytes_of(value).and_then(|bytes| self.taken_apart(bytes, items, call, is_confirmed)),
            Err(error) => match Redirect::of(&error) {
                Some(redirect) => {
                    return items.iter().map(|_| Fate::Redirected(redirect.clone())).collect();
                }
                None => Err(StoreError::from_redis(&error)),
            },
        };
        match taken_apart {
            Ok(fates) => fates,
            Err(error) => items.iter().map(|_| Fate::Failed(error.duplicate())).collect(),
        }
    }

    /// The answers to the items of a call. One whose key cannot be read fails alone.
    fn taken_apart(
        &self,
        bytes: Vec<u8>,
        items: &[&Item],
        call: &Call<'_>,
        is_confirmed: bool,
    ) -> Result<Vec<Fate>, StoreError> {
        let (now, answers) = split(&bytes, items.iter().map(|item| item.asked))?;
        if self.clock.is_none() {
            let own = self.own_clock.now().as_micros();
            self.ahead.store(now.as_micros().wrapping_sub(own).cast_signed(), Ordering::Relaxed);
        }
        let mut end = size_of::<f64>();
        let spans: Vec<(usize, usize, Option<&[u8]>)> = answers
            .iter()
            .map(|answer| {
                let start = end;
                end += answer.len();
                let key = unreadable_key(answer).and_then(|number| call.keys.get(number.checked_sub(1)?));
                (start, end, key.copied())
            })
            .collect();
        let bytes = Arc::new(bytes);
        let fate = |(start, end, unreadable): (usize, usize, Option<&[u8]>)| match unreadable {
            Some(key) => Fate::Failed(StoreError::unreadable_at(key)),
            None => Fate::Answered(Reply { bytes: Arc::clone(&bytes), start, end, now, is_confirmed }),
        };
        Ok(spans.into_iter().map(fate).collect())
    }
}
