//! The command `distlock`: run commands under a lock that means the same thing on every engine.
//!
//! `main` does as little as it can before the guardian is forked: parse, check, fork. Runtime, threads and engine
//! come after that.

#[cfg(not(any(target_os = "linux", target_os = "android")))]
compile_error!("the command needs Linux: signalfd, sub-reapers, parent-death signals, abstract sockets");

mod args;
mod cmd;
mod config;
mod engine;
mod exit;
mod guardian;
mod held;
mod log;
mod manual;
mod mistake;
mod obtain;
mod program;
mod reenter;
mod runtime;
mod say;
mod settings;
mod signals;
mod stdio;
mod supervise;
mod sys;
mod textfile;
mod values;
mod waiting;

use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Cli, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::of_process() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are asked for; all else is a mistake, for which sysexits.h has 64.
            let exit = if e.use_stderr() { Exit::USAGE } else { Exit::OK };
            let _ = e.print();
            if let Some(hint) = mistake::meant(&e, std::env::args_os().skip(1)) {
                say::advise(hint);
            }
            return exit.into();
        }
    };
    log::start(cli.common.verbose);
    dispatch(cli).into()
}

fn dispatch(cli: Cli) -> Exit {
    let common = &cli.common;
    match &cli.command {
        Command::Run(args) => cmd::run::run(common, args, false),
        Command::Try(args) => cmd::run::run(common, args, true),
        Command::Elect(args) => cmd::elect::elect(common, args),
        Command::Hold(args) => cmd::hold::hold(common, args),
        Command::Acquire(args) => cmd::lease::acquire(common, args),
        Command::Renew(args) => cmd::lease::renew(common, args),
        Command::Release(args) => cmd::lease::release(common, args),
        Command::Ls(args) => cmd::ls::ls(common, args),
        Command::Inspect(args) => cmd::inspect::inspect(common, args),
        Command::Break(args) => cmd::brk::brk(common, args),
        Command::Serve(args) => cmd::serve::serve(common, args),
        Command::Doctor(args) => cmd::doctor::doctor(common, args),
        Command::Conformance(args) => cmd::conformance::conformance(common, args),
        Command::Bench(args) => cmd::bench::bench(common, args),
        #[cfg(feature = "sql")]
        Command::Sql(args) => cmd::sql::sql(common, args),
        #[cfg(feature = "redis")]
        Command::Redlock(args) => cmd::redlock::redlock(common, args),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "distlock", &mut std::io::stdout());
            Exit::OK
        }
        Command::Man => match manual::write(&mut std::io::stdout()) {
            Ok(()) => Exit::OK,
            Err(_) => Exit::ENGINE,
        },
    }
}
