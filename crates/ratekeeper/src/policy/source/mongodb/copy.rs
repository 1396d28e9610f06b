//! The local copy: a file with the documents that are in force, for a start while the
//! server is away.
//!
//! It is a cache, not a configuration file: it is written anew whenever a policy changes,
//! whole or not at all, and only its owner can read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::policy::document::{Format, Node, Value};

/// The largest copy, in bytes; more is not written.
pub const COPY_BYTES_MAX: usize = 64 << 20;
/// What is in the file, as a number that grows.
const FORMAT: &str = "1";

/// A copy, which may be there or not.
#[derive(Clone, Debug)]
pub(super) struct LocalCopy {
    path: PathBuf,
    /// Of which collection it is: `database.collection`.
    of: String,
}

/// A document of a copy.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) service: String,
    pub(super) document: Node,
}

impl LocalCopy {
    pub(super) fn new(path: PathBuf, of: String) -> Self {
        Self { path, of }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The documents that were kept; `None` if nothing was kept yet.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub(super) fn read(&self) -> Result<Option<Vec<Copied>>, String> {
        let mut text = String::new();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let bound = COPY_BYTES_MAX as u64 + 1;
        file.take(bound).read_to_string(&mut text).map_err(|error| error.to_string())?;
        if text.len() > COPY_BYTES_MAX {
            return Err(format!("got more than {COPY_BYTES_MAX} bytes"));
        }
        self.parse(&text).map(Some)
    }

    fn parse(&self, text: &str) -> Result<Vec<Copied>, String> {
        type Fields<'t> = std::collections::HashMap<&'t str, &'t RawValue>;
        let not_a_copy = |error: serde_json::Error| format!("it is not a copy: {error}");
        let fields: Fields<'_> = serde_json::from_str(text).map_err(not_a_copy)?;
        let field = |name: &str| {
            let value = fields.get(name).map(|value| value.get());
            value.ok_or_else(|| format!("it is not a copy: got no `{name}`"))
        };
        if field("format")? != FORMAT {
            return Err("it is a copy in another format".to_owned());
        }
        if field("of")? != json_text(&self.of) {
            return Err(format!("it is a copy of another collection than {}", self.of));
        }
        let documents: Vec<&RawValue> = serde_json::from_str(field("documents")?).map_err(not_a_copy)?;
        documents.into_iter().map(|document| copied(document.get())).collect()
    }

    /// Writes documents, each of them JSON; what was there stays until all is written.
    ///
    /// # Errors
    /// Why it was not written.
    pub(super) fn write(&self, documents: &[Arc<str>]) -> Result<(), String> {
        let length: usize = documents.iter().map(|document| document.len() + 2).sum();
        if length > COPY_BYTES_MAX {
            return Err(format!("the documents have more than {COPY_BYTES_MAX} bytes"));
        }
        let documents = documents.join(",\n");
        let of = json_text(&self.of);
        let text = format!("{{\"format\": {FORMAT}, \"of\": {of}, \"documents\": [\n{documents}\n]}}\n");
        self.replace(text.as_bytes()).map_err(|error| error.to_string())
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(format!(".{}-{:016x}.tmp", std::process::id(), fastrand::u64(..)));
        let written = write_new(Path::new(&aside), content).and_then(|()| fs::rename(&aside, &self.path));
        if written.is_err() {
            // The reason for the failure is worth more than that of this one.
            let _ = fs::remove_file(&aside);
        }
        written
    }
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(content)?;
    // Otherwise a crash of the machine could leave an empty file under the name.
    file.sync_all()
}

fn copied(text: &str) -> Result<Copied, String> {
    let document =
        Node::parse("copy", Format::Json, text.as_bytes()).map_err(|problems| problems.to_string())?;
    let Value::Table(entries) = &document.value else {
        return Err("got a document without fields".to_owned());
    };
    let id = entries.iter().find(|entry| entry.key == "_id").map(|entry| &entry.node.value);
    let Some(Value::Text(service)) = id else { return Err("got a document without `_id`".to_owned()) };
    Ok(Copied { service: service.clone(), document })
}

/// A document as JSON. A date becomes a text, which is as good in a policy.
pub(super) fn json(document: &Node) -> String {
    let mut text = String::new();
    write_json(&document.value, &mut text);
    text
}

fn write_json(value: &Value, to: &mut String) {
    match value {
        Value::Null => to.push_str("null"),
        Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) => to.push_str(&number.to_string()),
        // With its point, so that it is read as a float again.
        Value::Float(number) => to.push_str(&format!("{number:?}")),
        Value::Text(text) | Value::Date(text) => to.push_str(&json_text(text)),
        Value::List(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                to.push_str(if index == 0 { "" } else { "," });
                write_json(&item.value, to);
            }
            to.push(']');
        }
        Value::Table(entries) => {
            to.push('{');
            for (index, entry) in entries.iter().enumerate() {
                to.push_str(if index == 0 { "" } else { "," });
                to.push_str(&json_text(&entry.key));
                to.push(':');
                write_json(&entry.node.value, to);
            }
            to.push('}');
        }
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
