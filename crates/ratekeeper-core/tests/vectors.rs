//! The model against the decision tables of `testdata/vectors`.

#[test]
fn the_model_follows_the_tables() {
    let steps = ratekeeper_testkit::vectors::run_all_of_stores(ratekeeper_testkit::ModelEngine::default);
    assert!(steps >= 200, "{steps}");
    println!("{steps} steps");
}
