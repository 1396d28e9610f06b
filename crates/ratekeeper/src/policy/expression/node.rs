//! What an expression is compiled into.

use super::pattern::Pattern;
use crate::policy::request::Fact;

/// One step of an expression. Names are as the expression has them, for errors.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Literal(Literal),
    Fact {
        fact: Fact,
        name: Box<str>,
    },
    HasFact(Fact),
    Body,
    /// The variable of the macro so many levels further out.
    Local(usize),
    Field {
        of: Box<Node>,
        field: Box<str>,
        name: Box<str>,
    },
    Has {
        of: Box<Node>,
        field: Box<str>,
    },
    Index {
        pair: Box<[Node; 2]>,
        name: Box<str>,
    },
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    If(Box<[Node; 3]>),
    Compare(Comparison, Box<[Node; 2]>),
    Arithmetic(Arithmetic, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
    /// In a list of nothing but literals, which need not be built.
    InLiterals(Box<Node>, Box<[Literal]>),
    List(Box<[Node]>),
    Size(Box<Node>),
    Text(TextTest, Box<[Node; 2]>),
    Matches(Box<Node>, Box<Pattern>),
    Convert(Conversion, Box<Node>),
    Each(Box<Each>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }

    /// Whether it only asks for equality, which any two values have or have not.
    pub(super) const fn is_equality(self) -> bool {
        matches!(self, Comparison::Equal | Comparison::NotEqual)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Arithmetic {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::Remainder => "%",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
}

impl TextTest {
    pub(super) const fn name(self) -> &'static str {
        match self {
            TextTest::StartsWith => "startsWith",
            TextTest::EndsWith => "endsWith",
            TextTest::Contains => "contains",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    Int,
    Double,
}

impl Conversion {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Conversion::Int => "int",
            Conversion::Double => "double",
        }
    }
}

/// A macro over the elements of a list, or the names in an object.
#[derive(Clone, Debug)]
pub(super) struct Each {
    pub(super) range: Node,
    pub(super) what: EachKind,
    /// What is asked of an element; `None` takes all of them.
    pub(super) test: Option<Node>,
    /// What is made of an element, for [`EachKind::Map`].
    pub(super) made: Option<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EachKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

impl EachKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            EachKind::All => "all",
            EachKind::Exists => "exists",
            EachKind::ExistsOne => "exists_one",
            EachKind::Filter => "filter",
            EachKind::Map => "map",
        }
    }
}

/// What a value is, where that is known before there is a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Int,
    Double,
    Text,
    List,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool => "true or false",
            Kind::Int => "a whole number",
            Kind::Double => "a number",
            Kind::Text => "text",
            Kind::List => "a list",
        }
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Double)
    }
}

impl Literal {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Literal::Null => Kind::Null,
            Literal::Bool(_) => Kind::Bool,
            Literal::Int(_) => Kind::Int,
            Literal::Double(_) => Kind::Double,
            Literal::Text(_) => Kind::Text,
        }
    }
}

impl Node {
    /// What it will be for any request for which it is anything; `None` if that
    /// depends on the request.
    pub(super) fn kind(&self) -> Option<Kind> {
        Some(match self {
            Node::Literal(literal) => literal.kind(),
            Node::Fact { fact: Fact::Claim(_) | Fact::Body(_), .. } => return None,
            Node::Fact { .. } => Kind::Text,
            Node::HasFact(_) | Node::Has { .. } | Node::All(_) | Node::Any(_) | Node::Not(_) => Kind::Bool,
            Node::Compare(..) | Node::In(_) | Node::InLiterals(..) => Kind::Bool,
            Node::Text(..) | Node::Matches(..) => Kind::Bool,
            Node::Body | Node::Local(_) | Node::Field { .. } | Node::Index { .. } => return None,
            Node::Negate(of) => of.kind()?,
            Node::If(parts) => {
                let kind = parts[1].kind()?;
                return (parts[2].kind()? == kind).then_some(kind);
            }
            // Both sides are of one kind, or it fails.
            Node::Arithmetic(_, pair) => pair[0].kind().or_else(|| pair[1].kind())?,
            Node::List(_) => Kind::List,
            Node::Size(_) | Node::Convert(Conversion::Int, _) => Kind::Int,
            Node::Convert(Conversion::Double, _) => Kind::Double,
            Node::Each(each) => match each.what {
                EachKind::All | EachKind::Exists | EachKind::ExistsOne => Kind::Bool,
                EachKind::Filter | EachKind::Map => Kind::List,
            },
        })
    }
}
