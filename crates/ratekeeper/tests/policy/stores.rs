//! The store that a policy names.

use ratekeeper_testkit::store_urls::{Place, SECRET, cases};

#[test]
fn every_url_of_the_table_is_read_or_refused() {
    for case in cases() {
        // Without it, nothing knows what its client would say.
        if case.got.as_deref() == Some("") && !cfg!(feature = "redis") {
            continue;
        }
        let text = format!(
            "service = \"a\"\nstore = '{}'\n[[rules]]\nname = \"b\"\nkeys = \"all\"\nquota = \"9/s\"\n",
            case.url
        );
        match (crate::toml(&text), case.place) {
            (Ok(spec), Some(place)) => {
                let url = spec.store.as_ref().unwrap();
                assert_eq!(url.is_memory(), place == Place::Memory, "{}", case.url);
                assert!(!format!("{spec:?}").contains(SECRET), "{spec:?}");
            }
            (Err(problems), None) => case.assert_said("store", &problems.to_string()),
            (found, _) => panic!("{}: {found:?}", case.url),
        }
    }
}
