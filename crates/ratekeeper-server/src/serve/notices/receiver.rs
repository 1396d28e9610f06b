//! The receiver of notices: signed as Standard Webhooks has it, which libraries of many languages verify.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use super::Notice;
use crate::files;
use crate::serve::post::{Named, Target};

/// How settings call it.
const RECEIVER: Named = Named {
    url: "notify-url",
    authority: "notify-ca",
    example: "https://hooks.example.org/ratekeeper",
    port_default: 80,
};
/// The shortest and the longest secret, in bytes.
const SECRET_BYTES_MIN: usize = 24;
const SECRET_BYTES_MAX: usize = 512;
/// The longest file with a secret, in bytes: there may be blanks around it.
const SECRET_FILE_BYTES_MAX: u64 = 1_024;
/// What stands before a secret that is written in base64.
const SECRET_PREFIX: &str = "whsec_";
/// How often a notice is sent at most, ...
const TRIES_MAX: u32 = 6;
/// ... how long is waited after the first time, then twice as long each time, ...
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// ... up to this.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Shares of a quota that can be told of.
const PERCENTS_MAX: usize = 5;
/// They are half of it at least: what is less is not looked at.
const PERCENT_MIN: u64 = 50;
/// How long limits must hold again before that is told.
const QUIET: Duration = Duration::from_secs(10);

/// Who receives notices, and of what.
pub struct Receiver {
    target: Target,
    secret: hmac::Key,
    pub(super) percents: Vec<u64>,
    pub(super) quiet: Duration,
    wait_first: Duration,
    is_failing: AtomicBool,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Receiver {
    /// The receiver at a URL, where `authority` is a file with those to trust for https://; a file has the secret that
    /// notices are signed with.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn at(url: &str, authority: Option<&Path>, secret: &Path) -> anyhow::Result<Self> {
        let target = Target::at(RECEIVER, url, authority)?;
        let text = files::text(secret, SECRET_FILE_BYTES_MAX).context("notify-secret-file")?;
        let secret = secret_of(&text).context("notify-secret-file")?;
        Ok(Self {
            target,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            percents: vec![80, 100],
            quiet: QUIET,
            wait_first: WAIT_FIRST,
            is_failing: AtomicBool::new(false),
        })
    }

    /// Of which shares of a quota it is told, in percent, with commas between them.
    ///
    /// # Errors
    /// If that is something else.
    pub fn percents(self, text: &str) -> anyhow::Result<Self> {
        let percents: Option<Vec<u64>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
        let percents = percents.filter(|percents| {
            percents.len() <= PERCENTS_MAX
                && percents.iter().all(|percent| (PERCENT_MIN..=100).contains(percent))
        });
        let percents = percents.with_context(|| {
            format!(
                "notify-at: got `{text}`; expected up to {PERCENTS_MAX} shares of {PERCENT_MIN} to 100 percent, such as \
                 80,100"
            )
        })?;
        Ok(Self { percents, ..self })
    }

    /// How long is waited before a notice is sent again, and how long limits must hold before that is told.
    #[must_use]
    pub fn patience(self, wait_first: Duration, quiet: Duration) -> Self {
        Self { wait_first, quiet, ..self }
    }

    /// Sends a notice, a few times if it is not taken; says whether it was.
    pub(super) async fn send(&self, notice: &Notice) -> bool {
        let mut wait = self.wait_first;
        for tries_left in (0..TRIES_MAX).rev() {
            if self.send_once(notice).await.is_ok() {
                return true;
            }
            if tries_left > 0 {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
        }
        false
    }

    /// A line when it begins to fail and one when that is over, not one every time; without the URL, which may be a
    /// secret itself.
    pub(super) async fn send_once(&self, notice: &Notice) -> anyhow::Result<()> {
        let body = notice.document.to_string();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let fields = self.signed(&notice.id, seconds, &body);
        let sent = self.target.post(&self.target.itself(), &fields, body.into_bytes()).await;
        let was_failing = self.is_failing.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            Err(error) if !was_failing => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the receiver of notices does not take what it is sent");
            }
            Ok(()) if was_failing => {
                tracing::info!("the receiver of notices takes what it is sent again");
            }
            _ => {}
        }
        sent
    }

    /// The header fields by which a receiver tells a notice from what anybody sends.
    fn signed(&self, id: &str, seconds: u64, body: &str) -> [(&'static str, String); 3] {
        let mac = hmac::sign(&self.secret, format!("{id}.{seconds}.{body}").as_bytes());
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", format!("v1,{}", STANDARD.encode(mac))),
        ]
    }
}

fn secret_of(text: &str) -> anyhow::Result<Vec<u8>> {
    let text = text.trim();
    let secret = match text.strip_prefix(SECRET_PREFIX) {
        Some(encoded) => {
            let decoded = STANDARD.decode(encoded);
            decoded.ok().with_context(|| format!("expected base64 behind {SECRET_PREFIX}"))?
        }
        None => text.as_bytes().to_vec(),
    };
    if text.lines().count() > 1 {
        bail!("got more than one line; expected one secret");
    }
    ensure!(
        (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()),
        "got a secret of {} bytes; expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}, such as what \
         `openssl rand -base64 32` prints",
        secret.len()
    );
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let receiver = Receiver::at("http://127.0.0.1:1/hook", None, &file).unwrap();
        let fields =
            receiver.signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(fields[2].1, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(!format!("{receiver:?}").contains("hook"));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let at = |url: &str, secret: &str| {
            std::fs::write(&file, secret).unwrap();
            format!("{:#}", Receiver::at(url, None, &file).unwrap_err())
        };
        let good = "0123456789abcdef0123456789abcdef";
        let cases = [
            (at("hooks.example.org", good), "notify-url: "),
            (at("ftp://h", good), "notify-url: "),
            (at("http://ann:pass@h", good), "notify-url: "),
            (at("http://h", "short"), "notify-secret-file: got a secret of 5 bytes"),
            (at("http://h", "whsec_!!"), "notify-secret-file: expected base64"),
            (at("http://h", &format!("{good}\n{good}")), "notify-secret-file: got more than one line"),
        ];
        for (error, start) in cases {
            assert!(error.starts_with(start) && !error.contains(good), "{error}");
        }
        std::fs::write(&file, good).unwrap();
        let receiver = || Receiver::at("http://127.0.0.1:1", None, &file).unwrap();
        assert_eq!(receiver().percents("75, 90,100").unwrap().percents, [75, 90, 100]);
        for text in ["", "80,", "49", "101", "1,2,3,4,5,6", "x"] {
            let error = receiver().percents(text).unwrap_err().to_string();
            assert!(error.starts_with("notify-at: got `"), "{error}");
        }
    }
}
