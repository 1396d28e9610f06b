//! A request as the rules see it: the keys that were found in it.
//!
//! Key functions run in the thread that asks, before anything else. What the library
//! gets knows nothing of Python any more, and can be handed to any thread.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};
use ratekeeper::{Decision, Demand, InvalidInput, Mode};

use super::Limiter;
use super::rule::KeyOf;
use crate::arguments::{Id, cost_of, mode as mode_of, type_name};
use crate::error::Failure;

/// What is asked of a limiter.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(super) limiter: u64,
    cost: u64,
    keys: Keys,
    /// In a box, because few have one.
    owner: Option<Box<Owner>>,
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Keys {
    /// The same for every rule.
    Same(Box<str>),
    /// One for each rule that applies.
    Each(Box<[Option<Box<str>>]>),
}

/// Whose overrides apply.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    organisation: String,
    project: Option<String>,
    endpoint: Option<String>,
}

impl Owner {
    pub(super) fn new(
        organisation: Option<Id>,
        project: Option<Id>,
        endpoint: Option<String>,
    ) -> PyResult<Option<Self>> {
        match organisation {
            Some(organisation) => {
                Ok(Some(Self { organisation: organisation.0, project: project.map(|id| id.0), endpoint }))
            }
            None if project.is_none() && endpoint.is_none() => Ok(None),
            None => {
                let message = "organisation: got none; expected one with a project or an endpoint";
                Err(Failure::Input(message.to_owned()).into())
            }
        }
    }
}

/// How it is asked.
pub(super) struct Terms<'a> {
    pub(super) cost: i64,
    pub(super) owner: Option<Owner>,
    pub(super) mode: Option<&'a str>,
}

impl Asked {
    /// The key of the rule at `index`, if it applies.
    pub(super) fn key(&self, index: usize) -> Option<Cow<'_, str>> {
        match &self.keys {
            Keys::Same(key) => Some(Cow::Borrowed(key)),
            Keys::Each(keys) => keys.get(index)?.as_deref().map(Cow::Borrowed),
        }
    }

    pub(super) fn owner(&self) -> Option<ratekeeper::Owner<'_>> {
        self.owner.as_ref().map(|owner| ratekeeper::Owner {
            organisation: Cow::Borrowed(&owner.organisation),
            project: owner.project.as_deref().map(Cow::Borrowed),
            endpoint: owner.endpoint.as_deref().map(Cow::Borrowed),
        })
    }

    /// What the rules of a limiter make of it.
    #[inline]
    pub(super) fn demand<'a>(&'a self, limiter: &'a ratekeeper::Limiter<Asked>) -> Demand<'a> {
        limiter.demand(self).cost(self.cost)
    }

    /// Decides on it in memory.
    #[inline]
    pub(super) fn check_into(
        &self,
        limiter: &ratekeeper::Limiter<Asked>,
        decision: &mut Decision,
    ) -> Result<(), InvalidInput> {
        limiter.check_cost_into(self, self.cost, decision)
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }
}

impl Limiter {
    /// Looks for the keys of a request.
    pub(super) fn asked(&self, request: Option<&Bound<'_, PyAny>>, terms: Terms<'_>) -> PyResult<Asked> {
        let mode = terms.mode.map_or(Ok(Mode::On), mode_of)?;
        let keys = match request.map(|request| request.cast::<PyString>()) {
            Some(Ok(key)) if !self.has_functions => Keys::Same(key.to_str()?.into()),
            _ => Keys::Each(self.each(request)?),
        };
        Ok(Asked {
            limiter: self.id,
            cost: cost_of("cost", terms.cost)?,
            keys,
            owner: terms.owner.map(Box::new),
            mode,
        })
    }

    /// The key of Application Kit for a project on an endpoint.
    pub(super) fn asked_of_project(
        &self,
        endpoint: String,
        organisation: Id,
        project: Id,
        cost: i64,
        mode: Option<&str>,
    ) -> PyResult<Asked> {
        let key = format!("{endpoint}:{}:{}", organisation.0, project.0);
        let owner =
            Owner { organisation: organisation.0, project: Some(project.0), endpoint: Some(endpoint) };
        Ok(Asked {
            limiter: self.id,
            cost: cost_of("cost", cost)?,
            keys: Keys::Same(key.into()),
            owner: Some(Box::new(owner)),
            mode: mode.map_or(Ok(Mode::On), mode_of)?,
        })
    }

    #[cold]
    fn each(&self, request: Option<&Bound<'_, PyAny>>) -> PyResult<Box<[Option<Box<str>>]>> {
        let mapping = request.and_then(|request| request.cast::<PyMapping>().ok());
        let mut named = 0;
        let keys = self.rules.iter().map(|rule| {
            let rule = rule.get();
            let found = match (&rule.key, request) {
                (KeyOf::Everyone, _) => return Ok(None),
                (KeyOf::Function(function), Some(request)) => {
                    function.bind(request.py()).call1((request,))?
                }
                (KeyOf::Asked, Some(request)) if request.is_instance_of::<PyString>() => request.clone(),
                (_, got) => {
                    let Some(mapping) = mapping else { return Err(no_key(&rule.name, got)) };
                    if !mapping.contains(&rule.name)? {
                        return Ok(None);
                    }
                    named += 1;
                    mapping.get_item(&rule.name)?
                }
            };
            if found.is_none() {
                return Ok(None);
            }
            match found.cast::<PyString>() {
                Ok(key) => Ok(Some(Box::from(key.to_str()?))),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "the key of rule `{}`: expected str or None, got {}",
                    rule.name,
                    type_name(&found)
                ))),
            }
        });
        let keys = keys.collect::<PyResult<_>>()?;
        // A rule that is misspelt would not be limited at all.
        if let Some(mapping) = mapping
            && !self.has_functions
            && named < mapping.len()?
        {
            return Err(self.unknown_rule(mapping)?);
        }
        Ok(keys)
    }

    fn unknown_rule(&self, mapping: &Bound<'_, PyMapping>) -> PyResult<PyErr> {
        let names: Vec<&str> = self.rules.iter().map(|rule| rule.get().name.as_str()).collect();
        let got = mapping.keys()?.iter().map(|key| key.to_string());
        let unknown: Vec<String> = got.filter(|key| !names.contains(&key.as_str())).collect();
        let message = format!("request: got keys for {unknown:?}; expected some of {names:?}");
        Ok(Failure::Input(message).into())
    }
}

fn no_key(rule: &str, got: Option<&Bound<'_, PyAny>>) -> PyErr {
    let got = got.map_or_else(|| "nothing".to_owned(), type_name);
    PyTypeError::new_err(format!(
        "request: got {got}; rule `{rule}` has no key function, so expected its key (str) or a mapping of keys"
    ))
}
