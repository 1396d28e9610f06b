//! Evaluating the nodes of an expression for one request.

use std::cmp::Ordering;
use std::sync::LazyLock;

use serde_json::Value as Json;

use super::node::{Comparison, Literal, Node, TextTest};
use super::pattern::Pattern;
use super::value::{BYTES_PER_STEP, Evaluated, Fault, Value};
use crate::policy::request::{Body, COOKIE_LINES_MAX, Descriptor, Fact, Request, Scalar};

/// How much text is searched, or looked through for a parameter, in the time of one step.
pub(super) const SEARCHED_PER_STEP: usize = 16;
/// How many header lines are looked at in the time of one step.
const LINES_PER_STEP: usize = 8;

/// What a request without a JSON body has instead of one.
static NO_BODY: LazyLock<Json> = LazyLock::new(|| Json::Object(serde_json::Map::new()));

/// One evaluation. Its steps are those of the request: all expressions that look at it share them.
pub(super) struct Run<'e> {
    request: &'e Request<'e>,
}

/// The JSON of a node, or the name of what is absent.
type Found<'e> = Result<&'e Json, &'e str>;

/// The variable of a macro, inside of those further out.
pub(super) struct Frame<'f, 'e> {
    pub(super) value: Value<'e>,
    pub(super) outer: Scope<'f, 'e>,
}

pub(super) type Scope<'f, 'e> = Option<&'f Frame<'f, 'e>>;

impl<'e> Run<'e> {
    pub(super) fn new(request: &'e Request<'e>) -> Self {
        Self { request }
    }

    #[inline]
    pub(super) fn charge(&self, steps: usize) -> Evaluated<'e, ()> {
        if self.request.spend(steps) { Ok(()) } else { Err(Fault::TooMuch) }
    }

    /// Charges what it takes to find a fact that has to be looked for.
    #[inline]
    fn charge_for(&self, fact: &Fact) -> Evaluated<'e, ()> {
        let facts = self.request.facts();
        match fact {
            Fact::Query(_) => self.charge(facts.query_string().map_or(0, str::len) / SEARCHED_PER_STEP),
            Fact::Header(_) => self.charge(facts.header_lines() / LINES_PER_STEP),
            Fact::Cookie(_) => self.charge_for_cookies(),
            Fact::Descriptor(_) => {
                self.charge(facts.descriptor().map_or(0, Descriptor::len) / LINES_PER_STEP)
            }
            _ => Ok(()),
        }
    }

    /// All cookies are looked through, and to find a line, those behind it.
    #[cold]
    fn charge_for_cookies(&self) -> Evaluated<'e, ()> {
        let facts = self.request.facts();
        for back in 0..COOKIE_LINES_MAX {
            self.charge((facts.header_lines() + back) / LINES_PER_STEP)?;
            let Some(line) = facts.header_from_end("cookie", back) else { break };
            self.charge(line.len() / SEARCHED_PER_STEP)?;
        }
        Ok(())
    }

    /// Charges what it takes to read a text once, or to compare it.
    #[inline]
    fn charge_for_text(&self, bytes: usize) -> Evaluated<'e, ()> {
        self.charge(bytes / BYTES_PER_STEP)
    }

    /// The value of a fact.
    #[inline]
    fn fact(&self, fact: &'e Fact) -> Evaluated<'e, Option<Scalar<'e>>> {
        self.charge_for(fact)?;
        let found = self.request.find(fact);
        if let Some(Scalar::Text(text)) = &found {
            self.charge_for_text(text.len())?;
        }
        Ok(found)
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
            Node::Fact { fact, name } => Ok(self.fact(fact)?.map_or(Value::Absent(name), Value::of_scalar)),
            Node::Body | Node::Field { .. } => {
                Ok(self.json(node, scope)?.map_or_else(Value::Absent, Value::of_json))
            }
            Node::Local(out) => Ok(local(scope, *out).map_or(Value::Null, Value::clone)),
            Node::Index { pair, name } => {
                let (of, index) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
                self.charge(index.text().map_or(0, str::len) / SEARCHED_PER_STEP)?;
                Ok(at_index(&of, &index, "[]")?.unwrap_or(Value::Absent(name)))
            }
            Node::Negate(of) => self.value(of, scope)?.negated(),
            Node::If(parts) => {
                let chosen = if self.truth(&parts[0], scope, "?:")? { &parts[1] } else { &parts[2] };
                self.value(chosen, scope)
            }
            Node::Arithmetic(arithmetic, pair) => {
                let (a, b) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
                if let Some(absent) = neither(pair, &a, &b) {
                    return Ok(absent);
                }
                a.calculate(*arithmetic, &b, &mut |steps| self.charge(steps))
            }
            Node::List(nodes) => {
                let values = nodes.iter().map(|node| self.value(node, scope));
                Ok(Value::List(values.collect::<Result<_, _>>()?))
            }
            Node::Size(of) => self.size(of, scope),
            Node::Convert(conversion, of) => {
                let value = self.value(of, scope)?;
                self.charge(value.text().map_or(0, str::len) / SEARCHED_PER_STEP)?;
                value.converted(*conversion)
            }
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
            Node::HasFact(fact) => Ok(self.fact(fact)?.is_some()),
            Node::Has { of, field } => match self.json(of, scope)? {
                Ok(json) => Ok(member(json, field)?.is_some()),
                Err(_) => Ok(false),
            },
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
    fn text_of(&self, node: &'e Node) -> Evaluated<'e, Option<&'e str>> {
        let Node::Fact { fact, .. } = node else {
            let Node::Literal(Literal::Text(text)) = node else { return Ok(None) };
            return Ok(Some(text));
        };
        self.charge_for(fact)?;
        let text = self.request.find_text(fact);
        self.charge_for_text(text.map_or(0, str::len))?;
        Ok(text)
    }

    fn texts_of(&self, pair: &'e [Node; 2]) -> Evaluated<'e, Option<[&'e str; 2]>> {
        let Some(first) = self.text_of(&pair[0])? else { return Ok(None) };
        Ok(self.text_of(&pair[1])?.map(|second| [first, second]))
    }

    /// The JSON that a node stands for, for those who ask for a field of it:
    /// nothing but JSON has fields. On the way down there are no values. What is absent
    /// has no fields either: they are as absent as it is.
    fn json(&self, node: &'e Node, scope: Scope<'_, 'e>) -> Evaluated<'e, Found<'e>> {
        match node {
            Node::Body => match self.request.facts().body() {
                Body::Unread => Err(Fault::BodyUnread),
                Body::Unreadable => Err(Fault::BodyUnreadable),
                Body::Absent => Ok(Ok(&NO_BODY)),
                Body::Json(body) => Ok(Ok(body)),
            },
            Node::Field { of, field, name } => {
                self.charge(1)?;
                match self.json(of, scope)? {
                    Ok(json) => Ok(member(json, field)?.ok_or(name)),
                    Err(absent) => Ok(Err(absent)),
                }
            }
            _ => match self.value(node, scope)? {
                Value::Json(json) => Ok(Ok(json)),
                Value::Absent(name) => Ok(Err(name)),
                Value::Null => Ok(Err("null")),
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
        if comparison.is_equality()
            && let Some([a, b]) = self.texts_of(pair)?
        {
            return Ok((a == b) == (comparison == Comparison::Equal));
        }
        let (a, b) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
        if comparison.is_equality() {
            return Ok(self.equal(&a, &b)? == (comparison == Comparison::Equal));
        }
        if a.is_null() || b.is_null() {
            return Ok(false);
        }
        if let (Some(a), Some(b)) = (a.text(), b.text()) {
            self.charge_for_text(a.len().min(b.len()))?;
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
            Value::Json(Json::Object(_)) => {
                self.charge(value.text().map_or(0, str::len) / SEARCHED_PER_STEP)?;
                Ok(at_index(&container, &value, "in")?.is_some())
            }
            _ => Err(container.operand("in")),
        }
    }

    fn size(&self, of: &'e Node, scope: Scope<'_, 'e>) -> Evaluated<'e> {
        let size = match self.value(of, scope)? {
            value if value.is_null() => return Ok(value),
            Value::Json(Json::Object(members)) => members.len(),
            value => match (value.list_len(), value.text()) {
                (Some(length), _) => length,
                (None, Some(text)) => {
                    self.charge_for_text(text.len())?;
                    text.chars().count()
                }
                (None, None) => return Err(value.operand("size")),
            },
        };
        i64::try_from(size).map(Value::Int).map_err(|_| Fault::Overflow("size"))
    }

    fn text_test(&self, test: TextTest, pair: &'e [Node; 2], scope: Scope<'_, 'e>) -> Evaluated<'e, bool> {
        if let Some([text, part]) = self.texts_of(pair)? {
            return self.text_has(test, text, part);
        }
        let (a, b) = (self.value(&pair[0], scope)?, self.value(&pair[1], scope)?);
        let text = a.text().ok_or_else(|| a.operand(test.name()))?;
        self.text_has(test, text, b.text().ok_or_else(|| b.operand(test.name()))?)
    }

    fn text_has(&self, test: TextTest, text: &str, part: &str) -> Evaluated<'e, bool> {
        self.charge_for_text(part.len())?;
        match test {
            TextTest::StartsWith => Ok(text.starts_with(part)),
            TextTest::EndsWith => Ok(text.ends_with(part)),
            TextTest::Contains => {
                self.charge((text.len() + part.len()) / SEARCHED_PER_STEP)?;
                Ok(text.contains(part))
            }
        }
    }

    fn matches(&self, of: &'e Node, pattern: &Pattern, scope: Scope<'_, 'e>) -> Evaluated<'e, bool> {
        let value = self.value(of, scope)?;
        let text = value.text().ok_or_else(|| value.operand("matches"))?;
        self.charge(pattern.steps(text))?;
        pattern.is_in(text).ok_or_else(|| value.operand("matches"))
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
            (value, Literal::Null) => value.is_null(),
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

/// What arithmetic makes of absent values: nothing, if there is nothing else of the request in it.
/// Beside a value that is there, an absent one is an error: whoever leaves one of two sizes out
/// must not pay for neither.
fn neither<'e>(pair: &[Node; 2], a: &Value<'e>, b: &Value<'e>) -> Option<Value<'e>> {
    let is_fixed = |node: &Node| matches!(node, Node::Literal(_));
    match (a.is_null(), b.is_null()) {
        (true, true) => Some(a.clone()),
        (true, false) if is_fixed(&pair[1]) => Some(a.clone()),
        (false, true) if is_fixed(&pair[0]) => Some(b.clone()),
        _ => None,
    }
}

/// A member of an object; only objects have any.
fn member<'e>(of: &'e Json, name: &str) -> Evaluated<'e, Option<&'e Json>> {
    match of {
        Json::Object(members) => Ok(members.get(name)),
        Json::Null => Ok(None),
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
        _ if of.is_null() && operation == "[]" => Ok(None),
        _ if of.list_len().is_none() => Err(of.operand(operation)),
        (_, Value::Int(index)) => Ok(usize::try_from(*index).ok().and_then(|index| of.element(index))),
        // A double that is whole is as good an index as an int.
        (_, Value::Double(number)) if number.fract() == 0.0 && number.abs() < i64::MAX as f64 => {
            Ok(usize::try_from(*number as i64).ok().and_then(|index| of.element(index)))
        }
        _ => Err(index.operand(operation)),
    }
}
