//! Settings of Envoy's rate limit service.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;
use tokio_rustls::TlsAcceptor;

use super::{Settings, address};
use crate::serve::api::Api;
use crate::serve::grpc::Grpc;
use crate::serve::listener::{Listener, Stop};

/// Where it is spoken, unless told otherwise: where Envoy's own is, and nobody else can reach it.
pub const GRPC_DEFAULT: &str = "127.0.0.1:8081";
/// The word for nowhere.
const OFF: &str = "off";

/// What is said of it.
#[derive(Debug)]
pub(in crate::serve) struct GrpcConfig {
    address: SocketAddr,
    /// Whether somebody asked for this address: then the server does not start without it.
    is_asked_for: bool,
    takes_refunds: bool,
    is_each: bool,
}

impl GrpcConfig {
    pub(super) fn of(settings: &Settings) -> anyhow::Result<Option<Self>> {
        let (takes_refunds, is_each) =
            (settings.grpc_refunds.unwrap_or(false), settings.grpc_each_descriptor.unwrap_or(false));
        let text = settings.grpc.as_deref().unwrap_or(GRPC_DEFAULT);
        if text == OFF {
            let said = [("grpc-refunds", takes_refunds), ("grpc-each-descriptor", is_each)];
            if let Some((name, _)) = said.into_iter().find(|(_, is_said)| *is_said) {
                bail!("{name}: got grpc=off beside it; expected one of them");
            }
            return Ok(None);
        }
        // With settings of its own, it is asked for.
        let is_asked_for = settings.grpc.is_some() || takes_refunds || is_each;
        Ok(Some(Self { address: address("grpc", text)?, is_asked_for, takes_refunds, is_each }))
    }

    /// Listens there. Where nobody asked for it, the server goes on without.
    pub(in crate::serve) fn bind(
        self,
        api: &Arc<Api>,
        stop: &Stop,
        tls: Option<TlsAcceptor>,
    ) -> anyhow::Result<Option<Listener>> {
        let grpc = Grpc::new(Arc::clone(api), stop.clone());
        let grpc = grpc.with_refunds(self.takes_refunds).each_descriptor(self.is_each);
        match Listener::bind(self.address, tls, Arc::new(grpc)) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if self.is_asked_for => Err(error),
            Err(error) => {
                tracing::warn!(
                    error = %format!("{error:#}").lines().next().unwrap_or_default(),
                    "Envoy's rate limit service is not served; --grpc says where to, or off"
                );
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spoken_unless_it_is_off() {
        let of = |grpc: Option<&str>, refunds| {
            GrpcConfig::of(&Settings {
                grpc: grpc.map(str::to_owned),
                grpc_refunds: refunds,
                ..Settings::default()
            })
        };
        let default = of(None, None).unwrap().unwrap();
        assert_eq!((default.address.to_string().as_str(), default.is_asked_for), (GRPC_DEFAULT, false));
        assert!(of(Some("127.0.0.1:1"), None).unwrap().unwrap().is_asked_for);
        assert!(of(None, Some(true)).unwrap().unwrap().is_asked_for);
        assert!(of(Some("off"), None).unwrap().is_none());
        let error = |grpc, refunds| of(Some(grpc), refunds).unwrap_err().to_string();
        assert!(error("off", Some(true)).starts_with("grpc-refunds: got grpc=off beside it"));
        assert!(error("8081", None).starts_with("grpc: got `8081`; expected an address"));
    }
}
