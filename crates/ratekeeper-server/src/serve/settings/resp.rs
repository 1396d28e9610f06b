//! What is said of the Redis protocol.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;
use ratekeeper::OnOutage;
use tokio_rustls::TlsAcceptor;

use super::{Settings, address, word};
use crate::serve::admin::Keyring;
use crate::serve::api::Api;
use crate::serve::listener::Listener;
use crate::serve::resp::Resp;

/// Where the Redis protocol is spoken, and how.
#[derive(Debug)]
pub(in crate::serve) struct RespConfig {
    address: SocketAddr,
    pub(in crate::serve) password: Option<Arc<Keyring>>,
    on_outage: OnOutage,
}

impl RespConfig {
    /// Nothing if it is spoken nowhere.
    pub(super) fn of(settings: &Settings) -> anyhow::Result<Option<Self>> {
        let on_outage = word("resp-on-outage", settings.resp_on_outage.as_deref(), &OnOutage::NAMES)?;
        let Some(text) = &settings.resp else {
            let said = [
                ("resp-password-file", settings.resp_password_file.is_some()),
                ("resp-on-outage", settings.resp_on_outage.is_some()),
            ];
            if let Some((name, _)) = said.into_iter().find(|(_, is_said)| *is_said) {
                bail!("{name}: expected resp beside it");
            }
            return Ok(None);
        };
        let address = address("resp", text)?;
        let file = settings.resp_password_file.clone();
        let password = file.map(|file| Keyring::of_password(file, "resp-password-file")).transpose()?;
        if password.is_none() && !address.ip().is_loopback() {
            bail!(
                "resp: {address} can be reached from outside, where anybody could use up limits and see who is limited; \
                 expected a loopback address\nhint: --resp-password-file sets a password, which clients send with AUTH"
            );
        }
        Ok(Some(Self { address, password: password.map(Arc::new), on_outage }))
    }

    /// Listens there.
    pub(in crate::serve) fn bind(self, api: &Arc<Api>, tls: Option<TlsAcceptor>) -> anyhow::Result<Listener> {
        let resp = Resp::new(Arc::clone(api), self.password).on_outage(self.on_outage);
        Listener::bind(self.address, tls, Arc::new(resp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let some = |text: &str| Some(text.to_owned());
        let (nothing, password) = (Settings::default, Some("/nowhere".into()));
        let inside = || Settings { resp: some("127.0.0.1:0"), ..nothing() };
        let outside = || Settings { resp: some("0.0.0.0:6379"), ..nothing() };
        let cases = [
            (Settings { resp: some("6379"), ..nothing() }, "resp: got `6379`; expected an address"),
            (outside(), "resp: 0.0.0.0:6379 can be reached from outside, where anybody could use up limits"),
            (Settings { resp_password_file: password.clone(), ..outside() }, "resp-password-file: /nowhere"),
            (Settings { resp_password_file: password, ..nothing() }, "resp-password-file: expected resp"),
            (
                Settings { resp_on_outage: some("deny"), ..nothing() },
                "resp-on-outage: expected resp beside it",
            ),
            (
                Settings { resp_on_outage: some("error"), ..inside() },
                "resp-on-outage: got `error`; expected allow or local or deny",
            ),
        ];
        for (settings, start) in cases {
            let error = format!("{:#}", RespConfig::of(&settings).unwrap_err());
            assert!(error.starts_with(start), "{error}");
        }
        assert!(RespConfig::of(&nothing()).unwrap().is_none());
        assert!(RespConfig::of(&inside()).unwrap().is_some());
    }
}
