//! The one spelling of any path. Run: `make fuzz TARGET=paths`.
#![no_main]

use std::borrow::Cow;

use ratekeeper::policy::canonical_path;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(path) = std::str::from_utf8(bytes) else { return };
    let one = canonical_path(path);
    assert!(one.is_ascii(), "{path:?} is {one:?}");
    assert!(matches!(canonical_path(&one), Cow::Borrowed(_)), "{path:?} is {one:?}, which is another path");
    // Another spelling of the same: every character escaped, unless it separates or belongs to an escape.
    if !one.contains('%') {
        let escaped: String = one
            .chars()
            .map(|letter| if letter == '/' { "/".to_owned() } else { format!("%{:02x}", u32::from(letter)) })
            .collect();
        assert_eq!(canonical_path(&escaped), one, "{path:?}");
    }
});
