//! A connection to a server that sends any bytes, many commands at a time. Whatever goes wrong panics, refusals
//! included.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::wait::PATIENCE;

/// The words of a command.
pub type Command = Vec<Vec<u8>>;

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Status(String),
    Number(i64),
    Text(Option<Vec<u8>>),
    List(Vec<Answer>),
}

impl Answer {
    /// The text of an answer that is one.
    #[must_use]
    pub fn into_text(self) -> Vec<u8> {
        match self {
            Self::Text(Some(text)) => text,
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    /// The texts of an answer that is a list of them.
    #[must_use]
    pub fn into_texts(self) -> Vec<Vec<u8>> {
        match self {
            Self::List(answers) => answers.into_iter().map(Self::into_text).collect(),
            other => panic!("a list was expected, not {other:?}"),
        }
    }
}

/// See [`Server::client`](super::Server::client).
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("connect to our own server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above zero");
        Self { stream: BufReader::new(stream) }
    }

    /// The answer to one command.
    pub fn call(&mut self, words: &[&[u8]]) -> Answer {
        let command = words.iter().map(|word| word.to_vec()).collect();
        self.all(&[command]).remove(0)
    }

    /// The answers to several commands, which are sent together.
    pub fn all(&mut self, commands: &[Command]) -> Vec<Answer> {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for word in command {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes).expect("write to our own server");
        commands.iter().map(|_| self.read()).collect()
    }

    fn read(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer of our own server");
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).expect("an answer, not the end of the connection");
        let number = || rest.parse::<i64>().expect("a number");
        match kind {
            "+" => Answer::Status(rest.to_owned()),
            ":" => Answer::Number(number()),
            "$" => Answer::Text(usize::try_from(number()).ok().map(|length| self.bytes(length))),
            "*" => Answer::List((0..number()).map(|_| self.read()).collect()),
            _ => panic!("the server refused: {line}"),
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).expect("the rest of an answer");
        bytes.truncate(length);
        bytes
    }
}
