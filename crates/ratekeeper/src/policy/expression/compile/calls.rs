//! Operators, functions and macros.

use super::{Compilation, Compiler};
use crate::policy::expression::node::{
    Arithmetic, Comparison, Conversion, Each, EachKind, Kind, Literal, Node, TextTest,
};
use crate::policy::expression::pattern::Pattern;
use crate::policy::problem::quoted;
use crate::policy::request::NAMESPACES;
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

impl Compiler<'_> {
    pub(super) fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> Compilation {
        match (&call.target, call.args.as_slice()) {
            (None, [of]) => self.unary(expr, &call.func_name, of),
            (None, [a, b]) => self.binary(expr, &call.func_name, a, b),
            (None, [condition, yes, no]) if call.func_name == operators::CONDITIONAL => {
                let condition = self.of_kind(condition, &[Kind::Bool], "?:")?;
                Ok(Node::If(Box::new([condition, self.node(yes)?, self.node(no)?])))
            }
            (Some(target), arguments) => self.method(expr, &call.func_name, target, arguments),
            _ => self.no_such(expr, &call.func_name),
        }
    }

    fn no_such(&self, expr: &IdedExpr, name: &str) -> Compilation {
        self.unsupported(expr, &format!("`{name}()` with these arguments"))
    }

    fn unary(&mut self, expr: &IdedExpr, name: &str, of: &IdedExpr) -> Compilation {
        const NUMBERS: [Kind; 2] = [Kind::Int, Kind::Double];
        const READABLE: [Kind; 3] = [Kind::Int, Kind::Double, Kind::Text];
        match name {
            operators::LOGICAL_NOT => Ok(Node::Not(self.of_kind(of, &[Kind::Bool], "!")?.into())),
            operators::NEGATE => Ok(Node::Negate(self.of_kind(of, &NUMBERS, "-")?.into())),
            operators::HAS => self.has(expr, of),
            "size" => self.size(of),
            "int" => Ok(Node::Convert(Conversion::Int, self.of_kind(of, &READABLE, "int")?.into())),
            "double" => Ok(Node::Convert(Conversion::Double, self.of_kind(of, &READABLE, "double")?.into())),
            _ => self.no_such(expr, name),
        }
    }

    fn size(&mut self, of: &IdedExpr) -> Compilation {
        Ok(Node::Size(self.of_kind(of, &[Kind::Text, Kind::List], "size")?.into()))
    }

    fn binary(&mut self, expr: &IdedExpr, name: &str, a: &IdedExpr, b: &IdedExpr) -> Compilation {
        let comparison = match name {
            operators::EQUALS => Some(Comparison::Equal),
            operators::NOT_EQUALS => Some(Comparison::NotEqual),
            operators::LESS => Some(Comparison::Less),
            operators::LESS_EQUALS => Some(Comparison::LessOrEqual),
            operators::GREATER => Some(Comparison::Greater),
            operators::GREATER_EQUALS => Some(Comparison::GreaterOrEqual),
            _ => None,
        };
        let arithmetic = match name {
            operators::ADD => Some(Arithmetic::Add),
            operators::SUBSTRACT => Some(Arithmetic::Subtract),
            operators::MULTIPLY => Some(Arithmetic::Multiply),
            operators::DIVIDE => Some(Arithmetic::Divide),
            operators::MODULO => Some(Arithmetic::Remainder),
            _ => None,
        };
        match (name, comparison, arithmetic) {
            (_, Some(comparison), _) => self.comparison(expr, comparison, a, b),
            (_, _, Some(arithmetic)) => self.arithmetic(expr, arithmetic, a, b),
            (operators::LOGICAL_AND | operators::LOGICAL_OR, ..) => {
                let mut nodes = Vec::new();
                self.operands(expr, name, &mut nodes)?;
                let nodes = nodes.into();
                Ok(if name == operators::LOGICAL_AND { Node::All(nodes) } else { Node::Any(nodes) })
            }
            (operators::IN, ..) => self.is_in(a, b),
            (operators::INDEX, ..) => self.index(expr, a, b),
            ("matches", ..) => self.matches(expr, a, b),
            _ => self.no_such(expr, name),
        }
    }

    /// `a && b && c` is one node, however the parser grouped it.
    fn operands(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        nodes: &mut Vec<Node>,
    ) -> Result<(), super::SyntaxError> {
        match &expr.expr {
            Expr::Call(call) if call.func_name == name && call.target.is_none() => {
                call.args.iter().try_for_each(|operand| self.operands(operand, name, nodes))
            }
            _ => {
                let shown = if name == operators::LOGICAL_AND { "&&" } else { "||" };
                nodes.push(self.of_kind(expr, &[Kind::Bool], shown)?);
                Ok(())
            }
        }
    }

    /// A node that is not certainly of another kind.
    fn of_kind(&mut self, expr: &IdedExpr, kinds: &[Kind], operation: &str) -> Compilation {
        let node = self.node(expr)?;
        match node.kind() {
            Some(kind) if !kinds.contains(&kind) => {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                let expected = format!("{} for `{operation}`", names.join(" or "));
                self.wrong(expr, kind.name(), expected)
            }
            _ => Ok(node),
        }
    }

    fn comparison(
        &mut self,
        expr: &IdedExpr,
        comparison: Comparison,
        a: &IdedExpr,
        b: &IdedExpr,
    ) -> Compilation {
        let pair = [self.node(a)?, self.node(b)?];
        if let [Some(a), Some(b)] = [pair[0].kind(), pair[1].kind()] {
            let equality = comparison.is_equality();
            let comparable = a == b && (equality || !matches!(a, Kind::Null | Kind::List));
            let null = equality && (a == Kind::Null || b == Kind::Null);
            let numbers = a.is_number() && b.is_number();
            if !(comparable || null || numbers) {
                return self.mismatch(expr, comparison.name(), a, b);
            }
        }
        Ok(Node::Compare(comparison, Box::new(pair)))
    }

    fn arithmetic(
        &mut self,
        expr: &IdedExpr,
        arithmetic: Arithmetic,
        a: &IdedExpr,
        b: &IdedExpr,
    ) -> Compilation {
        if arithmetic == Arithmetic::Subtract
            && let Some((namespace, name)) = self.hyphenated(expr)
        {
            let got = format!("`{namespace}.{name}`, which is a subtraction");
            return self.wrong(expr, got, format!("`{namespace}['{name}']`"));
        }
        let pair = [self.node(a)?, self.node(b)?];
        let fits = |kind: Kind| match kind {
            Kind::Int => true,
            Kind::Double => arithmetic != Arithmetic::Remainder,
            Kind::Text | Kind::List => arithmetic == Arithmetic::Add,
            Kind::Null | Kind::Bool => false,
        };
        match [pair[0].kind(), pair[1].kind()] {
            [Some(kind), _] | [_, Some(kind)] if !fits(kind) => {
                let whole = if arithmetic == Arithmetic::Remainder { "whole numbers" } else { "numbers" };
                self.wrong(expr, format!("`{}` with {}", arithmetic.name(), kind.name()), whole)
            }
            [Some(a), Some(b)] if a != b => self.mismatch(expr, arithmetic.name(), a, b),
            _ => Ok(Node::Arithmetic(arithmetic, Box::new(pair))),
        }
    }

    /// The name with hyphens in it that a subtraction was meant to be, as in `header.x-internal`.
    fn hyphenated<'x>(&self, expr: &'x IdedExpr) -> Option<(&'x str, String)> {
        match &expr.expr {
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(namespace) if NAMESPACES.contains(&namespace.as_str()) => {
                    Some((namespace, select.field.clone()))
                }
                _ => None,
            },
            Expr::Call(call) if call.func_name == operators::SUBSTRACT => {
                let [before, after] = call.args.as_slice() else { return None };
                let Expr::Ident(after) = &after.expr else { return None };
                let (namespace, name) = self.hyphenated(before)?;
                (!self.locals.contains(after)).then(|| (namespace, format!("{name}-{after}")))
            }
            _ => None,
        }
    }

    fn mismatch(&self, expr: &IdedExpr, operator: &str, a: Kind, b: Kind) -> Compilation {
        let got = format!("{} `{operator}` {}", a.name(), b.name());
        let hint = match (a, b) {
            (Kind::Text, number) | (number, Kind::Text) if number.is_number() => {
                "; a text is read as a number by int() or double()"
            }
            (a, b) if a.is_number() && b.is_number() => "; a number is made a double by double()",
            _ => "",
        };
        self.wrong(expr, got, format!("two values of one kind{hint}"))
    }

    fn is_in(&mut self, value: &IdedExpr, container: &IdedExpr) -> Compilation {
        if let Some(namespace) = self.names(container) {
            let Expr::Literal(LiteralValue::String(name)) = &value.expr else {
                return self.wrong(value, format!("an unknown name in `{namespace}`"), "a name in quotes");
            };
            return match self.fact(container, namespace, Some(name.inner()))? {
                Node::Fact { fact, .. } => Ok(Node::HasFact(fact)),
                other => Ok(other),
            };
        }
        let value = self.node(value)?;
        Ok(match self.of_kind(container, &[Kind::List], "in")? {
            Node::List(nodes) if nodes.iter().all(|node| matches!(node, Node::Literal(_))) => {
                let literals = nodes.into_iter().filter_map(|node| match node {
                    Node::Literal(literal) => Some(literal),
                    _ => None,
                });
                Node::InLiterals(value.into(), literals.collect())
            }
            container => Node::In(Box::new([value, container])),
        })
    }

    fn index(&mut self, expr: &IdedExpr, of: &IdedExpr, index: &IdedExpr) -> Compilation {
        if let Some(namespace) = self.names(of) {
            let Expr::Literal(LiteralValue::String(name)) = &index.expr else {
                return self.wrong(index, format!("an unknown name in `{namespace}`"), "a name in quotes");
            };
            return self.fact(expr, namespace, Some(name.inner()));
        }
        let of = self.of_kind(of, &[Kind::List], "[]")?;
        let index = self.of_kind(index, &[Kind::Int, Kind::Double, Kind::Text, Kind::Bool], "[]")?;
        Ok(Node::Index { pair: Box::new([of, index]), name: super::written(expr).into() })
    }

    fn matches(&mut self, expr: &IdedExpr, of: &IdedExpr, pattern: &IdedExpr) -> Compilation {
        let of = self.of_kind(of, &[Kind::Text], "matches")?;
        let Node::Literal(Literal::Text(text)) = self.node(pattern)? else {
            return self.wrong(expr, "a pattern that is not fixed", "a regular expression in quotes");
        };
        match Pattern::new(&text) {
            Ok(pattern) => Ok(Node::Matches(of.into(), pattern.into())),
            Err(regex::Error::CompiledTooBig(_)) => {
                self.wrong(pattern, quoted(&text), "a smaller regular expression")
            }
            Err(error) => {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                self.wrong(pattern, quoted(&text), format!("a regular expression; {reason}"))
            }
        }
    }

    fn method(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        target: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Compilation {
        let test = match name {
            "startsWith" => Some(TextTest::StartsWith),
            "endsWith" => Some(TextTest::EndsWith),
            "contains" => Some(TextTest::Contains),
            _ => None,
        };
        match (name, test, arguments) {
            (_, Some(test), [part]) => {
                let text = self.of_kind(target, &[Kind::Text], name)?;
                Ok(Node::Text(test, Box::new([text, self.of_kind(part, &[Kind::Text], name)?])))
            }
            ("size", _, []) => self.size(target),
            ("matches", _, [pattern]) => self.matches(expr, target, pattern),
            ("all", _, [variable, test]) => self.each(EachKind::All, target, variable, Some(test), None),
            ("exists", _, [variable, test]) => {
                self.each(EachKind::Exists, target, variable, Some(test), None)
            }
            ("exists_one" | "existsOne", _, [variable, test]) => {
                self.each(EachKind::ExistsOne, target, variable, Some(test), None)
            }
            ("filter", _, [variable, test]) => {
                self.each(EachKind::Filter, target, variable, Some(test), None)
            }
            ("map", _, [variable, made]) => self.each(EachKind::Map, target, variable, None, Some(made)),
            ("map", _, [variable, test, made]) => {
                self.each(EachKind::Map, target, variable, Some(test), Some(made))
            }
            _ => self.no_such(expr, name),
        }
    }

    fn each(
        &mut self,
        what: EachKind,
        range: &IdedExpr,
        variable: &IdedExpr,
        test: Option<&IdedExpr>,
        made: Option<&IdedExpr>,
    ) -> Compilation {
        let range = self.of_kind(range, &[Kind::List], what.name())?;
        let Expr::Ident(name) = &variable.expr else {
            return self.wrong(
                variable,
                "something else",
                format!("the name of a variable for `{}`", what.name()),
            );
        };
        self.locals.push(name.clone());
        let test = test.map(|test| self.of_kind(test, &[Kind::Bool], what.name())).transpose();
        let made = made.map(|made| self.node(made)).transpose();
        self.locals.pop();
        Ok(Node::Each(Box::new(Each { range, what, test: test?, made: made? })))
    }
}
