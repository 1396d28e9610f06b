//! What a condition requires of every request for which it is true, so that a
//! policy of a hundred rules only looks at those that could apply.

use super::node::{Comparison, Literal, Node, TextTest};
use crate::policy::request::{Descriptor, Fact, Facts};

/// More alternatives than these are no help to an index.
const ALTERNATIVES_MAX: usize = 64;

/// What must hold of a request, or a condition is false. `None` means anything.
///
/// It follows from parts such as `method == "POST"`, `route in ["/a", "/b"]` or
/// `path.startsWith("/api/")`, and from `&&` and `||` between them. A request
/// that lacks the fact is not ruled out: then the condition may be an error,
/// and errors must be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requires {
    /// The method is one of these.
    pub methods: Option<Vec<Box<str>>>,
    /// The route is one of these.
    pub routes: Option<Vec<Box<str>>>,
    /// The path is one of these.
    pub paths: Option<Vec<Paths>>,
    /// The keys of the descriptor are one of these.
    pub descriptor_keys: Option<Vec<Box<str>>>,
}

/// Paths that a condition can be true for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paths {
    /// Only this one.
    Is(Box<str>),
    /// All that begin so.
    StartsWith(Box<str>),
}

impl Paths {
    /// Whether the path is one of them.
    #[must_use]
    pub fn contain(&self, path: &str) -> bool {
        match self {
            Paths::Is(is) => path == is.as_ref(),
            Paths::StartsWith(start) => path.starts_with(start.as_ref()),
        }
    }
}

impl Paths {
    /// The paths that are in both.
    fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Paths::Is(is), all) | (all, Paths::Is(is)) => all.contain(is).then(|| Paths::Is(is.clone())),
            (Paths::StartsWith(a), Paths::StartsWith(b)) => {
                let longer = if a.len() > b.len() { a } else { b };
                let both = longer.starts_with(a.as_ref()) && longer.starts_with(b.as_ref());
                both.then(|| Paths::StartsWith(longer.clone()))
            }
        }
    }
}

impl Requires {
    /// Whether the condition is certainly false for that request.
    #[must_use]
    pub fn rules_out(&self, facts: &dyn Facts) -> bool {
        let misses = |wanted: &Option<Vec<Box<str>>>, fact: Option<&str>| {
            let (Some(wanted), Some(fact)) = (wanted, fact) else { return false };
            !wanted.iter().any(|wanted| wanted.as_ref() == fact)
        };
        let misses_path = || {
            let (Some(paths), Some(path)) = (&self.paths, facts.path()) else { return false };
            !paths.iter().any(|paths| paths.contain(path))
        };
        (self.methods.is_some() && misses(&self.methods, facts.method()))
            || (self.routes.is_some() && misses(&self.routes, facts.route()))
            || misses_path()
            || (self.descriptor_keys.is_some()
                && misses(&self.descriptor_keys, facts.descriptor().map(Descriptor::keys)))
    }

    pub(super) fn of(node: &Node) -> Self {
        match node {
            Node::All(nodes) => nodes.iter().map(Self::of).fold(Self::default(), Self::and),
            Node::Any(nodes) => nodes.iter().map(Self::of).reduce(Self::or).unwrap_or_default(),
            Node::Compare(Comparison::Equal, pair) => match pair.as_ref() {
                [Node::Fact { fact, .. }, Node::Literal(Literal::Text(text))]
                | [Node::Literal(Literal::Text(text)), Node::Fact { fact, .. }] => {
                    Self::one_of(fact, std::iter::once(text.as_ref()))
                }
                _ => Self::default(),
            },
            Node::InLiterals(of, literals) => match of.as_ref() {
                // What is no text is never equal to one.
                Node::Fact { fact, .. } => Self::one_of(fact, literals.iter().filter_map(Literal::text)),
                _ => Self::default(),
            },
            Node::Text(TextTest::StartsWith, pair) => match pair.as_ref() {
                [Node::Fact { fact: Fact::Path, .. }, Node::Literal(Literal::Text(start))] => {
                    Self { paths: Some(vec![Paths::StartsWith(start.clone())]), ..Self::default() }
                }
                _ => Self::default(),
            },
            _ => Self::default(),
        }
    }

    fn one_of<'t>(fact: &Fact, texts: impl Iterator<Item = &'t str>) -> Self {
        let mut requires = Self::default();
        match fact {
            Fact::Method => requires.methods = Some(texts.map(Box::from).collect()),
            Fact::Route => requires.routes = Some(texts.map(Box::from).collect()),
            Fact::DescriptorKeys => requires.descriptor_keys = Some(texts.map(Box::from).collect()),
            Fact::Path => requires.paths = Some(texts.map(|text| Paths::Is(text.into())).collect()),
            _ => {}
        }
        requires
    }

    /// Both hold, so only what is in both lists will do.
    fn and(self, other: Self) -> Self {
        Self {
            methods: in_both(self.methods, other.methods, |a, b| (a == b).then(|| a.clone())),
            routes: in_both(self.routes, other.routes, |a, b| (a == b).then(|| a.clone())),
            paths: in_both(self.paths, other.paths, Paths::and),
            descriptor_keys: in_both(self.descriptor_keys, other.descriptor_keys, |a, b| {
                (a == b).then(|| a.clone())
            }),
        }
    }

    /// What holds of requests that meet both.
    #[must_use]
    pub(in crate::policy) fn both(&self, other: &Self) -> Self {
        self.clone().and(other.clone())
    }

    /// Whether no request at all can meet them.
    #[must_use]
    pub fn is_impossible(&self) -> bool {
        let none = |list: Option<usize>| list == Some(0);
        none(self.methods.as_ref().map(Vec::len))
            || none(self.routes.as_ref().map(Vec::len))
            || none(self.paths.as_ref().map(Vec::len))
            || none(self.descriptor_keys.as_ref().map(Vec::len))
    }

    /// One of them holds, so only both lists together will do.
    fn or(self, other: Self) -> Self {
        Self {
            methods: together(self.methods, other.methods),
            routes: together(self.routes, other.routes),
            paths: together(self.paths, other.paths),
            descriptor_keys: together(self.descriptor_keys, other.descriptor_keys),
        }
    }
}

fn in_both<T>(a: Option<Vec<T>>, b: Option<Vec<T>>, and: impl Fn(&T, &T) -> Option<T>) -> Option<Vec<T>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.iter().flat_map(|a| b.iter().filter_map(|b| and(a, b))).collect()),
        (a, b) => a.or(b),
    }
}

fn together<T>(a: Option<Vec<T>>, b: Option<Vec<T>>) -> Option<Vec<T>> {
    let (mut a, b) = (a?, b?);
    a.extend(b);
    (a.len() <= ALTERNATIVES_MAX).then_some(a)
}

impl Literal {
    fn text(&self) -> Option<&str> {
        match self {
            Literal::Text(text) => Some(text),
            _ => None,
        }
    }
}
