use super::*;

#[test]
fn bounds_are_named_in_errors() {
    let second = Duration::from_secs(1);
    let cases = [
        (
            Quota::token_bucket(u64::MAX, second),
            "limit: got 18446744073709551615; expected a whole number from 0 to 1000000000",
        ),
        (
            Quota::new(Algorithm::SlidingLog, 10_001, second),
            "limit: got 10001; expected a whole number from 0 to 10000",
        ),
        (Quota::new(Algorithm::Concurrency, 10_001, second), "from 0 to 10000"),
        (
            Quota::token_bucket(1, Duration::ZERO),
            "window: got 0ns; expected a whole number from 1 to 31622400000 milliseconds",
        ),
        (Quota::token_bucket(1, Duration::from_micros(1_500)), "window: got 1.5ms; expected a whole number"),
        (Quota::token_bucket(1, Duration::MAX), "366 days"),
        (Quota::token_bucket(1, second).and_then(|q| q.with_burst(0)), "burst: got 0"),
        (
            Quota::token_bucket(1, second).and_then(|q| q.with_queue(1)),
            "queue: got a queue on token_bucket; expected leaky_bucket",
        ),
        (
            Quota::new(Algorithm::FixedWindow, 1, second).and_then(|q| q.with_burst(1)),
            "burst: got a burst on fixed_window; expected token_bucket",
        ),
    ];
    for (result, expected) in cases {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
}

#[test]
fn an_override_keeps_the_shape_of_a_quota() {
    let bucket: Quota = "10/s burst 20".parse().unwrap();
    assert_eq!(bucket.overridden(100, None).to_string(), "100/s burst 200");
    let month: Quota = "10 per calendar month".parse().unwrap();
    assert_eq!(month.overridden(5, None).to_string(), "5/calendar month");
    let minute = Some(Duration::from_secs(60));
    assert_eq!(month.overridden(5, minute).to_string(), "5/min fixed_window");
    let drip: Quota = "5/s leaky_bucket queue 3".parse().unwrap();
    assert_eq!(drip.overridden(9, None).to_string(), "9/s leaky_bucket queue 3");
    let aligned: Quota = "10/15min fixed_window aligned".parse().unwrap();
    assert_eq!(aligned.overridden(5, None).to_string(), "5/15min fixed_window aligned");
    assert_eq!(aligned.overridden(5, minute).to_string(), "5/min fixed_window aligned");
}

#[test]
fn an_override_beyond_a_bound_means_the_bound() {
    let wild = |text: &str, limit, window| {
        let quota = text.parse::<Quota>().unwrap().overridden(limit, window);
        (quota.limit(), quota.capacity(), quota.window().as_millis())
    };
    let longest = u128::from(WINDOW_MILLIS_MAX);
    assert_eq!(wild("5/s sliding_log", 10_001, None), (10_000, 10_000, 1_000));
    assert_eq!(wild("5/s", u64::MAX, Some(Duration::ZERO)), (LIMIT_MAX, LIMIT_MAX, 1));
    assert_eq!(wild("5/s burst 50", 7, Some(Duration::MAX)), (7, 7, longest), "a burst of a year's refill");
    assert_eq!(wild("5/s leaky_bucket queue 9", 7, Some(Duration::MAX)), (7, 8, longest));
    for algorithm in Algorithm::ALL {
        let closed = Quota::new(algorithm, 5, Duration::from_secs(1)).unwrap().overridden(0, None);
        assert!(closed.is_closed(), "{algorithm}");
        assert_eq!((closed.capacity(), closed.cost_max()), (0, 0), "{algorithm}");
        let plain = Quota::new(algorithm, 0, Duration::from_secs(1)).unwrap();
        assert_eq!((plain.is_closed(), plain), (true, closed), "{algorithm}: said by the quota itself");
        let opened = Quota::new(algorithm, 5, Duration::from_secs(1)).unwrap();
        assert_eq!(plain.overridden(5, None), opened, "{algorithm}: an override opens it");
    }
}
