//! What can be wrong with a source before anything is asked, and what is never told.

use std::time::Duration;

use ratekeeper::policy::source::mongodb::{MongoSource, MongoSourceBuilder};

const URL: &str = "mongodb://ann:s3cret-word@127.0.0.1:1/?authSource=admin";

fn problem(source: MongoSourceBuilder) -> String {
    source.build().unwrap_err().to_string()
}

#[test]
fn a_wrong_setting_is_named() {
    let source = || MongoSource::builder(URL);
    let cases = [
        (source().database(""), "database: got \"\"; expected a name"),
        (source().database("a.b"), "database: got \"a.b\"; expected a name"),
        (source().collection("system.users"), "collection: got \"system.users\"; expected"),
        (source().collection("a$b"), "collection: got \"a$b\"; expected"),
        (source().services(Vec::<String>::new()), "services: got 0 names; expected 1 to 10000 names"),
        (source().services(["a", ""]), "services: got \"\"; expected names of 1 to 128"),
        (source().interval(Duration::ZERO), "interval: got 0ns; expected 100ms to 86400s"),
        (source().deadline(Duration::MAX), "deadline: got "),
        (
            source().copy("/no/such/folder/policies.json"),
            "copy: got \"/no/such/folder/policies.json\"; expected",
        ),
        (source().copy("/"), "copy: got \"/\"; expected the path of a file"),
    ];
    for (source, expected) in cases {
        let problem = problem(source);
        assert!(problem.starts_with(expected), "{problem}");
    }
}

/// A password may be in any part of a URL that is not understood.
#[test]
fn a_wrong_url_is_not_repeated() {
    let urls = [
        "",
        "s3cret-word",
        "s3cret-word://host",
        "redis://ann:s3cret-word@host",
        "mongodb://",
        "mongodb://ann:s3cret-word/@host:1",
        "mongodb://ann:s3cret-word?x=y@host",
        "mongodb://ann:99?appName=s3cret-word@host",
        "mongodb://host:s3cret-word",
        "mongodb://ann:s3cret-word@host/?tls=s3cret-word",
        "mongodb://ann:s3cret-word%@host",
    ];
    for url in urls {
        let error = MongoSource::builder(url).build().unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(error.to_string().starts_with("url: got "), "{shown}");
        assert!(!shown.contains("s3cret"), "{url}: {shown}");
    }
}

#[test]
fn nothing_shows_the_password() {
    let builder = MongoSource::builder(URL).services(["a"]);
    let shown = format!("{builder:?} {builder:#?}");
    let source = builder.build().unwrap();
    let shown = format!("{shown} {source:?}");
    assert!(!shown.contains("s3cret") && !shown.contains("ann"), "{shown}");
    assert!(shown.contains("mongodb://127.0.0.1:1/ratekeeper.policies"), "{shown}");
}

#[cfg(not(feature = "mongodb-srv"))]
#[test]
fn a_url_that_needs_another_feature_says_so() {
    let problem = problem(MongoSource::builder("mongodb+srv://ann:s3cret-word@cluster.example"));
    assert_eq!(
        problem,
        "url: got a URL with mongodb+srv://; expected mongodb://, or the feature `mongodb-srv` of this crate"
    );
}
