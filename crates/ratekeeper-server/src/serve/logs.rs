//! Logs: words on a terminal, JSON for machines. Neither keys nor secrets are in them,
//! and an event is one line, whatever is told in it.

use std::fmt;
use std::io::IsTerminal as _;

use anyhow::{anyhow, bail};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use super::settings::{Config, LogFormat};

const EXPECTED: &str = "expected a level (off, error, warn, info, debug or trace), or ratekeeper=debug,info";

/// Begins to log, on stderr.
///
/// # Errors
/// If the filter cannot be read.
pub(super) fn start(config: &Config) -> anyhow::Result<()> {
    let logs = tracing_subscriber::fmt().with_env_filter(filter(&config.log)?).with_writer(std::io::stderr);
    // Whoever has set up logs already keeps them.
    let _ = match config.log_format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let fields = debug_fn(field).delimited(" ");
            logs.with_target(false).with_ansi(colours).fmt_fields(fields).try_init()
        }
    };
    Ok(())
}

/// What is logged. A word that is no level would be taken for a module, of which there
/// is none, and nothing would be logged at all.
fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    for word in text.split(',').map(str::trim) {
        let is_level = !word.is_empty() && word.parse::<LevelFilter>().is_ok();
        if !is_level && !word.contains('=') {
            bail!("log: got `{word}`; {EXPECTED}");
        }
    }
    EnvFilter::try_new(text).map_err(|error| anyhow!("log: {error}; {EXPECTED}"))
}

/// A field as `name=value`. Values are in quotation marks if somebody could else write
/// a line or a field of their own into them.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        return text.chars().try_for_each(|c| {
            if c.is_control() { write!(writer, "{}", c.escape_default()) } else { writer.write_char(c) }
        });
    }
    write!(writer, "{}=", field.name())?;
    let is_plain =
        !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    if is_plain || is_quoted(&text) { writer.write_str(&text) } else { write!(writer, "{text:?}") }
}

/// Whether a text is one in quotation marks already, as those of a program's own are.
fn is_quoted(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.is_some_and(|inner| {
        let mut is_escaped = false;
        let is_within = inner.chars().all(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            !is_end && !c.is_control()
        });
        is_within && !is_escaped
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is logged meanwhile, as text and without the time.
    pub(in crate::serve) fn told(meanwhile: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let logs = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .fmt_fields(debug_fn(field).delimited(" "));
        tracing::subscriber::with_default(logs.finish(), meanwhile);
        let told = kept.0.lock().unwrap().clone();
        String::from_utf8(told).unwrap()
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in ["info", "WARN", "off", "ratekeeper=debug,info", "ratekeeper::store=trace,warn"] {
            assert!(filter(good).is_ok(), "{good}: {:?}", filter(good).err());
        }
        for wrong in ["verbose", "", "info,verbose", "ratekeeper", "ratekeeper=loud", "info,=,"] {
            let error = filter(wrong).unwrap_err().to_string();
            assert!(error.starts_with("log: ") && error.contains("expected a level"), "{wrong}: {error}");
        }
    }

    #[test]
    fn nobody_writes_lines_or_fields_of_their_own() {
        let told = told(|| {
            let forged = "a\n2026 INFO all is well level=info";
            let quoted = "\"x\" y=\"z\"";
            tracing::warn!(reason = %forged, text = forged, %quoted, plain = %"/a/b", none = "", "told {forged}");
        });
        let forged = r#""a\n2026 INFO all is well level=info""#;
        assert_eq!(
            told,
            format!(
                " WARN told a\\n2026 INFO all is well level=info reason={forged} text={forged} \
                 quoted=\"\\\"x\\\" y=\\\"z\\\"\" plain=/a/b none=\"\"\n"
            )
        );
    }
}
