//! The processes of the load, started and ended.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::{CALLERS, PYTHON, REST_MICROS_MAX};
use crate::limits::{ADDRESSES, SERVICES, TENANTS};
use crate::{DEADLINE, RunOptions, TOTAL};

/// How long a process may take to end: its last calls, and writing its log.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Those that ask, and the server that one of them asks. All end when this does.
pub(crate) struct Processes {
    asking: Vec<Asking>,
    server: Option<Process>,
}

struct Asking {
    name: &'static str,
    process: Process,
    log: PathBuf,
}

/// A process that is killed if it has not ended.
struct Process {
    child: Child,
    /// It ends when this is closed.
    input: Option<ChildStdin>,
}

impl Processes {
    /// Starts all for which there are programs. The first folder has the policies of the process with the library, the
    /// second those of the others.
    pub(crate) fn start(
        url: &str,
        folder: &Path,
        [of_library, policies]: [&Path; 2],
        options: &RunOptions,
    ) -> anyhow::Result<Self> {
        let mut all = Self { asking: Vec::new(), server: None };
        let own = std::env::current_exe()?;
        let replicas = options.replicas.to_string();
        let seed = |number: u64| options.seed.wrapping_mul(10).wrapping_add(number).to_string();
        let mut library = Command::new(&own);
        library
            .arg("load-library")
            .args(["--target", url, "--seed", &seed(1), "--replicas", &replicas])
            .arg("--policies")
            .arg(of_library);
        all.ask("library", library, folder, "--log")?;
        if let Some(server) = &options.server {
            let (process, address) = serve(server, url, policies, &replicas)?;
            all.server = Some(process);
            let mut http = Command::new(&own);
            http.arg("load-http")
                .args(["--target", &address, "--seed", &seed(2)])
                .arg("--policies")
                .arg(policies);
            all.ask("http", http, folder, "--log")?;
        }
        if let Some(python) = &options.python {
            let command = with_python(python, url, folder, policies, [&seed(3), &replicas])?;
            all.ask("python", command, folder, "log")?;
        }
        Ok(all)
    }

    fn ask(
        &mut self,
        name: &'static str,
        mut command: Command,
        folder: &Path,
        log_option: &str,
    ) -> anyhow::Result<()> {
        let log = folder.join(format!("{name}.csv"));
        command.arg(format!("{log_option}={}", log.display()));
        self.asking.push(Asking { name, process: Process::spawn(&mut command)?, log });
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.asking.len()
    }

    /// An error if one has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for asking in &mut self.asking {
            let ended = asking.process.child.try_wait()?;
            ensure!(ended.is_none(), "the process with {} has ended; what it said stands above", asking.name);
        }
        Ok(())
    }

    /// Ends all; returns their logs.
    pub(crate) fn end(mut self) -> anyhow::Result<Vec<PathBuf>> {
        self.asking.iter_mut().for_each(|asking| asking.process.input = None);
        let mut logs = Vec::new();
        for Asking { name, mut process, log } in self.asking {
            process.wait().with_context(|| format!("the process with {name}"))?;
            logs.push(log);
        }
        Ok(logs)
    }
}

impl Process {
    fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self { input: child.stdin.take(), child })
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < END_WITHIN, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        ensure!(status.success(), "it ended with {status}; what it said stands above");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the server; returns where it speaks HTTP.
fn serve(server: &Path, url: &str, policies: &Path, replicas: &str) -> anyhow::Result<(Process, String)> {
    let mut command = Command::new(server);
    // Nothing of the environment of whoever runs this.
    let named = |name: &str| name.starts_with("RATEKEEPER_") || name == "RATE_LIMIT_MODE";
    std::env::vars().filter(|(name, _)| named(name)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
        .args(["serve", "--http", "127.0.0.1:0", "--grpc", "off", "--log", "error", "--store", url])
        .arg("--policy")
        .arg(policies);
    let millis = |bound: Duration| bound.as_millis().to_string();
    command.args(["--store-deadline", &millis(DEADLINE), "--store-total", &millis(TOTAL)]);
    command.args(["--store-replicas", replicas]);
    let mut process = Process::spawn(command.stdout(Stdio::piped()))?;
    let mut said = BufReader::new(process.child.stdout.take().context("its output")?);
    let mut line = String::new();
    while said.read_line(&mut line)? > 0 {
        if let Some((_, rest)) = line.split_once("http://") {
            let address: String = rest
                .chars()
                .take_while(|character| character.is_ascii_digit() || ".:".contains(*character))
                .collect();
            // What it says further is read, so that it never waits for a reader.
            thread::spawn(move || said.read_to_end(&mut Vec::new()));
            return Ok((process, address));
        }
        line.clear();
    }
    bail!("the server did not start; what it said stands above")
}

fn with_python(
    python: &Path,
    url: &str,
    folder: &Path,
    policies: &Path,
    [seed, replicas]: [&str; 2],
) -> anyhow::Result<Command> {
    let program = folder.join("load.py");
    std::fs::write(&program, PYTHON)?;
    let services: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
    let mut command = Command::new(python);
    // Only what is installed there, and nothing of the user's.
    command.arg("-s").arg(program);
    command.args([
        format!("target={url}"),
        format!("seed={seed}"),
        format!("replicas={replicas}"),
        format!("services={}", services.join("+")),
    ]);
    command.args([format!("policies={}", policies.display()), format!("callers={CALLERS}")]);
    command.args([format!("tenants={TENANTS}"), format!("addresses={ADDRESSES}")]);
    let seconds = |bound: Duration| bound.as_secs_f64();
    command.args([format!("deadline={}", seconds(DEADLINE)), format!("total={}", seconds(TOTAL))]);
    command.arg(format!("rest={}", seconds(Duration::from_micros(REST_MICROS_MAX))));
    Ok(command)
}
