//! A real client process for tests of crashes and pauses: takes JSON requests on its standard input, answers on its
//! standard output, and writes what it sees to a history file. See `distlock_testkit::worker`.

mod load;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use distlock::Locks;
use distlock_testkit::history::Recorder;

/// What the tasks of this process share.
struct Shared {
    locks: Locks,
    recorder: Recorder,
    process: u32,
    store: PathBuf,
}

struct Args {
    url: String,
    process: u32,
    events: PathBuf,
    store: PathBuf,
}

fn args() -> Option<Args> {
    let (mut url, mut process, mut events, mut store) = (None, None, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next()?;
        match name.as_str() {
            "--url" => url = Some(value),
            "--process" => process = Some(value.parse().ok()?),
            "--events" => events = Some(value.into()),
            "--store" => store = Some(value.into()),
            _ => return None,
        }
    }
    Some(Args {
        url: url?,
        process: process?,
        events: events?,
        store: store?,
    })
}

#[tokio::main]
#[allow(clippy::print_stderr)]
async fn main() -> ExitCode {
    let Some(args) = args() else {
        eprintln!("usage: distlock-worker --url URL --process N --events FILE --store SOCKET");
        return ExitCode::from(64);
    };
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let shared = Arc::new(Shared {
        locks: Locks::connect(&args.url).await?,
        recorder: Recorder::open(&args.events, args.process)?,
        process: args.process,
        store: args.store,
    });
    serve::serve(&shared).await?;
    shared.locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
