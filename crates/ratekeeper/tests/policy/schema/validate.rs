//! As much of JSON Schema (draft 2020-12) as our schema uses. A keyword that is
//! not known here is an error, so that none is taken for checked.

use ratekeeper::policy::{Entry, Node, Value};

/// Keywords that only tell.
const NOTES: [&str; 8] =
    ["$schema", "$id", "$defs", "title", "description", "default", "examples", "$comment"];

pub(super) struct Schema {
    root: Node,
}

pub(super) fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Table(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == name).map(|entry| &entry.node)
}

fn list(node: &Node) -> &[Node] {
    if let Value::List(items) = &node.value { items } else { panic!("a list") }
}

fn table(node: &Node) -> &[Entry] {
    if let Value::Table(entries) = &node.value { entries } else { panic!("a table") }
}

pub(super) fn strings(node: &Node) -> Vec<String> {
    let text =
        |node: &Node| if let Value::Text(text) = &node.value { text.clone() } else { panic!("a text") };
    list(node).iter().map(text).collect()
}

/// Numbers compare as numbers, whatever they are kept as.
fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Integer(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}

fn is_equal(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        _ => number(a).map_or_else(|| a.value == b.value, |a| number(b) == Some(a)),
    }
}

fn is_a(node: &Node, kind: &str) -> bool {
    match (kind, &node.value) {
        ("object", Value::Table(_)) | ("array", Value::List(_)) | ("string", Value::Text(_)) => true,
        ("boolean", Value::Bool(_)) | ("integer", Value::Integer(_)) => true,
        ("integer", Value::Float(number)) => number.fract() == 0.0,
        ("object" | "array" | "string" | "boolean" | "integer", _) => false,
        _ => panic!("type {kind}"),
    }
}

/// What a keyword says about the number of things, if it says that.
fn size(keyword: &str, node: &Node) -> Option<f64> {
    let size = match (keyword, &node.value) {
        ("minItems" | "maxItems", Value::List(items)) => items.len(),
        ("minProperties" | "maxProperties", Value::Table(entries)) => entries.len(),
        ("minLength" | "maxLength", Value::Text(text)) => text.chars().count(),
        ("minimum" | "maximum", _) => return number(node),
        _ => return None,
    };
    Some(size as f64)
}

impl Schema {
    pub(super) fn new(root: Node) -> Self {
        Self { root }
    }

    pub(super) fn definition(&self, name: &str) -> &Node {
        field(field(&self.root, "$defs").unwrap(), name).unwrap_or_else(|| panic!("no definition of {name}"))
    }

    /// Whether a document fits, or why not.
    pub(super) fn validate(&self, document: &Node) -> Result<(), String> {
        self.check(&self.root, document, "")
    }

    fn fits(&self, schema: &Node, node: &Node) -> bool {
        self.check(schema, node, "").is_ok()
    }

    fn check(&self, schema: &Node, node: &Node, path: &str) -> Result<(), String> {
        if let Value::Bool(fits) = schema.value {
            return if fits { Ok(()) } else { Err(format!("{path}: nothing is allowed here")) };
        }
        for Entry { key, node: rule, .. } in table(schema) {
            let fits = match key.as_str() {
                known if NOTES.contains(&known) => true,
                "$ref" => {
                    let Value::Text(target) = &rule.value else { panic!("a text") };
                    self.check(self.definition(target.strip_prefix("#/$defs/").unwrap()), node, path)?;
                    true
                }
                "type" => matches!(&rule.value, Value::Text(kind) if is_a(node, kind)),
                "enum" => list(rule).iter().any(|value| is_equal(value, node)),
                "minItems" | "minProperties" | "minLength" | "minimum" => {
                    size(key, node).is_none_or(|size| size >= number(rule).unwrap())
                }
                "maxItems" | "maxProperties" | "maxLength" | "maximum" => {
                    size(key, node).is_none_or(|size| size <= number(rule).unwrap())
                }
                "anyOf" => list(rule).iter().any(|one| self.fits(one, node)),
                "not" => !self.fits(rule, node),
                "if" => {
                    let branch = if self.fits(rule, node) { "then" } else { "else" };
                    self.check(field(schema, branch).unwrap(), node, path)?;
                    true
                }
                "then" | "else" => true,
                "allOf" => {
                    list(rule).iter().try_for_each(|one| self.check(one, node, path))?;
                    true
                }
                "items" | "uniqueItems" => self.check_list(key, rule, node, path)?,
                _ => self.check_table(key, rule, schema, node, path)?,
            };
            if !fits {
                return Err(format!("{path}: {key} does not hold"));
            }
        }
        Ok(())
    }

    fn check_list(&self, key: &str, rule: &Node, node: &Node, path: &str) -> Result<bool, String> {
        let Value::List(items) = &node.value else { return Ok(true) };
        if key == "items" {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| self.check(rule, item, &format!("{path}[{index}]")))?;
            return Ok(true);
        }
        let twice = |(index, item): (usize, &Node)| items[..index].iter().any(|other| is_equal(other, item));
        Ok(!items.iter().enumerate().any(twice))
    }

    fn check_table(
        &self,
        key: &str,
        rule: &Node,
        schema: &Node,
        node: &Node,
        path: &str,
    ) -> Result<bool, String> {
        const KNOWN: [&str; 5] =
            ["properties", "additionalProperties", "propertyNames", "required", "dependentRequired"];
        assert!(KNOWN.contains(&key), "{key} is not known to this test");
        let Value::Table(entries) = &node.value else { return Ok(true) };
        let has = |names: &Node| strings(names).iter().all(|name| field(node, name).is_some());
        match key {
            "required" => return Ok(has(rule)),
            "dependentRequired" => {
                let mut dependent = table(rule).iter().filter(|entry| field(node, &entry.key).is_some());
                return Ok(dependent.all(|entry| has(&entry.node)));
            }
            _ => {}
        }
        for entry in entries {
            let path = format!("{path}.{}", entry.key);
            let listed = field(schema, "properties").and_then(|listed| field(listed, &entry.key));
            match (key, listed) {
                ("properties", Some(listed)) => self.check(listed, &entry.node, &path)?,
                ("additionalProperties", None) => self.check(rule, &entry.node, &path)?,
                ("propertyNames", _) => self.check(rule, &entry.key.as_str().into(), &path)?,
                _ => {}
            }
        }
        Ok(true)
    }
}
