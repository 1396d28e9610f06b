//! URLs that name several servers: `redis://a,redis://b`.

use super::StoreUrl;
use super::url::schemes;

/// The most servers that a URL may name.
pub const SERVERS_MAX: usize = 16;

/// The URLs of the servers in a list of them; one, if it is none. A comma is between two only if the scheme of a store
/// follows: sentinels have commas in between, too, and passwords may have them.
pub(super) fn split(text: &str) -> Vec<&str> {
    let mut urls = Vec::new();
    let mut start = 0;
    for (comma, _) in text.match_indices(',') {
        if begins_with_scheme(&text[comma + 1..]) {
            urls.push(&text[start..comma]);
            start = comma + 1;
        }
    }
    urls.push(&text[start..]);
    urls
}

fn begins_with_scheme(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else { return false };
    schemes().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// Reads each of several URLs, or says what is wrong with which.
pub(super) fn read(urls: &[&str]) -> Result<(), String> {
    let count = urls.len();
    if count > SERVERS_MAX {
        return Err(format!("{count} servers, more than {SERVERS_MAX}"));
    }
    for (index, url) in urls.iter().enumerate() {
        let of = |got: String| format!("server {} of {count}: {got}", index + 1);
        let url = StoreUrl::read_one(url).map_err(of)?;
        if url.is_memory() {
            return Err(of("memory, which is no server".to_owned()));
        }
        if url.has_nodes() {
            return Err(of("a cluster, which spreads its keys by itself".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_is_between_servers_where_a_scheme_follows() {
        let cases: [(&str, &[&str]); 6] = [
            ("redis://a", &["redis://a"]),
            ("redis://a,rediss://b,VALKEY://c", &["redis://a", "rediss://b", "VALKEY://c"]),
            (
                "redis+sentinel://a,b/s,redis+sentinel://c,d/s",
                &["redis+sentinel://a,b/s", "redis+sentinel://c,d/s"],
            ),
            ("redis://:p,a,ss@a,redis://:,@b", &["redis://:p,a,ss@a", "redis://:,@b"]),
            ("redis://a,b", &["redis://a,b"]),
            ("redis://a,", &["redis://a,"]),
        ];
        for (text, urls) in cases {
            assert_eq!(split(text), urls, "{text}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn several_servers_are_shown_without_their_secrets() {
        let url: StoreUrl =
            "redis://ann:s3cret@a/1,rediss://:s3,cret@b:1,unix:///c?pass=s3cret".parse().unwrap();
        assert_eq!(url.to_string(), "redis://a/1,rediss://b:1,unix:///c");
        let servers: Vec<String> = url.servers().iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["redis://a/1", "rediss://b:1", "unix:///c"]);
        assert!(url.has_several() && !url.is_tls() && !url.is_memory() && url.server_parts().is_none());
        let one: StoreUrl = "redis://ann:s3cret@a/1".parse().unwrap();
        assert_eq!((one.has_several(), one.servers()), (false, vec![one.clone()]));
        assert!("rediss://a,rediss://b".parse::<StoreUrl>().unwrap().is_tls());
        assert!(StoreUrl::memory().servers().is_empty());
    }
}
