//! A holder is stopped past its lease, another one writes, the first one wakes up and writes as well.
//!
//! ```text
//! cargo run --example fenced_writer                   # the stale write is refused
//! cargo run --example fenced_writer -- --unfenced     # the stale write destroys the new data
//! ```
//!
//! No lock can prevent this: the first holder does not know that it slept. The store can, with the fencing token
//! that came with the lock. The engine must be one that passes the lock on while the holder's process is stopped;
//! all engines with a lease do.
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use clap::Parser;
use distlock::{Held, Locks, locked};
use distlock_fence::FencedFile;
use rustix::process::{Pid, Signal, kill_process};

#[derive(Parser)]
struct Args {
    /// Where the locks are kept; a directory of the example's own if not given.
    #[arg(long, env = "DISTLOCK_URL")]
    url: Option<String>,
    /// Write without the gate, to see what happens.
    #[arg(long)]
    unfenced: bool,
    /// The data; given to the writers.
    #[arg(long, hide = true)]
    file: Option<PathBuf>,
    /// What to write; given to the writers.
    #[arg(long, hide = true, default_value = "")]
    text: String,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    match &args.file {
        None => play(&args),
        Some(file) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(writer(&args, file)).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// The play: two writers, and a long sleep of the first.
fn play(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    fs::create_dir(dir.path().join("locks"))?;
    let url = args
        .url
        .clone()
        .unwrap_or_else(|| format!("file://{}", dir.path().join("locks").display()));

    let mut first = Writer::start(args, &url, &data, "old")?;
    println!("first:  {}", first.says()?);
    first.signal(Signal::STOP)?;
    println!("first:  is stopped");

    let mut second = Writer::start(args, &url, &data, "new")?;
    println!("second: {}", second.says()?);
    second.go()?;
    println!("second: {}", second.says()?);

    first.signal(Signal::CONT)?;
    first.go()?;
    println!("first:  wakes up");
    println!("first:  {}", first.says()?);

    let text = fs::read_to_string(&data)?;
    println!(
        "the data are {text:?}: {}",
        if text == "new" { "intact" } else { "CORRUPT" }
    );
    Ok(ExitCode::from(u8::from(text != "new")))
}

/// One writer: takes the lock, works for as long as its parent lets it, writes.
async fn writer(args: &Args, file: &Path) -> Result<(), Box<dyn Error>> {
    let url = args.url.as_deref().ok_or("a writer needs a --url")?;
    distlock::install(Locks::connect(url).await?)?;
    match write(args, file).await {
        Ok(()) => Ok(()),
        // After a sleep: the lock is lost.
        Err(e) => say(&format!("ended: {e}")),
    }
}

#[locked(key = "data", ttl = "1s", wait = "1m", fenced, guard = held)]
async fn write(args: &Args, file: &Path) -> Result<(), Box<dyn Error>> {
    say(&format!("has the lock, token {}", token(&held)?))?;
    // Long work without an await, such as a computation or a system call: nothing can stop it from outside.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if args.unfenced {
        fs::write(file, &args.text)?;
    } else {
        // Told here: at the end of the function, the lock itself says that it was lost.
        if let Err(e) = FencedFile::new(file).replace(token(&held)?, &args.text) {
            return say(&e.to_string());
        }
    }
    say("wrote")
}

fn token(held: &Held) -> Result<distlock::FencingToken, &'static str> {
    held.token().ok_or("the engine gave no token")
}

fn say(what: &str) -> Result<(), Box<dyn Error>> {
    println!("{what}");
    Ok(std::io::stdout().flush()?)
}

/// A writer process, seen from the outside.
struct Writer {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Writer {
    fn start(args: &Args, url: &str, file: &Path, text: &str) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--url", url, "--text", text])
            .arg("--file")
            .arg(file);
        if args.unfenced {
            command.arg("--unfenced");
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = process.stdin.take().ok_or("no stdin")?;
        let stdout = BufReader::new(process.stdout.take().ok_or("no stdout")?);
        Ok(Self {
            process,
            stdin,
            stdout,
        })
    }

    fn says(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn go(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.stdin.write_all(b"go\n")?)
    }

    fn signal(&self, signal: Signal) -> Result<(), Box<dyn Error>> {
        let pid = Pid::from_raw(self.process.id().cast_signed()).ok_or("no process id")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may be stopped, so that only KILL ends it for certain.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
