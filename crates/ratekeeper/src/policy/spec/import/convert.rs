//! From files of other limiters to policies in our own words, once.

use super::limitador;
use super::ratelimit::Sheet;
use super::write;
use crate::policy::document::{Format, Node, Place};
use crate::policy::problem::{Problem, Problems};
use crate::policy::spec::PolicySpec;

const WHAT_IS_CONVERTED: &str = "`domain` and `descriptors`, as envoyproxy/ratelimit has them, or the list of limits that Limitador has; \
     a policy of Ratekeeper needs no conversion";

/// A file of another limiter.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// What problems call it.
    pub source: String,
    /// What it is written in.
    pub format: Format,
    /// What is in it.
    pub document: Vec<u8>,
}

/// The policy of one service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The policy.
    pub spec: PolicySpec,
    /// The same in TOML.
    pub toml: String,
    /// What was left out, or means a little less here.
    pub warnings: Vec<Problem>,
}

/// What files are of, which are converted together.
enum Read {
    Sheet(Sheet),
    Limits(Vec<limitador::Namespace>),
}

/// Converts files of envoyproxy/ratelimit and Limitador: a policy for every domain and namespace in them, in the order of
/// the files. Files for one domain are put together.
///
/// ```
/// use ratekeeper::policy::Format;
/// use ratekeeper::policy::import::{Foreign, convert};
///
/// let document = b"domain: shop\ndescriptors:\n- key: user\n  rate_limit: { unit: minute, requests_per_unit: 60 }\n";
/// let file = Foreign { source: "shop.yaml".into(), format: Format::Yaml, document: document.to_vec() };
/// let converted = convert(&[file])?;
/// assert!(converted[0].toml.contains("quota = \"60/min fixed_window aligned\""), "{}", converted[0].toml);
/// # Ok::<(), ratekeeper::policy::Problems>(())
/// ```
///
/// # Errors
/// Everything that is wrong with them, or has no words here.
pub fn convert(files: &[Foreign]) -> Result<Vec<Converted>, Problems> {
    let (mut sheets, mut namespaces, mut wrong) = (Vec::new(), Vec::new(), None);
    for file in files {
        match read(file) {
            Ok(Read::Sheet(sheet)) => sheets.push((file, sheet)),
            Ok(Read::Limits(limits)) => namespaces.extend(limits),
            Err(problems) => wrong = Some(and(wrong, problems)),
        }
    }
    let mut domains: Vec<(String, String, Vec<Sheet>)> = Vec::new();
    for (file, sheet) in sheets {
        match domains.iter_mut().find(|(domain, ..)| domain == sheet.domain()) {
            Some((_, from, sheets)) => {
                from.push_str(&format!(" and {}", file.source));
                sheets.push(sheet);
            }
            None => domains.push((sheet.domain().to_owned(), file.source.clone(), vec![sheet])),
        }
    }
    let mut converted = Vec::new();
    for (_, from, sheets) in domains {
        match Sheet::converted(sheets) {
            Ok((spec, warnings)) => converted.push(Converted::new(spec, &from, warnings)),
            Err(problems) => wrong = Some(and(wrong, problems)),
        }
    }
    for namespace in limitador::together(namespaces) {
        match namespace.policy() {
            Ok(spec) => converted.push(Converted::new(spec, namespace.source(), Vec::new())),
            Err(problems) => wrong = Some(and(wrong, problems)),
        }
    }
    wrong.map_or(Ok(converted), Err)
}

impl Converted {
    fn new(spec: PolicySpec, from: &str, warnings: Vec<Problem>) -> Self {
        Self { toml: write::toml(&spec, from, &warnings), spec, warnings }
    }
}

fn and(known: Option<Problems>, more: Problems) -> Problems {
    match known {
        Some(known) => known.and(more),
        None => more,
    }
}

fn read(file: &Foreign) -> Result<Read, Problems> {
    let Foreign { source, format, document } = file;
    let node = Node::parse(source, *format, document)?;
    if let Some(sheet) = Sheet::of(source, *format, document, &node) {
        return sheet.map(Read::Sheet);
    }
    if let Some(limits) = limitador::read(source, &node) {
        return limits.map(Read::Limits);
    }
    let problem = Problem::new(Place::UNKNOWN, "", "a document of another kind", WHAT_IS_CONVERTED);
    Err(Problems::of(source, [problem]))
}
