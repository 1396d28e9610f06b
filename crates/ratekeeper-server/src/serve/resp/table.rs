//! Every command, in one table: what `COMMAND` tells of it, and what metrics call it.

/// A command.
#[derive(Debug)]
pub(super) struct Known {
    /// In lower case, as Redis tells it.
    pub(super) name: &'static str,
    pub(super) what: What,
    /// Arguments, the name among them; at least so many if it is negative.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    /// Where its key is; 0 if it has none.
    pub(super) key: i64,
    pub(super) summary: &'static str,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Throttle,
    Ping,
    Echo,
    Auth,
    Hello,
    Client,
    Command,
    Info,
    Select,
    Reset,
    Quit,
}

/// May be called before `AUTH`.
const NO_AUTH: &str = "no_auth";
const FAST: &str = "fast";
const LOADING: &str = "loading";

/// All commands, the one that is called most first.
pub(super) static COMMANDS: [Known; 11] = [
    // As redis-cell registers it: it says itself how many arguments it takes.
    Known::new("cl.throttle", What::Throttle, -1, &["write"], "Charges a token bucket").keyed(),
    Known::new("ping", What::Ping, -1, &[FAST], "Answers PONG, or its argument"),
    Known::new("echo", What::Echo, 2, &[LOADING, FAST], "Answers its argument"),
    Known::new("auth", What::Auth, -2, &[NO_AUTH, FAST], "Sends the password"),
    Known::new("hello", What::Hello, -1, &[NO_AUTH, FAST], "Chooses the protocol's version, 2 or 3"),
    Known::new("client", What::Client, -2, &[LOADING], "Names this connection, or tells of it"),
    Known::new("command", What::Command, -1, &[LOADING], "Tells of all commands"),
    Known::new("info", What::Info, -1, &[LOADING], "Tells of this server"),
    Known::new("select", What::Select, 2, &[LOADING, FAST], "Takes database 0: there is no other"),
    Known::new("reset", What::Reset, 1, &[NO_AUTH, FAST], "Makes this connection as it was in the beginning"),
    Known::new("quit", What::Quit, -1, &[NO_AUTH, FAST], "Closes this connection"),
];

impl Known {
    const fn new(
        name: &'static str,
        what: What,
        arity: i64,
        flags: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self { name, what, arity, flags, key: 0, summary }
    }

    const fn keyed(self) -> Self {
        Self { key: 1, ..self }
    }

    /// Whether it may be called before `AUTH`.
    pub(super) fn needs_no_password(&self) -> bool {
        self.flags.contains(&NO_AUTH)
    }

    /// Whether it takes so many arguments, its name among them.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let wanted = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 { arguments >= wanted } else { arguments == wanted }
    }
}

/// The place of a command in the table, whichever case its name has.
#[inline]
pub(super) fn place_of(name: &[u8]) -> Option<usize> {
    COMMANDS.iter().position(|known| known.name.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        for (place, known) in COMMANDS.iter().enumerate() {
            assert_eq!(place_of(known.name.to_ascii_uppercase().as_bytes()), Some(place));
            assert_eq!(known.name, known.name.to_ascii_lowercase());
        }
        assert_eq!(place_of(b""), None);
        assert_eq!(place_of(b"get"), None);
    }
}
