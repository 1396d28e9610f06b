//! From the text of an expression to its nodes: what is read here can be
//! evaluated, and everything else is refused with its place.

mod calls;

use cel::common::ast::{Expr, IdedExpr, LiteralValue, SelectExpr, SourceInfo};
use cel::{Env, ParseErrors};

use super::node::{Kind, Literal, Node};
use super::{COST_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX};
use crate::policy::problem::quoted;
use crate::policy::request::{Fact, NAMESPACES, Needs};
use crate::policy::syntax::SyntaxError;

/// What expressions can consist of.
pub(super) const SUPPORTED: &str = "numbers, text, true, false, null, lists, fields, indices, \
     == != < <= > >= && || ! ?: in + - * / %, has(), size(), startsWith(), endsWith(), contains(), \
     matches(), int(), double(), all(), exists(), exists_one(), filter() or map()";

/// An expression that can be evaluated.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) text: Box<str>,
    pub(super) root: Node,
    pub(super) needs: Needs,
    /// Where the root stands.
    at: usize,
}

/// What is written alike means the same.
impl PartialEq for Compiled {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Compiled {}

impl Compiled {
    pub(super) fn new(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            let got = format!("{} bytes", text.len());
            return Err(SyntaxError::new(text, 0, got, format!("at most {EXPRESSION_BYTES_MAX} bytes")));
        }
        // Without the crate's macros: theirs would be expanded to loops, and
        // ours are nodes.
        let parser = Env::default().with_optional_support(false).parser();
        let depth = u16::try_from(EXPRESSION_DEPTH_MAX).unwrap_or(u16::MAX);
        let parser = parser.enable_ident_escape_syntax(true).max_recursion_depth(depth);
        let (root, places) = parser.parse_with_source_info(text).map_err(|errors| unparsed(text, &errors))?;
        let mut compiler = Compiler { text, places, locals: Vec::new(), needs: Needs::default(), depth: 0 };
        let at = compiler.place(&root);
        let root = compiler.node(&root)?;
        Ok(Self { text: text.into(), root, needs: compiler.needs, at })
    }

    /// Refuses what is certainly of another kind.
    pub(super) fn must_be(&self, kind: Kind, expected: &str) -> Result<(), SyntaxError> {
        match self.root.kind() {
            Some(other) if other != kind => {
                Err(SyntaxError::new(&self.text, self.at, other.name(), expected))
            }
            _ => Ok(()),
        }
    }

    /// The cost, if it is a plain number.
    pub(super) fn fixed_cost(&self, expected: &str) -> Result<Option<u32>, SyntaxError> {
        let Node::Literal(Literal::Int(cost)) = &self.root else { return Ok(None) };
        match u32::try_from(*cost) {
            Ok(cost) if cost <= COST_MAX => Ok(Some(cost)),
            _ => Err(SyntaxError::new(&self.text, self.at, cost.to_string(), expected)),
        }
    }
}

/// The first of the parser's errors, in fewer words.
fn unparsed(text: &str, errors: &ParseErrors) -> SyntaxError {
    let first = errors.errors.first();
    let (line, column) = first.map_or((1, 1), |error| error.pos);
    let line_start =
        text.split_inclusive('\n').take(usize::try_from(line - 1).unwrap_or(0)).map(str::len).sum();
    let column = usize::try_from(column - 1).unwrap_or(0);
    let rest = text.get(line_start..).unwrap_or_default();
    let offset = line_start + rest.char_indices().nth(column).map_or(rest.len(), |(offset, _)| offset);
    let message = first.map_or("", |error| error.msg.as_str());
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    if message.contains("Recursion limit") {
        let expected = format!("at most {EXPRESSION_DEPTH_MAX} levels");
        return SyntaxError::new(text, offset, "an expression that is nested deeper", expected);
    }
    let got = match text[offset..].split_whitespace().next() {
        Some(found) => quoted(found),
        None => "the end".to_owned(),
    };
    let hint = match text[offset..].trim_start().as_bytes() {
        [b'=', ..] => " (to compare, write `==`)",
        [b'&', ..] => " (to join conditions, write `&&`)",
        [b'|', ..] => " (to join conditions, write `||`)",
        _ => "",
    };
    SyntaxError::new(text, offset, got, format!("an expression in CEL{hint}; the parser says: {message}"))
}

pub(super) type Compilation = Result<Node, SyntaxError>;

struct Compiler<'t> {
    text: &'t str,
    places: SourceInfo,
    /// The variables of the macros around, the innermost last.
    locals: Vec<String>,
    needs: Needs,
    depth: usize,
}

impl Compiler<'_> {
    /// Where an expression stands, in bytes.
    fn place(&self, expr: &IdedExpr) -> usize {
        let start = self.places.offset_for(expr.id).map_or(0, |(start, _)| start);
        usize::try_from(start).unwrap_or(0)
    }

    fn wrong<T>(
        &self,
        expr: &IdedExpr,
        got: impl Into<String>,
        expected: impl Into<String>,
    ) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(self.text, self.place(expr), got, expected))
    }

    fn unsupported<T>(&self, expr: &IdedExpr, what: &str) -> Result<T, SyntaxError> {
        self.wrong(expr, format!("{what}, which is not supported"), SUPPORTED)
    }

    fn node(&mut self, expr: &IdedExpr) -> Compilation {
        if self.depth == EXPRESSION_DEPTH_MAX {
            let expected = format!("at most {EXPRESSION_DEPTH_MAX} levels");
            return self.wrong(expr, "an expression that is nested deeper", expected);
        }
        self.depth += 1;
        let node = match &expr.expr {
            Expr::Literal(literal) => self.literal(expr, literal),
            Expr::Ident(name) => self.variable(expr, name),
            Expr::Select(select) => self.field(expr, select),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => Ok(Node::List(
                list.elements.iter().map(|element| self.node(element)).collect::<Result<_, _>>()?,
            )),
            Expr::Map(_) => self.unsupported(expr, "a map"),
            Expr::Struct(_) => self.unsupported(expr, "a message"),
            Expr::Comprehension(_) | Expr::Unspecified => self.unsupported(expr, "this"),
        };
        self.depth -= 1;
        node
    }

    fn literal(&self, expr: &IdedExpr, literal: &LiteralValue) -> Compilation {
        Ok(Node::Literal(match literal {
            LiteralValue::Null => Literal::Null,
            LiteralValue::Boolean(truth) => Literal::Bool(*truth.inner()),
            LiteralValue::Int(number) => Literal::Int(*number.inner()),
            LiteralValue::Double(number) => Literal::Double(*number.inner()),
            LiteralValue::String(text) => Literal::Text(text.inner().into()),
            LiteralValue::UInt(number) => {
                return self.wrong(expr, format!("{}u", number.inner()), "a number without `u`");
            }
            LiteralValue::Bytes(_) => return self.unsupported(expr, "bytes"),
        }))
    }

    fn variable(&mut self, expr: &IdedExpr, name: &str) -> Compilation {
        if let Some(out) = self.locals.iter().rev().position(|local| local == name) {
            return Ok(Node::Local(out));
        }
        if name == "body" {
            self.needs.body = true;
            return Ok(Node::Body);
        }
        self.fact(expr, name, None)
    }

    fn fact(&mut self, expr: &IdedExpr, namespace: &str, name: Option<&str>) -> Compilation {
        let place = self.place(expr);
        let fact = Fact::named(self.text, place, namespace, name).map_err(|error| match &expr.expr {
            // Within a field or an index, the place is that of the dot or bracket.
            Expr::Ident(_) => error,
            _ => SyntaxError::new(self.text, place, error.got, error.expected),
        })?;
        self.needs |= fact.needs();
        Ok(Node::Fact { fact, name: written(expr).into() })
    }

    /// The word that an expression is, if it is one of those of which every
    /// name has to be known.
    fn namespace<'x>(&self, expr: &'x IdedExpr) -> Option<&'x str> {
        match &expr.expr {
            Expr::Ident(name) if name != "body" && !self.locals.contains(name) => {
                NAMESPACES.contains(&name.as_str()).then_some(name.as_str())
            }
            _ => None,
        }
    }

    /// The same, if there are names in it at all.
    fn names<'x>(&self, expr: &'x IdedExpr) -> Option<&'x str> {
        self.namespace(expr)
            .filter(|namespace| !matches!(*namespace, "method" | "path" | "route" | "descriptor_keys"))
    }

    fn field(&mut self, expr: &IdedExpr, select: &SelectExpr) -> Compilation {
        if let Some(namespace) = self.namespace(&select.operand) {
            return self.fact(expr, namespace, Some(&select.field));
        }
        let of = self.object(&select.operand)?;
        Ok(Node::Field { of: of.into(), field: select.field.as_str().into(), name: written(expr).into() })
    }

    /// What may have fields.
    fn object(&mut self, expr: &IdedExpr) -> Compilation {
        let of = self.node(expr)?;
        if let Node::Fact { name, .. } = &of {
            return self.wrong(expr, format!("a field of `{name}`"), "a single value, which has no fields");
        }
        match of.kind() {
            Some(kind) => self.wrong(expr, format!("a field of {}", kind.name()), "a field of an object"),
            None => Ok(of),
        }
    }

    fn has(&mut self, expr: &IdedExpr, of: &IdedExpr) -> Compilation {
        let Expr::Select(select) = &of.expr else {
            return self.wrong(
                expr,
                "has() of something else",
                "has() of a field, such as `has(body.tenant_id)`",
            );
        };
        if let Some(namespace) = self.namespace(&select.operand) {
            return match self.fact(of, namespace, Some(&select.field))? {
                Node::Fact { fact, .. } => Ok(Node::HasFact(fact)),
                other => Ok(other),
            };
        }
        let object = self.object(&select.operand)?;
        Ok(Node::Has { of: object.into(), field: select.field.as_str().into() })
    }
}

/// An expression as a name in an error: `body.items[0].id`.
fn written(expr: &IdedExpr) -> String {
    match &expr.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!("{}.{}", written(&select.operand), select.field),
        Expr::Call(call) if call.func_name == cel::common::ast::operators::INDEX && call.args.len() == 2 => {
            format!("{}[{}]", written(&call.args[0]), written(&call.args[1]))
        }
        Expr::Literal(LiteralValue::Int(number)) => number.inner().to_string(),
        Expr::Literal(LiteralValue::String(text)) => quoted(text.inner()),
        _ => "...".to_owned(),
    }
}
