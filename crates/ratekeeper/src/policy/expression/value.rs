//! Values, and what operators do with them.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value as Json;

use super::node::{Arithmetic, Conversion, Literal};
use crate::policy::request::Scalar;

/// The longest text that an expression can make, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// How deep values are compared.
const DEPTH_MAX: u32 = 128;
/// How much text is copied or compared in the time of one step.
pub(super) const BYTES_PER_STEP: usize = 64;

const TOO_DEEP: Fault<'static> = Fault::TooLarge("a nesting");

/// A value while an expression is evaluated, borrowed as far as possible.
#[derive(Clone, Debug)]
// With the tag in a word of its own, values are copied in whole words; it halves
// the time of an evaluation.
#[repr(u64)]
pub(super) enum Value<'e> {
    Null,
    /// What the request does not have, under the name that the expression has for it: null to
    /// comparisons, and an error that names it to whatever asks for more.
    Absent(&'e str),
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(&'e str),
    /// A text that the evaluation made.
    Made(Rc<str>),
    /// An array or an object.
    Json(&'e Json),
    List(Rc<[Value<'e>]>),
}

/// Why there is no value. Small and borrowed, because `&&` and `||` may yet
/// throw it away.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault<'e> {
    Missing(&'e str),
    BodyUnread,
    BodyUnreadable,
    Operand {
        operation: &'static str,
        found: &'static str,
    },
    Overflow(&'static str),
    DivisionByZero(&'static str),
    Conversion(&'static str),
    /// A text or a nesting beyond its bound.
    TooLarge(&'static str),
    /// The request's budget is spent.
    TooMuch,
}

impl Fault<'_> {
    /// Whether it is no matter of the request, so that nothing may hide it.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Fault::BodyUnread | Fault::TooMuch)
    }
}

pub(super) type Evaluated<'e, T = Value<'e>> = Result<T, Fault<'e>>;

impl<'e> Value<'e> {
    pub(super) fn of_literal(literal: &'e Literal) -> Self {
        match literal {
            Literal::Null => Value::Null,
            Literal::Bool(truth) => Value::Bool(*truth),
            Literal::Int(number) => Value::Int(*number),
            Literal::Double(number) => Value::Double(*number),
            Literal::Text(text) => Value::Text(text),
        }
    }

    pub(super) fn of_json(json: &'e Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => Scalar::of_number(number).map_or(Value::Null, Self::of_scalar),
            Json::String(text) => Value::Text(text),
            Json::Array(_) | Json::Object(_) => Value::Json(json),
        }
    }

    pub(super) fn of_scalar(scalar: Scalar<'e>) -> Self {
        use std::borrow::Cow;
        match scalar {
            Scalar::Text(Cow::Borrowed(text)) => Value::Text(text),
            Scalar::Text(Cow::Owned(text)) => Value::Made(text.into()),
            Scalar::Integer(number) => Value::Int(number),
            Scalar::Large(number) => Value::Double(number as f64),
            Scalar::Float(number) => Value::Double(number),
            Scalar::Bool(truth) => Value::Bool(truth),
        }
    }

    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null | Value::Absent(_) => "null",
            Value::Bool(_) => "true or false",
            Value::Int(_) => "a whole number",
            Value::Double(_) => "a number with decimals",
            Value::Text(_) | Value::Made(_) => "text",
            Value::Json(Json::Object(_)) => "an object",
            Value::Json(_) | Value::List(_) => "a list",
        }
    }

    /// Whether it is null, or not there at all.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::Absent(_))
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Made(text) => Some(text),
            _ => None,
        }
    }

    /// How many elements a list has.
    pub(super) fn list_len(&self) -> Option<usize> {
        match self {
            Value::Json(Json::Array(items)) => Some(items.len()),
            Value::List(items) => Some(items.len()),
            _ => None,
        }
    }

    /// An element of a list.
    pub(super) fn element(&self, index: usize) -> Option<Value<'e>> {
        match self {
            Value::Json(Json::Array(items)) => items.get(index).map(Value::of_json),
            Value::List(items) => items.get(index).cloned(),
            _ => None,
        }
    }

    pub(super) fn operand(&self, operation: &'static str) -> Fault<'e> {
        match self {
            Value::Absent(name) => Fault::Missing(name),
            _ => Fault::Operand { operation, found: self.kind() },
        }
    }

    /// Whether two values are the same; of different kinds they are not, but
    /// numbers are compared as numbers. `charge` is told of every step.
    pub(super) fn equals(
        &self,
        other: &Value<'e>,
        depth: u32,
        charge: &mut dyn FnMut(usize) -> Evaluated<'e, ()>,
    ) -> Evaluated<'e, bool> {
        charge(1)?;
        if let (Some(length), Some(other_length)) = (self.list_len(), other.list_len()) {
            if depth >= DEPTH_MAX {
                return Err(TOO_DEEP);
            }
            let pairs = (0..length).map_while(|index| Some((self.element(index)?, other.element(index)?)));
            for (element, other) in pairs.take(if length == other_length { length } else { 0 }) {
                if !element.equals(&other, depth + 1, charge)? {
                    return Ok(false);
                }
            }
            return Ok(length == other_length);
        }
        Ok(match (self, other) {
            (a, b) if a.is_null() => b.is_null(),
            (Value::Json(Json::Object(members)), Value::Json(Json::Object(others))) => {
                if members.len() != others.len() || depth >= DEPTH_MAX {
                    return if depth >= DEPTH_MAX { Err(TOO_DEEP) } else { Ok(false) };
                }
                for (name, member) in members {
                    charge(name.len() / BYTES_PER_STEP)?;
                    let Some(other) = others.get(name) else { return Ok(false) };
                    if !Value::of_json(member).equals(&Value::of_json(other), depth + 1, charge)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => {
                if let (Some(a), Some(b)) = (self.text(), other.text()) {
                    charge(a.len().min(b.len()) / BYTES_PER_STEP)?;
                }
                self.order(other) == Some(Ordering::Equal)
            }
        })
    }

    /// Which of two comes first; `None` if they cannot be compared.
    pub(super) fn order(&self, other: &Value<'e>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            // As the `cel` crate does it: beyond 2^53 the nearest double counts.
            (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
            (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
            _ => Some(self.text()?.cmp(other.text()?)),
        }
    }

    pub(super) fn calculate(
        &self,
        arithmetic: Arithmetic,
        other: &Value<'e>,
        charge: &mut dyn FnMut(usize) -> Evaluated<'e, ()>,
    ) -> Evaluated<'e> {
        let name = arithmetic.name();
        match (self, other) {
            (Value::Absent(_), _) => Err(self.operand(name)),
            (_, Value::Absent(_)) => Err(other.operand(name)),
            (Value::Int(a), Value::Int(b)) => whole(arithmetic, *a, *b).map(Value::Int),
            (Value::Double(a), Value::Double(b)) => match arithmetic {
                Arithmetic::Add => Ok(Value::Double(a + b)),
                Arithmetic::Subtract => Ok(Value::Double(a - b)),
                Arithmetic::Multiply => Ok(Value::Double(a * b)),
                Arithmetic::Divide => Ok(Value::Double(a / b)),
                Arithmetic::Remainder => Err(self.operand(name)),
            },
            _ if arithmetic == Arithmetic::Add => self.join(other, charge),
            (Value::Int(_) | Value::Double(_), _) => Err(other.operand(name)),
            _ => Err(self.operand(name)),
        }
    }

    fn join(&self, other: &Value<'e>, charge: &mut dyn FnMut(usize) -> Evaluated<'e, ()>) -> Evaluated<'e> {
        if let (Some(a), Some(b)) = (self.text(), other.text()) {
            let length = a.len() + b.len();
            charge(length / BYTES_PER_STEP)?;
            if length > TEXT_BYTES_MAX {
                return Err(Fault::TooLarge("a text"));
            }
            return Ok(Value::Made([a, b].concat().into()));
        }
        let (Some(a), Some(b)) = (self.list_len(), other.list_len()) else {
            let first_fits = self.text().is_some() || self.list_len().is_some();
            let number = matches!(self, Value::Int(_) | Value::Double(_));
            return Err(if first_fits || number { other.operand("+") } else { self.operand("+") });
        };
        charge(a + b)?;
        let elements = (0..a).map_while(|index| self.element(index));
        let others = (0..b).map_while(|index| other.element(index));
        Ok(Value::List(elements.chain(others).collect()))
    }

    pub(super) fn negated(&self) -> Evaluated<'e> {
        match self {
            Value::Int(number) => number.checked_neg().map(Value::Int).ok_or(Fault::Overflow("-")),
            Value::Double(number) => Ok(Value::Double(-number)),
            // Nothing is made of what is not there.
            _ if self.is_null() => Ok(self.clone()),
            _ => Err(self.operand("-")),
        }
    }

    pub(super) fn converted(&self, conversion: Conversion) -> Evaluated<'e> {
        let name = conversion.name();
        let unreadable = Fault::Conversion(name);
        match (conversion, self) {
            (Conversion::Int, Value::Int(number)) => Ok(Value::Int(*number)),
            (Conversion::Int, Value::Double(number)) => {
                // Both ends are out, as in cel-go; NaN is never within.
                let fits = *number > i64::MIN as f64 && *number < i64::MAX as f64;
                if fits { Ok(Value::Int(*number as i64)) } else { Err(Fault::Overflow(name)) }
            }
            _ if self.is_null() => Ok(self.clone()),
            (Conversion::Double, Value::Double(number)) => Ok(Value::Double(*number)),
            (Conversion::Double, Value::Int(number)) => Ok(Value::Double(*number as f64)),
            (conversion, value) => {
                let text = value.text().ok_or_else(|| value.operand(name))?;
                match conversion {
                    Conversion::Int => text.parse().map(Value::Int).map_err(|_| unreadable),
                    Conversion::Double => text.parse().map(Value::Double).map_err(|_| unreadable),
                }
            }
        }
    }
}

fn whole<'e>(arithmetic: Arithmetic, a: i64, b: i64) -> Evaluated<'e, i64> {
    let name = arithmetic.name();
    let divides = matches!(arithmetic, Arithmetic::Divide | Arithmetic::Remainder);
    if divides && b == 0 {
        return Err(Fault::DivisionByZero(name));
    }
    let result = match arithmetic {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Divide => a.checked_div(b),
        Arithmetic::Remainder => a.checked_rem(b),
    };
    result.ok_or(Fault::Overflow(name))
}
