//! What a client may do on a connection, and every command but `CL.THROTTLE`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};

use super::parse::Command;
use super::reply::{Replies, Version};
use super::table::{COMMANDS, Known, What, place_of};
use super::{COMPATIBLE_VERSION, Resp, http};

/// The longest name of a connection, in bytes.
const CONNECTION_NAME_BYTES_MAX: usize = 128;
/// How much of a command that is not known is repeated, in bytes.
const REPEATED_BYTES_MAX: usize = 128;
/// The one user there is.
const USER: &[u8] = b"default";

const NO_PASSWORD_YET: &str = "NOAUTH Authentication required.";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured for the default user. \
                               Are you sure your configuration is correct?";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The number of the connection that comes next.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// What a client has said of itself.
#[derive(Debug)]
pub(super) struct Session {
    id: i64,
    from: Option<IpAddr>,
    is_let_in: bool,
    name: Vec<u8>,
}

/// What is to be done after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    Close,
}

impl Session {
    pub(super) fn new(resp: &Resp, from: Option<IpAddr>) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, from, is_let_in: resp.password.is_none(), name: Vec::new() }
    }

    /// Whether it may charge.
    #[inline]
    pub(super) fn is_let_in(&self) -> bool {
        self.is_let_in
    }

    /// Answers a command that charges nothing. `CL.THROTTLE` comes here only if it is not let in.
    pub(super) fn answer(&mut self, resp: &Resp, command: Command<'_>, replies: &mut Replies) -> After {
        if http::is_line(command.name()) {
            replies.error(http::REFUSAL);
            resp.strays.note(self.from);
            resp.note(None, true);
            return After::Close;
        }
        let place = place_of(command.name());
        let known = place.and_then(|place| COMMANDS.get(place));
        let before = replies.bytes.len();
        let after = match known {
            _ if !self.is_let_in && !known.is_some_and(Known::needs_no_password) => {
                replies.error(NO_PASSWORD_YET);
                After::GoOn
            }
            None => {
                replies.error(&unknown(command));
                After::GoOn
            }
            Some(known) if !known.takes(command.len()) => {
                replies.error(&wrong_arity(known.name));
                After::GoOn
            }
            Some(known) => self.known(resp, known.what, command, replies),
        };
        resp.note(place, replies.bytes.get(before) == Some(&b'-'));
        after
    }

    fn known(&mut self, resp: &Resp, what: What, command: Command<'_>, replies: &mut Replies) -> After {
        match what {
            What::Ping if command.len() > 2 => replies.error(&wrong_arity("ping")),
            What::Ping => match command.get(1) {
                Some(message) => replies.bulk(message),
                None => replies.status("PONG"),
            },
            What::Echo => replies.bulk(command.get(1).unwrap_or_default()),
            What::Auth => self.auth(resp, command, replies),
            What::Hello => self.hello(resp, command, replies),
            What::Client => self.client(command, replies),
            What::Command => tell_commands(command, replies),
            What::Info => replies.text(&info(resp)),
            What::Select => match number(command.get(1).unwrap_or_default()) {
                Some(0) => replies.status("OK"),
                Some(_) => replies.error("ERR DB index is out of range"),
                None => replies.error(NOT_AN_INTEGER),
            },
            What::Reset => {
                self.is_let_in = resp.password.is_none();
                self.name.clear();
                replies.version = Version::Two;
                replies.status("RESET");
            }
            What::Quit => {
                replies.status("OK");
                return After::Close;
            }
            // Before a password: answered above. With one, the connection answers it.
            What::Throttle => replies.error(NO_PASSWORD_YET),
        }
        After::GoOn
    }

    fn auth(&mut self, resp: &Resp, command: Command<'_>, replies: &mut Replies) {
        let words: [Option<&[u8]>; 3] = std::array::from_fn(|index| command.get(index + 1));
        let (user, password) = match words {
            [Some(password), None, None] => (USER, password),
            [Some(user), Some(password), None] => (user, password),
            _ => return replies.error("ERR syntax error"),
        };
        if resp.password.is_none() && words[1].is_none() {
            return replies.error(NO_PASSWORD_SET);
        }
        match self.log_in(resp, user, password) {
            Ok(()) => replies.status("OK"),
            Err(refusal) => replies.error(&refusal),
        }
    }

    fn log_in(&mut self, resp: &Resp, user: &[u8], password: &[u8]) -> Result<(), String> {
        // Without a password, Redis takes any for its only user.
        let Some(keyring) = &resp.password else {
            return if user == USER { Ok(()) } else { Err(WRONG_PASSWORD.to_owned()) };
        };
        match keyring.has_sent(password, self.from) {
            Err(wait) => Err(format!(
                "WRONGPASS too many wrong passwords came from this address; the next one is looked at in {} seconds",
                wait.as_secs() + 1
            )),
            Ok(true) if user == USER => {
                self.is_let_in = true;
                Ok(())
            }
            Ok(_) => Err(WRONG_PASSWORD.to_owned()),
        }
    }

    fn hello(&mut self, resp: &Resp, command: Command<'_>, replies: &mut Replies) {
        let mut words = command.rest();
        let version = match words.next().map(number) {
            None => replies.version,
            Some(Some(2)) => Version::Two,
            Some(Some(3)) => Version::Three,
            Some(Some(_)) => return replies.error("NOPROTO unsupported protocol version"),
            Some(None) => return replies.error("ERR Protocol version is not an integer or out of range"),
        };
        let (mut login, mut name) = (None, None);
        while let Some(option) = words.next() {
            if option.eq_ignore_ascii_case(b"auth")
                && let (Some(user), Some(password)) = (words.next(), words.next())
            {
                login = Some((user, password));
            } else if option.eq_ignore_ascii_case(b"setname")
                && let Some(said) = words.next()
            {
                name = Some(said);
            } else {
                let option = shown(option);
                return replies.error(&format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
        if let Some((user, password)) = login
            && let Err(refusal) = self.log_in(resp, user, password)
        {
            return replies.error(&refusal);
        }
        if !self.is_let_in {
            return replies.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time",
            );
        }
        if let Some(name) = name
            && let Err(refusal) = self.set_name(name)
        {
            return replies.error(refusal);
        }
        replies.version = version;
        replies.map(7);
        for (key, value) in [("server", "redis"), ("version", COMPATIBLE_VERSION)] {
            replies.text(key);
            replies.text(value);
        }
        for (key, value) in [("proto", version.number()), ("id", self.id)] {
            replies.text(key);
            replies.integer(value);
        }
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            replies.text(key);
            replies.text(value);
        }
        replies.text("modules");
        replies.array(0);
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), &'static str> {
        if name.len() > CONNECTION_NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err(
                "ERR Client names cannot contain spaces, newlines or special characters, nor more than 128 \
                        bytes",
            );
        }
        self.name = name.to_vec();
        Ok(())
    }

    fn client(&mut self, command: Command<'_>, replies: &mut Replies) {
        let subcommand = command.get(1).unwrap_or_default();
        let is = |name: &[u8], words| subcommand.eq_ignore_ascii_case(name) && command.len() == words;
        if is(b"id", 2) {
            replies.integer(self.id);
        } else if is(b"setname", 3) {
            match self.set_name(command.get(2).unwrap_or_default()) {
                Ok(()) => replies.status("OK"),
                Err(refusal) => replies.error(refusal),
            }
        } else if is(b"getname", 2) {
            if self.name.is_empty() { replies.null() } else { replies.bulk(&self.name) }
        } else if is(b"setinfo", 4) {
            match command.get(2) {
                Some(what)
                    if [&b"lib-name"[..], b"lib-ver"].iter().any(|own| what.eq_ignore_ascii_case(own)) =>
                {
                    replies.status("OK");
                }
                what => {
                    let what = shown(what.unwrap_or_default());
                    replies.error(&format!("ERR Unrecognized option '{what}'"));
                }
            }
        } else if is(b"no-evict", 3) || is(b"no-touch", 3) {
            replies.status("OK");
        } else {
            let subcommand = shown(subcommand);
            replies.error(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{subcommand}'; expected ID, SETNAME, GETNAME, \
                 SETINFO, NO-EVICT or NO-TOUCH"
            ));
        }
    }
}

fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// A whole number, as short ones are written.
fn number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Something of the caller's, repeated to the caller.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..REPEATED_BYTES_MAX).unwrap_or(bytes)).into_owned()
}

/// As Redis says it.
#[cold]
fn unknown(command: Command<'_>) -> String {
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(command.name()));
    let begin = text.len();
    for argument in command.rest() {
        if text.len() - begin >= REPEATED_BYTES_MAX {
            break;
        }
        text += &format!("'{}' ", shown(argument));
    }
    text
}

fn tell_commands(command: Command<'_>, replies: &mut Replies) {
    let subcommand = command.get(1).unwrap_or_default();
    let named = || command.rest().skip(1).map(|name| place_of(name).and_then(|place| COMMANDS.get(place)));
    if command.len() == 1 {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|known| describe(known, replies));
    } else if subcommand.eq_ignore_ascii_case(b"count") && command.len() == 2 {
        replies.integer(COMMANDS.len() as i64);
    } else if subcommand.eq_ignore_ascii_case(b"list") && command.len() == 2 {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|known| replies.text(known.name));
    } else if subcommand.eq_ignore_ascii_case(b"docs") {
        let asked: Vec<&Known> =
            if command.len() == 2 { COMMANDS.iter().collect() } else { named().flatten().collect() };
        replies.map(asked.len());
        asked.into_iter().for_each(|known| document(known, replies));
    } else if subcommand.eq_ignore_ascii_case(b"info") {
        let asked: Vec<Option<&Known>> =
            if command.len() == 2 { COMMANDS.iter().map(Some).collect() } else { named().collect() };
        replies.array(asked.len());
        for known in asked {
            match known {
                Some(known) => describe(known, replies),
                None => replies.null(),
            }
        }
    } else {
        let subcommand = shown(subcommand);
        replies.error(&format!("ERR unknown subcommand '{subcommand}'; expected COUNT, DOCS, INFO or LIST"));
    }
}

fn describe(known: &Known, replies: &mut Replies) {
    replies.array(10);
    replies.text(known.name);
    replies.integer(known.arity);
    replies.array(known.flags.len());
    known.flags.iter().for_each(|flag| replies.status(flag));
    // The first key, the last one and the step between two.
    (0..3).for_each(|_| replies.integer(known.key));
    // Categories, tips, where keys are, subcommands: clients want to see the lists.
    (0..4).for_each(|_| replies.array(0));
}

fn document(known: &Known, replies: &mut Replies) {
    let group = if known.what == What::Throttle { "module" } else { "connection" };
    let facts = [("summary", known.summary), ("since", "1.0.0"), ("group", group)];
    replies.text(known.name);
    replies.map(facts.len());
    for (key, value) in facts {
        replies.text(key);
        replies.text(value);
    }
}

fn info(resp: &Resp) -> String {
    let connections = resp.api.metrics.connections();
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    format!(
        "# Server\r\nredis_version:{COMPATIBLE_VERSION}\r\nratekeeper_version:{version}\r\nredis_mode:standalone\r\n\
         process_id:{process}\r\n\r\n# Clients\r\nconnected_clients:{connections}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n"
    )
}
