//! Expressions in CEL, the Common Expression Language: `when` a rule applies,
//! and what a request costs.
//!
//! The text is parsed by the `cel` crate and compiled once into nodes of our
//! own. Building the crate's context for every check would cost more than the
//! whole decision, and its interpreter has no bound on the work that a request
//! can cause; so what the nodes do not cover is refused when the policy is
//! read, with a message that lists what there is. What they cover means what
//! it means in CEL: tests compare every kind of expression with the crate's
//! interpreter.
//!
//! # What expressions see
//! `method`, `path`, `route`, `query.NAME`, `header.NAME` or
//! `header["x-api-key"]`, `cookie.NAME`, `client.ip`, `client.address` and
//! `identity.NAME` are single values, text unless a claim is a number or a bool. Of a proxy's descriptor,
//! `descriptor.KEY` is the value of an entry and `descriptor_keys` the keys of all.
//! `body` is the JSON body; a request without one has an empty object. A JSON
//! number is an int if its value is whole, however it is written, and a double
//! otherwise.
//!
//! # What there is
//! See [`compile::SUPPORTED`]: literals, lists, fields and indices, `has()`,
//! all operators, `size()`, `startsWith()`, `endsWith()`, `contains()`,
//! `matches()` with a fixed pattern, `int()`, `double()`, and the macros `all`,
//! `exists`, `exists_one`, `filter` and `map`.
//!
//! # What is absent
//! What a request does not have is null: `==` and `!=` work on it, `<`, `<=`, `>` and `>=` are false, its fields
//! and elements are absent too, and so is what `size()`, `int()`, `double()` and arithmetic make of it alone. To
//! anything else (`startsWith()`, `exists()`, `!`) it is an error that names it.
//!
//! # Errors
//! As in CEL, `false && error` is false and `true || error` is true, on
//! either side. Overflow is an error; nothing wraps around. A body that cannot be read is
//! an error, not an absence.
//!
//! # Work
//! All expressions that look at one request share its budget of steps. Whoever is beyond it is beyond
//! it for good, and nothing hides that.

#[cfg(feature = "policy")]
mod compile;
#[cfg(not(feature = "policy"))]
#[path = "expression/no_compile.rs"]
mod compile;
mod each;
mod endpoint;
mod evaluate;
mod node;
#[cfg(feature = "policy")]
mod pattern;
#[cfg(not(feature = "policy"))]
#[path = "expression/no_pattern.rs"]
mod pattern;
mod requires;
#[cfg(test)]
#[cfg(feature = "policy")]
mod tests;
mod value;

use super::request::{Needs, Request};
use super::syntax::SyntaxError;
use compile::Compiled;
use evaluate::Run;
use node::Kind;
pub use requires::{Paths, Requires};
use value::{Fault, Value};

/// The longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4_096;
/// How deep an expression may be nested.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// How much work all conditions and costs may be for one request, unless a policy says otherwise: nodes visited,
/// elements compared, text looked at in pieces. A step takes up to 20 ns, so this is one millisecond.
pub const STEPS_DEFAULT: u32 = 50_000;
/// The least that a policy may say.
pub const STEPS_MIN: u32 = 1_000;
/// The most that a policy may say.
pub const STEPS_MAX: u32 = 1_000_000;
/// The highest cost of a request.
pub const COST_MAX: u32 = ratekeeper_core::LIMIT_MAX;

/// What a request costs that does not say so.
const COST_ABSENT: u32 = 1;

/// Whether a rule applies to a request.
///
/// ```
/// use ratekeeper::policy::{Addresses, Condition, Request, RequestFacts};
///
/// let paid = Condition::parse(r#"method == "POST" && identity.plan != "free""#)?;
/// let facts = RequestFacts::new("POST", "/").claim("plan", "gold");
/// assert!(paid.evaluate(&Request::new(&facts, &Addresses::default()))?);
///
/// let unknown = RequestFacts::new("POST", "/");
/// assert!(paid.evaluate(&Request::new(&unknown, &Addresses::default()))?, "absent is null");
///
/// let starts = Condition::parse(r#"identity.plan.startsWith("g")"#)?;
/// let error = starts.evaluate(&Request::new(&unknown, &Addresses::default())).unwrap_err();
/// assert_eq!(error.to_string(), "`identity.plan` is missing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    compiled: Compiled,
    requires: Requires,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// If it is no CEL, uses what is not supported, or cannot be true or false.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let compiled = Compiled::new(text)?;
        compiled.must_be(Kind::Bool, "a condition, such as `method == \"POST\"`")?;
        let requires = Requires::of(&compiled.root);
        Ok(Self { compiled, requires })
    }

    /// Whether it holds for a request.
    ///
    /// # Errors
    /// If it cannot be told, because a field is missing or a value is of the
    /// wrong kind. Such a condition applies its rule, unless the rule says otherwise.
    pub fn evaluate(&self, request: &Request<'_>) -> Result<bool, EvaluationError> {
        Ok(Run::new(request).condition(&self.compiled.root)?)
    }

    /// What must be obtained before it can be evaluated.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.compiled.needs
    }

    /// What it requires of a request, as far as that can be told without
    /// evaluating it.
    #[must_use]
    pub fn requires(&self) -> &Requires {
        &self.requires
    }

    /// Whether it holds for every request of a method to a route such as
    /// `/datasets/{id}/search`, or for none; `None` if that depends on the request.
    #[must_use]
    pub fn for_endpoint(&self, method: &str, route: &str) -> Option<bool> {
        endpoint::Endpoint::new(method, route).decides(&self.compiled.root)
    }

    /// The text it was read from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.compiled.text
    }
}

/// What a request costs: a whole number from 0 to 10^9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    compiled: Compiled,
    fixed: Option<u32>,
}

impl Cost {
    /// Reads a cost: a number, or an expression such as
    /// `size(body.origins) * size(body.destinations)`.
    ///
    /// # Errors
    /// If it is no CEL, uses what is not supported, or cannot be a cost.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let compiled = Compiled::new(text)?;
        let expected = "a cost: a whole number from 0 to 1000000000, such as `size(body.items)`";
        compiled.must_be(Kind::Int, expected)?;
        let fixed = compiled.fixed_cost(expected)?;
        Ok(Self { compiled, fixed })
    }

    /// What a request costs; 1 if that is absent or null.
    ///
    /// # Errors
    /// If it cannot be told, or is no whole number from 0 to [`COST_MAX`].
    pub fn evaluate(&self, request: &Request<'_>) -> Result<u32, EvaluationError> {
        if let Some(fixed) = self.fixed {
            return Ok(fixed);
        }
        match Run::new(request).value(&self.compiled.root, None)? {
            Value::Int(cost) => u32::try_from(cost)
                .ok()
                .filter(|cost| *cost <= COST_MAX)
                .ok_or(EvaluationError::CostOutOfRange { found: cost }),
            absent if absent.is_null() => Ok(COST_ABSENT),
            other => Err(EvaluationError::Cost { found: other.kind() }),
        }
    }

    /// The cost, if it is the same for every request.
    #[must_use]
    pub fn fixed(&self) -> Option<u32> {
        self.fixed
    }

    /// What must be obtained before it can be evaluated.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.compiled.needs
    }

    /// The text it was read from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.compiled.text
    }
}

/// Why an expression has no value for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The request does not have that field.
    #[error("`{field}` is missing")]
    Missing {
        /// The field, as the expression names it.
        field: String,
    },
    /// The program did not read the body, although the policy needs it.
    #[error("the body was not read")]
    BodyUnread,
    /// The body is no JSON that can be read, or was not whole.
    #[error("the body cannot be read")]
    BodyUnreadable,
    /// An operation met a value that it cannot take.
    #[error("`{operation}` cannot take {found}")]
    Operand {
        /// The operator or function.
        operation: &'static str,
        /// What it met.
        found: &'static str,
    },
    /// A number does not fit into 64 bits.
    #[error("`{operation}` overflows")]
    Overflow {
        /// The operator or function.
        operation: &'static str,
    },
    /// A division by zero.
    #[error("`{operation}` by zero")]
    DivisionByZero {
        /// The operator.
        operation: &'static str,
    },
    /// A text that `int()` or `double()` cannot read.
    #[error("`{operation}` cannot read the text as a number")]
    Conversion {
        /// The function.
        operation: &'static str,
    },
    /// A text grew too long, or values that are compared are nested too deep.
    #[error("{what} that is too large")]
    TooLarge {
        /// What it is.
        what: &'static str,
    },
    /// All conditions and costs together were more work than the request's budget of steps.
    #[error("more steps of work than the budget of the request")]
    TooMuch,
    /// A cost came out as something that is no number.
    #[error("the cost is {found}, not a whole number from 0 to {COST_MAX}")]
    Cost {
        /// What it came out as.
        found: &'static str,
    },
    /// A cost came out as a number that is no cost.
    #[error("the cost is {found}, not a whole number from 0 to {COST_MAX}")]
    CostOutOfRange {
        /// What it came out as.
        found: i64,
    },
}

impl EvaluationError {
    /// Whether there was more to count than can be counted.
    pub(super) fn is_beyond(&self) -> bool {
        match self {
            Self::Overflow { .. } => true,
            Self::CostOutOfRange { found } => *found > COST_MAX.into(),
            _ => false,
        }
    }
}

impl From<Fault<'_>> for EvaluationError {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::Missing(field) => Self::Missing { field: field.to_owned() },
            Fault::BodyUnread => Self::BodyUnread,
            Fault::BodyUnreadable => Self::BodyUnreadable,
            Fault::Operand { operation, found } => Self::Operand { operation, found },
            Fault::Overflow(operation) => Self::Overflow { operation },
            Fault::DivisionByZero(operation) => Self::DivisionByZero { operation },
            Fault::Conversion(operation) => Self::Conversion { operation },
            Fault::TooLarge(what) => Self::TooLarge { what },
            Fault::TooMuch => Self::TooMuch,
        }
    }
}
