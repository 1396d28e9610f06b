//! What a server says when it serves: where, and what to try.

use std::io::Write as _;
use std::net::SocketAddr;

use super::listener::Listener;

/// What listens where, and what is served.
pub(super) struct Introduction<'a> {
    pub(super) listener: &'a Listener,
    pub(super) operators: Option<&'a Listener>,
    pub(super) grpc: Option<&'a Listener>,
    pub(super) resp: Option<&'a Listener>,
    /// Where the dashboard is, if there is a way to make operators' calls.
    pub(super) shown_at: Option<SocketAddr>,
    pub(super) policy: &'a str,
    pub(super) store: &'a str,
    pub(super) has_demo: bool,
}

impl Introduction<'_> {
    /// Says it, for people.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let Self { listener, operators, grpc, resp, shown_at, policy, store, has_demo } = *self;
        let scheme = if listener.is_encrypted() { "https" } else { "http" };
        let base = format!("{scheme}://{}", reachable(listener.address()));
        let insecure = if listener.is_encrypted() { "k" } else { "" };
        let mut out = std::io::stdout().lock();
        writeln!(out, "ratekeeper {} serves", env!("CARGO_PKG_VERSION"))?;
        if let Some(address) = shown_at {
            writeln!(out, "  dashboard  {scheme}://{}/dashboard  (asks for a token)", reachable(address))?;
        }
        writeln!(out, "  HTTP       {base}  (calls: /openapi.json, metrics: /metrics)")?;
        if let Some(operators) = operators {
            writeln!(out, "  operators  {scheme}://{}", reachable(operators.address()))?;
        }
        if let Some(grpc) = grpc {
            let scheme = if grpc.is_encrypted() { "https" } else { "http" };
            writeln!(
                out,
                "  gRPC       {scheme}://{}  (Envoy's rate limit service)",
                reachable(grpc.address())
            )?;
        }
        if let Some(resp) = resp {
            let scheme = if resp.is_encrypted() { "rediss" } else { "redis" };
            writeln!(out, "  RESP       {scheme}://{}", reachable(resp.address()))?;
        }
        writeln!(out, "  policy     {policy}")?;
        writeln!(out, "  store      {store}")?;
        writeln!(out, "try")?;
        if has_demo && shown_at.is_some() {
            writeln!(
                out,
                "  open the dashboard, sign in with the token of operators, and press Start demo load"
            )?;
        }
        writeln!(
            out,
            "  curl -si{insecure} {base}/v1/limit -d '{{\"charges\":[{{\"key\":\"user:42\",\"quota\":\"3/min\"}}]}}'"
        )?;
        out.flush()
    }
}

/// An address that can be asked: everywhere is also here.
fn reachable(address: std::net::SocketAddr) -> std::net::SocketAddr {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        let here: std::net::IpAddr = match address {
            std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        reachable.set_ip(here);
    }
    reachable
}
