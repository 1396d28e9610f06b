//! Clients behind proxies.

use std::net::IpAddr;

use pyo3::prelude::*;
use ratekeeper::policy::{Network, ProxyHeader};

use crate::arguments::choice;
use crate::error::Failure;
use crate::policy::request::facts_of_headers;

/// How the address of a client is found behind proxies.
///
/// `trusted`: the proxies whose word is taken, addresses or networks (`"10.0.0.0/8"`). `header`: the one field that they
/// write, "x-forwarded-for" or "forwarded".
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Addresses {
    inner: ratekeeper::policy::Addresses,
    trusted: Vec<String>,
}

#[pymethods]
impl Addresses {
    #[new]
    #[pyo3(signature = (trusted, *, header = "x-forwarded-for"))]
    fn new(trusted: Vec<String>, header: &str) -> PyResult<Self> {
        let networks = trusted.iter().enumerate().map(|(index, text)| {
            let wrong =
                |expected| Failure::Input(format!("trusted[{index}]: got {text:?}; expected {expected}"));
            text.parse::<Network>().map_err(wrong)
        });
        let networks = networks.collect::<Result<Vec<_>, _>>()?;
        let headers =
            [("x-forwarded-for", ProxyHeader::XForwardedFor), ("forwarded", ProxyHeader::Forwarded)];
        let header = choice("header", header, &headers)?;
        let inner = ratekeeper::policy::Addresses::default().trust(networks).header(header);
        Ok(Self { inner, trusted })
    }

    /// The address of the client: `peer`, or the first address in the field, from the right, that is no trusted proxy.
    ///
    /// `headers`: pairs, in the order they came.
    fn client(&self, peer: &str, headers: &Bound<'_, PyAny>) -> PyResult<String> {
        let wrong = |_| Failure::Input(format!("peer: got {peer:?}; expected an IP address"));
        let peer = peer.parse::<IpAddr>().map_err(wrong)?;
        let facts = facts_of_headers(headers)?.peer(peer);
        Ok(self.inner.client(&facts).unwrap_or(peer).to_string())
    }

    fn __repr__(&self) -> String {
        format!("<Addresses: behind {}>", self.trusted.join(", "))
    }
}
