//! A process that asks the server over HTTP, with a connection for each caller.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{CALLERS, Caller, Log, Question, end};
use crate::LoadOptions;
use crate::call::{Call, Origin, now_micros};
use crate::control::{Control, SETTLED, needs_control};
use crate::limits::SERVICES;

/// How long a server may take that is not to be found hanging.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the server is asked something that needs no store: its control timer.
const CONTROL_REST: Duration = Duration::from_millis(3);

pub(crate) fn run(options: &LoadOptions) -> anyhow::Result<()> {
    let (ended, control, log) = (end(), Control::start(), Log::create(&options.log)?);
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let (address, caller) = (options.target.clone(), Caller::new(options.seed, number));
            let (ended, control, log) = (Arc::clone(&ended), control.clone(), log.clone());
            thread::spawn(move || calls(&address, caller, &ended, &control, &log))
        })
        .collect();
    let (address, of_server) = (options.target.clone(), control);
    thread::spawn(move || control_of_server(&address, &of_server));
    for caller in callers {
        caller.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
    }
    Ok(log.finish()?)
}

fn calls(
    address: &str,
    mut caller: Caller,
    ended: &AtomicBool,
    control: &Control,
    log: &Log,
) -> anyhow::Result<()> {
    let mut connection = Connection::to(address)?;
    while !ended.load(Ordering::Relaxed) {
        let (question, rest) = caller.next();
        let identity =
            json!({"tenant": format!("t{}", question.tenant), "address": format!("a{}", question.address)});
        let body = json!({"service": SERVICES[question.service].name, "path": "/", "identity": identity});
        let (sent, start) = (now_micros(), Instant::now());
        let decision = connection.ask("POST", "/v1/check", &body.to_string())?;
        let (end, answered) = (Instant::now(), now_micros());
        let mut late = 0;
        if needs_control(start, end) {
            thread::sleep(SETTLED);
            late = u64::try_from(control.beyond(start, end).as_micros())?;
        }
        log.write(&logged(&question, &decision, [sent, answered, late]));
        thread::sleep(rest);
    }
    Ok(())
}

/// Asks whether the server lives, which needs no store: what that takes is what the server is late by itself.
fn control_of_server(address: &str, control: &Control) -> anyhow::Result<()> {
    let mut connection = Connection::to(address)?;
    loop {
        let set = Instant::now();
        connection.ask("GET", "/healthz", "")?;
        control.note(set, Duration::ZERO);
        thread::sleep(CONTROL_REST);
    }
}

fn logged(question: &Question, decision: &Value, [sent, answered, late]: [u64; 3]) -> Call {
    let origin = Origin::named(decision["origin"].as_str().unwrap_or("none"));
    let at = decision["at_us"].as_u64().unwrap_or_default();
    let reset = decision["limits"][0]["reset_after_us"].as_u64().unwrap_or_default();
    Call {
        sent,
        answered,
        service: question.service,
        tenant: question.tenant,
        address: question.address,
        allowed: decision["allowed"] == true,
        origin,
        at,
        window_end: if origin == Origin::Store { at + reset } else { 0 },
        late,
    }
}

/// A connection that is kept.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn to(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The body of the answer, as JSON if it is.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<Value> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: chaos\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.0.get_mut().write_all((head + body).as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}
