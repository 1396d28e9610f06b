//! Where a request comes from: a page in a browser, a proxy, or a program on this machine.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Version};

/// What the names of fields begin with that proxies add to what they pass on.
const PASSED_ON_PREFIXES: [&str; 10] = [
    "x-forwarded",
    "forwarded",
    "x-original-",
    "x-real-",
    "x-envoy-",
    "x-amz",
    "x-appengine-",
    "x-arr-",
    "x-azure-",
    "cf-",
];
/// Others of them, by their whole names.
const PASSED_ON: [&str; 13] = [
    "via",
    "cdn-loop",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "max-forwards",
    "proxy-connection",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-proxyuser-ip",
    "x-scheme",
    "x-script-name",
];

/// Whether a browser has sent it for a page.
///
/// A page of any site can make a browser send `text/plain` to every server that the browser reaches,
/// and does not need to be asked for that. The browser then says which origin the page has, also if its name was
/// made to resolve to this server; older ones leave that out of some requests, and newer ones say
/// whether it is another site.
pub(super) fn is_of_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|site| site != "none" && site != "same-origin")
}

/// Whether a request names this machine, and neither a page has sent it nor a proxy passed it on.
///
/// A proxy on this machine may pass on what anybody sends, and names this machine: it adds fields, or, as nginx
/// does by default, none and speaks HTTP/1.0, or HTTP/2 to a service of gRPC. What is sent to a proxy names its server
/// in the first line.
pub(super) fn is_local(request: &Parts) -> bool {
    let is_to_a_proxy = request.uri.authority().is_some() || request.uri.scheme().is_some();
    let is_passed_on = request.version != Version::HTTP_11
        || is_to_a_proxy
        || request.headers.keys().map(HeaderName::as_str).any(is_of_a_proxy);
    if is_of_a_page(&request.headers) || is_passed_on {
        return false;
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    match (hosts.next().map(http::HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => is_this_machine(host),
        _ => false,
    }
}

fn is_of_a_proxy(name: &str) -> bool {
    PASSED_ON.contains(&name) || PASSED_ON_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a `Host` is this machine, with a port or without, and nothing else.
fn is_this_machine(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            let is_loopback = address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
            return is_loopback && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let is_here = name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    is_here && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_local_at(uri: &str, fields: &[(&str, &str)]) -> bool {
        let mut request = http::Request::post(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        is_local(&parts)
    }

    #[test]
    fn a_host_is_a_name_and_a_port_and_nothing_else() {
        let here = [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.3.2.1:65535",
            "[::1]",
            "[::1]:8080",
        ];
        for host in here {
            assert!(is_this_machine(host), "{host}");
        }
        let elsewhere = [
            "",
            ":",
            ":80",
            "localhost:",
            "localhost:x@evil",
            "localhost:80@evil",
            "localhost:+80",
            "localhost:65536",
            "localhost: 80",
            "localhost:80:80",
            "localhost.evil",
            "user@localhost",
            "127.0.0.1:x",
            "127.0.0.1/evil",
            "127.1",
            "10.0.0.1",
            "::1",
            "[::1]evil",
            "[::1]:",
            "[::1]:x",
            "[::1]:80evil",
            "[::1].evil:80",
            "[::1",
            "[localhost]",
            "[127.0.0.1]",
            "[::1%lo]",
            "[2001:db8::1]:80",
            "example.org",
        ];
        for host in elsewhere {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn what_names_its_server_in_the_first_line_was_sent_to_a_proxy() {
        let host = [("host", "localhost")];
        assert!(is_local_at("/v1/reset", &host));
        for uri in ["http://localhost/v1/reset", "http://evil/v1/reset", "https://localhost:8080/v1/reset"] {
            assert!(!is_local_at(uri, &host), "{uri}");
        }
    }

    #[test]
    fn whatever_proxies_add_is_noticed() {
        let added = [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-prefix",
            "x-forwarded-scheme",
            "x-forwarded-client-cert",
            "x-forwarded",
            "x-real-ip",
            "x-original-uri",
            "x-envoy-external-address",
            "x-amzn-trace-id",
            "cf-connecting-ip",
            "true-client-ip",
        ];
        for name in added {
            assert!(!is_local_at("/v1/reset", &[("host", "localhost"), (name, "x")]), "{name}");
        }
        let own = [("host", "localhost"), ("user-agent", "curl"), ("accept", "*/*"), ("x-request-id", "1")];
        assert!(is_local_at("/v1/reset", &own));
        assert!(!is_local_at("/v1/reset", &[("host", "localhost"), ("host", "localhost")]));
    }
}
