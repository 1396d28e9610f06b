//! Evaluating the nodes of an expression for one request.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value as Json;

use super::STEPS_MAX;
use super::node::{Comparison, Literal, Node, TextTest};
use super::value::{Evaluated, Fault, Value};
use crate::policy::request::{Body, Request};

/// What a request without a JSON body has instead of one.
static NO_BODY: LazyLock<Json> = LazyLock::new(|| Json::Object(serde_json::Map::new()));

/// One evaluation.
pub(super) struct Run<'e> {
    request: &'e Request<'e>,
    /// How many are left.
    steps: Cell<usize>,
}

/// The variable of a macro, inside of those further out.
pub(super) struct Frame<'f, 'e> {
    pub(super) value: Value<'e>,
    pub(super) outer: Scope<'f, 'e>,
}

pub(super) type Scope<'f, 'e> = Option<&'f Frame<'f, 'e>>;

impl<'e> Run<'e> {
    pub(super) fn new(request: &'e Request<'e>) -> Self {
        Self { request, steps: Cell::new(STEPS_MAX) }
    }

    pub(super) fn charge(&self, steps: usize) -> Evaluated<'e, ()> {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Fault::TooMuch)
    }

    /// Whether a condition holds.
    pub(super) fn condition(&self, node: &'e Node) -> Evaluated<'e, bool> {
        self.truth(node, None, "when")
    }

    /// The value of a node.
    pub(super) fn value(&self, node: &'e Node, scope: Scope<'_, 'e>) -> Evaluated<'e> {
        self.charge(1)?;
        match node {
            Node::Literal(literal) => Ok(Value::of_literal(literal)),
            Node::Fact { fact, name } => {
                self.request.find(fact).map(Value::of_scalar).ok_or(Fault::Missing(name))
            }
            Node::Body | Node::Field { .. } => self.json(node, scope).map(Value::of_json),
            Node::Local(out) => Ok(local(scope, *out).map_or(Value::Null, Value::clone)),
            Node::Index { pair, name } => {
                let (of, index) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
                at_index(&of, &index, "[]")?.ok_or(Fault::Missing(name))
            }
            Node::Negate(of) => self.value(of, scope)?.negated(),
            Node::If(parts) => {
                let chosen = if self.truth(&parts[0], scope, "?:")? { &parts[1] } else { &parts[2] };
                self.value(chosen, scope)
            }
            Node::Arithmetic(arithmetic, pair) => {
                let (a, b) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
                a.calculate(*arithmetic, &b, &mut |steps| self.charge(steps))
            }
            Node::List(nodes) => {
                let values = nodes.iter().map(|node| self.value(node, scope));
                Ok(Value::List(values.collect::<Result<_, _>>()?))
            }
            Node::Size(of) => self.size(of, scope),
            Node::Convert(conversion, of) => self.value(of, scope)?.converted(*conversion),
            Node::Each(each) => self.each(each, scope),
            // The rest is true or false.
            _ => self.truth(node, scope, "").map(Value::Bool),
        }
    }

    /// Whether a node is true. Most nodes of a condition never are anything
    /// else, and need not become values on the way.
    pub(super) fn truth(
        &self,
        node: &'e Node,
        scope: Scope<'_, 'e>,
        operation: &'static str,
    ) -> Evaluated<'e, bool> {
        self.charge(1)?;
        match node {
            Node::HasFact(fact) => Ok(self.request.find(fact).is_some()),
            Node::Has { of, field } => Ok(member(self.json(of, scope)?, field)?.is_some()),
            Node::All(nodes) => self.connected(nodes, scope, false),
            Node::Any(nodes) => self.connected(nodes, scope, true),
            Node::Not(of) => Ok(!self.truth(of, scope, "!")?),
            Node::Compare(comparison, pair) => self.compare(*comparison, pair, scope),
            Node::In(pair) => self.is_in(pair, scope),
            Node::InLiterals(of, literals) => self.is_in_literals(of, literals, scope),
            Node::Text(test, pair) => self.text_test(*test, pair, scope),
            Node::Matches(of, pattern) => self.matches(of, pattern, scope),
            _ => match self.value(node, scope)? {
                Value::Bool(truth) => Ok(truth),
                other => Err(other.operand(operation)),
            },
        }
    }

    /// The text of a node, if that is at hand.
    fn text_of(&self, node: &'e Node) -> Option<&'e str> {
        match node {
            Node::Literal(Literal::Text(text)) => Some(text),
            Node::Fact { fact, .. } => self.request.find_text(fact),
            _ => None,
        }
    }

    fn texts_of(&self, pair: &'e [Node; 2]) -> Option<[&'e str; 2]> {
        Some([self.text_of(&pair[0])?, self.text_of(&pair[1])?])
    }

    /// The JSON that a node stands for, for those who ask for a field of it:
    /// nothing but JSON has fields. On the way down there are no values.
    fn json(&self, node: &'e Node, scope: Scope<'_, 'e>) -> Evaluated<'e, &'e Json> {
        match node {
            Node::Body => match self.request.facts().body() {
                Body::Unread => Err(Fault::BodyUnread),
                Body::Absent => Ok(&NO_BODY),
                Body::Json(body) => Ok(body),
            },
            Node::Field { of, field, name } => {
                self.charge(1)?;
                member(self.json(of, scope)?, field)?.ok_or(Fault::Missing(name))
            }
            _ => match self.value(node, scope)? {
                Value::Json(json) => Ok(json),
                other => Err(other.operand(".")),
            },
        }
    }

    /// `||` if `decisive` is true, `&&` if it is false: one operand with that
    /// value decides, whatever is wrong with the others.
    fn connected(&self, nodes: &'e [Node], scope: Scope<'_, 'e>, decisive: bool) -> Evaluated<'e, bool> {
        let mut first_fault = None;
        for node in nodes {
            match self.truth(node, scope, if decisive { "||" } else { "&&" }) {
                Ok(truth) if truth == decisive => return Ok(decisive),
                Ok(_) => {}
                Err(fault) if fault.is_final() => return Err(fault),
                Err(fault) => first_fault = first_fault.or(Some(fault)),
            }
        }
        first_fault.map_or(Ok(!decisive), Err)
    }

    fn equal(&self, a: &Value<'e>, b: &Value<'e>) -> Evaluated<'e, bool> {
        a.equals(b, 0, &mut |steps| self.charge(steps))
    }

    fn compare(
        &self,
        comparison: Comparison,
        pair: &'e [Node; 2],
        scope: Scope<'_, 'e>,
    ) -> Evaluated<'e, bool> {
        if let Some([a, b]) = self.texts_of(pair)
            && comparison.is_equality()
        {
            return Ok((a == b) == (comparison == Comparison::Equal));
        }
        let (a, b) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
        if comparison.is_equality() {
            return Ok(self.equal(&a, &b)? == (comparison == Comparison::Equal));
        }
        let order = a.order(&b).ok_or_else(|| {
            let comparable =
                matches!(a, Value::Bool(_) | Value::Int(_) | Value::Double(_)) || a.text().is_some();
            if comparable { b.operand(comparison.name()) } else { a.operand(comparison.name()) }
        })?;
        Ok(match comparison {
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            _ => order != Ordering::Less,
        })
    }

    fn is_in(&self, pair: &'e [Node; 2], scope: Scope<'_, 'e>) -> Evaluated<'e, bool> {
        let (value, container) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
        if let Some(length) = container.list_len() {
            for element in (0..length).map_while(|index| container.element(index)) {
                if self.equal(&element, &value)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        match &container {
            Value::Json(Json::Object(_)) => Ok(at_index(&container, &value, "in")?.is_some()),
            _ => Err(container.operand("in")),
        }
    }

    fn size(&self, of: &'e Node, scope: Scope<'_, 'e>) -> Evaluated<'e> {
        let size = match self.value(of, scope)? {
            Value::Json(Json::Object(members)) => members.len(),
            value => match (value.list_len(), value.text()) {
                (Some(length), _) => length,
                (None, Some(text)) => {
                    self.charge(text.len() / 64)?;
                    text.chars().count()
                }
                (None, None) => return Err(value.operand("size")),
            },
        };
        i64::try_from(size).map(Value::Int).map_err(|_| Fault::Overflow("size"))
    }

    fn text_test(&self, test: TextTest, pair: &'e [Node; 2], scope: Scope<'_, 'e>) -> Evaluated<'e, bool> {
        if let Some([text, part]) = self.texts_of(pair) {
            return self.text_has(test, text, part);
        }
        let (a, b) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
        let text = a.text().ok_or_else(|| a.operand(test.name()))?;
        self.text_has(test, text, b.text().ok_or_else(|| b.operand(test.name()))?)
    }

    fn text_has(&self, test: TextTest, text: &str, part: &str) -> Evaluated<'e, bool> {
        match test {
            TextTest::StartsWith => Ok(text.starts_with(part)),
            TextTest::EndsWith => Ok(text.ends_with(part)),
            TextTest::Contains => {
                self.charge((text.len() + part.len()) / 64)?;
                Ok(text.contains(part))
            }
        }
    }

    fn matches(&self, of: &'e Node, pattern: &Regex, scope: Scope<'_, 'e>) -> Evaluated<'e, bool> {
        let value = self.value(of, scope)?;
        let text = value.text().ok_or_else(|| value.operand("matches"))?;
        self.charge(text.len() / 64)?;
        Ok(pattern.is_match(text))
    }

    fn is_in_literals(
        &self,
        of: &'e Node,
        literals: &'e [Literal],
        scope: Scope<'_, 'e>,
    ) -> Evaluated<'e, bool> {
        let value = self.value(of, scope)?;
        self.charge(literals.len())?;
        // Literals are scalars, which are equal if neither comes first.
        let equal = |literal: &'e Literal| match (&value, literal) {
            (Value::Null, Literal::Null) => true,
            (value, literal) => value.order(&Value::of_literal(literal)) == Some(Ordering::Equal),
        };
        Ok(literals.iter().any(equal))
    }
}

/// The variable of a macro; compiling has counted them, so it is there.
fn local<'f, 'e>(scope: Scope<'f, 'e>, out: usize) -> Option<&'f Value<'e>> {
    let mut frames = std::iter::successors(scope, |frame| frame.outer);
    frames.nth(out).map(|frame| &frame.value)
}

/// A member of an object; only objects have any.
fn member<'e>(of: &'e Json, name: &str) -> Evaluated<'e, Option<&'e Json>> {
    match of {
        Json::Object(members) => Ok(members.get(name)),
        _ => Err(Value::of_json(of).operand(".")),
    }
}

fn at_index<'e>(
    of: &Value<'e>,
    index: &Value<'e>,
    operation: &'static str,
) -> Evaluated<'e, Option<Value<'e>>> {
    match (of, index) {
        (Value::Json(Json::Object(members)), _) => match (index, index.text()) {
            (_, Some(name)) => Ok(members.get(name).map(Value::of_json)),
            (Value::Bool(_) | Value::Int(_) | Value::Double(_), _) => Ok(None),
            _ => Err(index.operand(operation)),
        },
        _ if of.list_len().is_none() => Err(of.operand(operation)),
        (_, Value::Int(index)) => Ok(usize::try_from(*index).ok().and_then(|index| of.element(index))),
        // A double that is whole is as good an index as an int.
        (_, Value::Double(number)) if number.fract() == 0.0 && number.abs() < i64::MAX as f64 => {
            Ok(usize::try_from(*number as i64).ok().and_then(|index| of.element(index)))
        }
        _ => Err(index.operand(operation)),
    }
}
