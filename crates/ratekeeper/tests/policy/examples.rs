//! The policies under `examples/policies`, and those in the documentation.

use ratekeeper::policy::{CompileOptions, Format, Policy, PolicySpec};

#[test]
fn every_example_is_a_policy() {
    let examples = crate::policies("examples/policies");
    assert!(examples.len() >= 7, "{examples:?}");
    for path in examples {
        let spec = crate::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(!spec.rules.is_empty());
        let policy = crate::compile(&path).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(policy.warnings(), [], "{}", path.display());
        // `layered.toml` is the policy of the service `layered`.
        assert_eq!(path.file_stem().unwrap().to_str(), Some(spec.service.as_str()), "{}", path.display());
    }
}

/// Blocks without `service` are rules, those without `[[rules]]` fields of one.
#[test]
fn every_policy_in_the_documentation_is_one() {
    let text = std::fs::read_to_string(crate::root().join("docs/policies.md")).unwrap();
    let mut count = 0;
    for (format, language) in
        [(Format::Toml, "```toml\n"), (Format::Yaml, "```yaml\n"), (Format::Json, "```json\n")]
    {
        for block in text.split(language).skip(1).filter_map(|rest| rest.split("```").next()) {
            let policy = match format {
                Format::Toml if block.contains("service = ") => block.to_owned(),
                Format::Toml if block.contains("[[rules]]") => format!("service = 'a'\n{block}"),
                Format::Toml => {
                    format!("service = 'a'\n[[rules]]\nname = 'b'\nkeys = 'all'\nquota = '1/s'\n{block}")
                }
                Format::Yaml | Format::Json => block.to_owned(),
            };
            let spec = PolicySpec::read("docs/policies.md", format, policy.as_bytes());
            let compiled = spec.and_then(|spec| Policy::compile(&spec, "docs", &CompileOptions::default()));
            compiled.unwrap_or_else(|problems| panic!("{problems}\nin\n{policy}"));
            count += 1;
        }
    }
    assert!(count >= 8, "only {count} policies found");
}
