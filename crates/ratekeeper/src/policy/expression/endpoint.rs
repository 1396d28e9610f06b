//! What can be told of a condition when only the endpoint of a request is known:
//! for documents that describe a service before anybody asks it.

use super::evaluate::Run;
use super::node::{Comparison, Literal, Node, TextTest};
use crate::policy::address::Addresses;
use crate::policy::request::{Fact, Request, RequestFacts};

/// Where requests are sent to: their method, and their route as the service matches it.
pub(super) struct Endpoint<'a> {
    /// What all of their paths begin with.
    prefix: &'a str,
    /// Whether that is all of the path: the route has no parameters.
    is_whole: bool,
    facts: RequestFacts,
}

impl<'a> Endpoint<'a> {
    pub(super) fn new(method: &str, route: &'a str) -> Self {
        let prefix = route.split('{').next().unwrap_or_default();
        Self {
            prefix,
            is_whole: prefix.len() == route.len(),
            facts: RequestFacts::new(method, prefix).route(route),
        }
    }

    /// Whether a condition holds for every request, or for none; `None` if that depends
    /// on the request.
    pub(super) fn decides(&self, node: &Node) -> Option<bool> {
        match node {
            Node::All(nodes) => self.decides_of(nodes, false),
            Node::Any(nodes) => self.decides_of(nodes, true),
            Node::Not(of) => self.decides(of).map(|holds| !holds),
            Node::Text(TextTest::StartsWith, pair) if !self.is_whole => match pair.as_ref() {
                [Node::Fact { fact: Fact::Path, .. }, Node::Literal(Literal::Text(start))] => {
                    self.starts_with(start)
                }
                _ => self.evaluated(node),
            },
            Node::Compare(Comparison::Equal, pair) if !self.is_whole => match pair.as_ref() {
                [Node::Fact { fact: Fact::Path, .. }, Node::Literal(literal)]
                | [Node::Literal(literal), Node::Fact { fact: Fact::Path, .. }] => {
                    self.is_one_of(std::slice::from_ref(literal))
                }
                _ => self.evaluated(node),
            },
            Node::InLiterals(of, literals) if !self.is_whole => match of.as_ref() {
                Node::Fact { fact: Fact::Path, .. } => self.is_one_of(literals),
                _ => self.evaluated(node),
            },
            _ => self.evaluated(node),
        }
    }

    /// Several: one that is `decisive` is enough, or else all must be known.
    fn decides_of(&self, nodes: &[Node], decisive: bool) -> Option<bool> {
        let mut all_known = true;
        for node in nodes {
            match self.decides(node) {
                Some(holds) if holds == decisive => return Some(decisive),
                Some(_) => {}
                None => all_known = false,
            }
        }
        all_known.then_some(!decisive)
    }

    /// Whether the path begins so, if it begins as is known and goes on somehow.
    fn starts_with(&self, start: &str) -> Option<bool> {
        if self.prefix.starts_with(start) {
            return Some(true);
        }
        if start.starts_with(self.prefix) { None } else { Some(false) }
    }

    /// Whether the path is one of these: never, unless one begins as is known.
    fn is_one_of(&self, literals: &[Literal]) -> Option<bool> {
        let possible =
            |literal: &Literal| matches!(literal, Literal::Text(text) if text.starts_with(self.prefix));
        if literals.iter().any(possible) { None } else { Some(false) }
    }

    fn evaluated(&self, node: &Node) -> Option<bool> {
        if !self.knows(node) {
            return None;
        }
        // The client's address is not asked for, so it does not matter how it is found.
        let addresses = Addresses::default();
        Run::new(&Request::new(&self.facts, &addresses)).condition(node).ok()
    }

    /// Whether all is known that a node asks for.
    fn knows(&self, node: &Node) -> bool {
        match node {
            Node::Literal(_) => true,
            Node::Fact { fact, .. } | Node::HasFact(fact) => match fact {
                Fact::Method | Fact::Route => true,
                Fact::Path => self.is_whole,
                _ => false,
            },
            Node::Not(of) | Node::Negate(of) | Node::Size(of) => self.knows(of),
            Node::InLiterals(of, _) | Node::Matches(of, _) | Node::Convert(_, of) => self.knows(of),
            Node::Compare(_, pair) | Node::Arithmetic(_, pair) => self.knows_all(pair.as_slice()),
            Node::In(pair) | Node::Text(_, pair) => self.knows_all(pair.as_slice()),
            Node::If(parts) => self.knows_all(parts.as_slice()),
            Node::All(nodes) | Node::Any(nodes) | Node::List(nodes) => self.knows_all(nodes),
            Node::Body | Node::Local(_) | Node::Field { .. } | Node::Has { .. } => false,
            Node::Index { .. } | Node::Each(_) => false,
        }
    }

    fn knows_all(&self, nodes: &[Node]) -> bool {
        nodes.iter().all(|node| self.knows(node))
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Condition;

    #[test]
    fn a_condition_is_certain_impossible_or_up_to_the_request() {
        let cases = [
            ("true", Some(true)),
            (r#"method == "GET""#, Some(true)),
            (r#"method in ["PUT", "POST"]"#, Some(false)),
            (r#"route == "/users/{id}""#, Some(true)),
            (r#"route.startsWith("/users/") && !(method == "POST")"#, Some(true)),
            (r#"route.matches("^/users/")"#, Some(true)),
            (r#"path.startsWith("/users")"#, Some(true)),
            (r#"path.startsWith("/users/me")"#, None),
            (r#"path.startsWith("/admin")"#, Some(false)),
            (r#"path == "/users/1""#, None),
            (r#"path == "/users""#, Some(false)),
            (r#""/admin" == path"#, Some(false)),
            (r#"path in ["/a", "/users/7"]"#, None),
            (r#"path in ["/a", "/b"]"#, Some(false)),
            (r#"path.endsWith("x")"#, None),
            (r#"path != "/users/1""#, None),
            (r#"identity.plan == "free""#, None),
            (r#"method == "POST" && identity.plan == "free""#, Some(false)),
            (r#"method == "GET" && identity.plan == "free""#, None),
            (r#"method == "GET" || header["x-a"] == "b""#, Some(true)),
            (r#"!has(header.x)"#, None),
            (r#"size(body.items) > 3"#, None),
            (r#"method == "GET" ? route == "/users/{id}" : false"#, Some(true)),
        ];
        for (text, expected) in cases {
            let condition = Condition::parse(text).unwrap();
            assert_eq!(condition.for_endpoint("GET", "/users/{id}"), expected, "{text}");
        }
    }

    #[test]
    fn a_route_without_parameters_is_its_path() {
        for (text, expected) in [(r#"path == "/a""#, true), (r#"path.endsWith("b")"#, false)] {
            assert_eq!(Condition::parse(text).unwrap().for_endpoint("GET", "/a"), Some(expected), "{text}");
        }
    }
}
