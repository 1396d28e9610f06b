//! Stores are opened by their URL.

use ratekeeper::store::{URL_BYTES_MAX, open};
use ratekeeper::{Charge, Check, Key, Name, OpenOptions, OpenedStore, Quota, StoreUrl};
use ratekeeper_testkit::store_urls::{Place, SECRET, cases};

#[tokio::test]
async fn every_url_of_the_table_opens_or_says_what_is_wrong() {
    for case in cases() {
        // Without it, nothing knows what its client would say.
        if case.got.as_deref() == Some("") && !cfg!(feature = "redis") {
            continue;
        }
        let (url, place) = match (case.url.parse::<StoreUrl>(), case.place) {
            (Ok(url), Some(place)) => (url, place),
            (Err(error), None) => {
                case.assert_said("store", &error.to_string());
                continue;
            }
            (found, _) => panic!("{}: {found:?}", case.url),
        };
        assert_eq!(url.is_memory(), place == Place::Memory, "{}", case.url);
        assert!(!format!("{url} {url:?}").contains(SECRET), "{url:?}");
        match (open(&url, &OpenOptions::new()), place) {
            (Ok(OpenedStore::Memory(_)), Place::Memory) => {}
            #[cfg(feature = "redis")]
            (Ok(OpenedStore::Redis(store)), Place::Server) => {
                let error = store.ping().await.unwrap_err();
                assert!(!error.to_string().contains(SECRET), "{error}");
            }
            #[cfg(feature = "redis")]
            (Ok(OpenedStore::Spread(store)), Place::Server | Place::Servers) => {
                let error = store.ping().await.unwrap_err();
                assert!(!format!("{error} {store:?}").contains(SECRET), "{error}");
            }
            #[cfg(not(feature = "redis"))]
            (Err(error), Place::Server | Place::Servers) => {
                assert!(error.to_string().contains("the feature `redis`"), "{error}");
                assert!(!error.to_string().contains(SECRET), "{error}");
            }
            (found, _) => panic!("{}: {found:?}", case.url),
        }
    }
}

#[test]
fn memory_has_the_bounds_of_the_options() {
    let options = OpenOptions::new().memory(|memory| memory.max_keys(256));
    let opened = open(&StoreUrl::memory(), &options).unwrap();
    let OpenedStore::Memory(store) = &opened else { panic!("{opened:?}") };
    let quota: Quota = "1/d".parse().unwrap();
    for key in 0..5_000 {
        let subject = key.to_string();
        let charge = Charge::new(Key::new(Name::new("urls").unwrap(), &subject).unwrap(), &quota);
        store.decide(&Check::one(&charge)).unwrap();
    }
    assert_eq!(store.len(), 256);
}

#[test]
fn a_url_has_a_longest() {
    let url = |bytes: usize| format!("redis://127.0.0.1/{}", "0".repeat(bytes - "redis://127.0.0.1/".len()));
    assert!(url(URL_BYTES_MAX).parse::<StoreUrl>().is_ok());
    let error = url(URL_BYTES_MAX + 1).parse::<StoreUrl>().unwrap_err();
    assert_eq!(error.got, "4097 bytes, more than 4096");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_server_is_in_a_list_once() {
    let url: StoreUrl = "redis://127.0.0.1:1,rediss://ann:SECRET@127.0.0.1:1/0".parse().unwrap();
    let error = open(&url, &OpenOptions::new()).unwrap_err().to_string();
    assert_eq!(error, "store: got 127.0.0.1:1/0 twice; expected each server once");
    let several = "redis://:SECRET@127.0.0.1:1,redis://127.0.0.1:2";
    let error = ratekeeper::RedisStore::builder(several).build().unwrap_err().to_string();
    assert!(error.contains("expected one server; several are opened by ratekeeper::store::open"), "{error}");
    assert!(!error.contains(SECRET), "{error}");
}
