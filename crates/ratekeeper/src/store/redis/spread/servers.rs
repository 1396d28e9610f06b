//! Which of several independent servers a tag is on.

use std::collections::BTreeSet;

use ratekeeper_core::{InvalidInput, Key, Name};

use super::{Part, refused};
use crate::store::StoreUrl;

/// Rendezvous hashing: every server draws a number for a tag, and the highest has it. So all processes agree without
/// talking to each other, in whatever order they name the servers; a new server takes its share of the tags from all
/// others, and no tag moves between those.
#[derive(Debug)]
pub(super) struct Rendezvous(Box<[u64]>);

impl Rendezvous {
    /// The servers at these URLs. A server is what the URL says of its place: who to be to it, and whether over TLS, may
    /// change without moving anything.
    pub(super) fn new(urls: &[StoreUrl]) -> Result<Self, InvalidInput> {
        let places: Vec<String> = urls.iter().map(place).collect();
        let expected = "each server once";
        let twice = places.iter().enumerate().find(|(index, place)| places[..*index].contains(place));
        match twice {
            Some((_, place)) => Err(refused(format!("{place} twice"), expected)),
            None => Ok(Self(places.iter().map(|place| number_of(place.as_bytes())).collect())),
        }
    }

    pub(super) fn part_of(&self, tag: &[u8]) -> Part {
        let number = number_of(tag);
        let drawn = self.0.iter().enumerate().max_by_key(|(_, server)| mixed(number ^ **server));
        Part(drawn.map_or(0, |(index, _)| index as u16))
    }
}

/// Where a server is: the same for all URLs that lead to one database of it.
fn place(url: &StoreUrl) -> String {
    let Some(parts) = url.server_parts() else { return url.to_string() };
    let place = match (&parts.socket, &parts.sentinels) {
        (Some(socket), _) => socket.display().to_string(),
        (None, Some(sentinels)) => {
            // The same sentinels are the same server, in whatever order they are named.
            let hosts = sentinels.hosts.iter();
            let hosts = hosts.map(|(host, port)| format!("{}:{port}", host.to_ascii_lowercase()));
            let hosts: Vec<String> = hosts.collect::<BTreeSet<_>>().into_iter().collect();
            format!("{}/{}", hosts.join(","), sentinels.service)
        }
        (None, None) => format!("{}:{}", parts.host.to_ascii_lowercase(), parts.port),
    };
    format!("{place}/{}", parts.database)
}

/// A number for some bytes, the same in every process and version. Text that is too long for a key is not hashed
/// whole, which does no harm: places that long are refused as URLs, and tags are short.
fn number_of(bytes: &[u8]) -> u64 {
    let bytes = &bytes[..bytes.len().min(ratekeeper_core::SUBJECT_BYTES_MAX)];
    mixed(Key::new(Name::RAW, bytes).map_or(0, |key| key.digest()))
}

/// Spreads every bit over all of them: the end of `SplitMix64`.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::store::SERVERS_MAX;

    const TAGS: u32 = 20_000;

    fn servers(urls: &[&str]) -> Rendezvous {
        let urls: Vec<StoreUrl> = urls.iter().map(|url| url.parse().unwrap()).collect();
        Rendezvous::new(&urls).unwrap()
    }

    fn url(number: usize) -> String {
        format!("redis://10.0.0.{number}:6379")
    }

    /// The server of each tag, by its number in its URL.
    fn spread(numbers: &[usize]) -> Vec<usize> {
        let urls: Vec<String> = numbers.iter().map(|number| url(*number)).collect();
        let servers = servers(&urls.iter().map(String::as_str).collect::<Vec<_>>());
        let part_of = |tag: u32| servers.part_of(format!("org-{tag}").as_bytes());
        (0..TAGS).map(|tag| numbers[usize::from(part_of(tag).0)]).collect()
    }

    #[test]
    fn every_server_has_its_share_whatever_the_order() {
        for count in [2, 3, 5, SERVERS_MAX] {
            let numbers: Vec<usize> = (1..=count).collect();
            let (spread_so, reversed) =
                (spread(&numbers), spread(&numbers.iter().rev().copied().collect::<Vec<_>>()));
            assert_eq!(spread_so, reversed);
            let share = TAGS as usize / count;
            for server in numbers {
                let own = spread_so.iter().filter(|number| **number == server).count();
                assert!(own.abs_diff(share) < share / 5, "{own} of {count} servers' {share}");
            }
        }
    }

    #[test]
    fn a_new_server_takes_its_share_and_nothing_else_moves() {
        let (three, four) = (spread(&[1, 2, 3]), spread(&[1, 2, 3, 4]));
        let moved: Vec<usize> = three
            .iter()
            .zip(&four)
            .filter(|(before, after)| before != after)
            .map(|(_, after)| *after)
            .collect();
        assert!(moved.iter().all(|server| *server == 4));
        assert!(moved.len().abs_diff(TAGS as usize / 4) < TAGS as usize / 20, "{}", moved.len());
    }

    /// Another answer in another version would give every counter a second one in a rolling upgrade.
    #[test]
    fn tags_stay_where_they_are() {
        let servers = servers(&["redis://a", "redis://b:7000/2", "redis+unix:///run/c.sock"]);
        let parts: Vec<u16> =
            ["acme", "7", "user:42", "10.0.0.7"].map(|tag| servers.part_of(tag.as_bytes()).0).to_vec();
        assert_eq!(parts, [2, 2, 0, 1]);
    }

    /// Each process lists its nearest sentinel first.
    #[test]
    fn sentinels_are_the_same_in_any_order() {
        let spread_by = |sentinels: &str| {
            let servers = servers(&["redis://x", &format!("redis+sentinel://{sentinels}/s"), "redis://z"]);
            (0..500).map(|tag| servers.part_of(format!("org-{tag}").as_bytes()).0).collect::<Vec<_>>()
        };
        let first = spread_by("a,b:7000,c");
        assert!(first.contains(&1));
        for same in ["c,a,b:7000", "B:7000,C,A:26379", "a,b:7000,c"] {
            assert_eq!(spread_by(same), first, "{same}");
        }
        for other in ["a,b,c", "a,b:7000", "a,b:7000,d"] {
            assert_ne!(spread_by(other), first, "{other}");
        }
        let urls = ["redis+sentinel://a,b/s", "redis+sentinel://B,A/s"].map(|url| url.parse().unwrap());
        let error = Rendezvous::new(&urls).unwrap_err().to_string();
        assert!(error.contains("a:26379,b:26379/s/0 twice"), "{error}");
    }

    #[test]
    fn a_server_is_where_it_is_whoever_asks_it_and_how() {
        let same = [
            "redis://a/0",
            "redis://A:6379",
            "rediss://ann:secret@a:6379/0",
            "valkey://:other@a?protocol=resp3",
        ];
        for one in same {
            for other in same {
                let urls = [one, other].map(|url| url.parse::<StoreUrl>().unwrap());
                let error = Rendezvous::new(&urls).unwrap_err().to_string();
                assert_eq!(error, "store: got a:6379/0 twice; expected each server once");
            }
        }
        servers(&["redis://a/0", "redis://a/1", "redis://a:6380", "unix:///a", "redis+sentinel://a,b/s"]);
    }
}
