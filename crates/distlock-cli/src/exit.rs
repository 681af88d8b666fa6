//! The exit codes of the command: one table, used by every subcommand.

use std::process::ExitCode;

use distlock_core::{Error, ErrorKind};

/// How the command ends. The numbers are a contract: see `docs/command.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// All went well.
    pub(crate) const OK: Exit = Exit(0);
    /// `doctor` found something that endangers locks, or `conformance` a case that failed.
    pub(crate) const FINDINGS: Exit = Exit(1);
    /// A bad flag, key, duration or URL; nothing was contacted.
    pub(crate) const USAGE: Exit = Exit(64);
    /// The lock was not obtained within the wait.
    pub(crate) const BUSY: Exit = Exit(75);
    /// The configuration file is wrong; nothing was contacted.
    pub(crate) const CONFIG: Exit = Exit(78);
    /// The lock was lost while running.
    pub(crate) const LOST: Exit = Exit(79);
    /// Already done within the window of `--once-per`.
    pub(crate) const DONE: Exit = Exit(80);
    /// `--max-hold` passed.
    pub(crate) const MAX_HOLD: Exit = Exit(124);
    /// The engine could not be reached, or refused.
    pub(crate) const ENGINE: Exit = Exit(125);
    /// The command was found but cannot be executed.
    pub(crate) const NOT_EXECUTABLE: Exit = Exit(126);
    /// The command was not found.
    pub(crate) const NOT_FOUND: Exit = Exit(127);

    /// The code of a command that ran to its end, or one that the user chose.
    pub(crate) fn code(code: u8) -> Self {
        Self(code)
    }

    /// Ended by a signal.
    pub(crate) fn signal(signal: i32) -> Self {
        Self(u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX))
    }

    /// What an error of the library means for the exit code.
    pub(crate) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::Timeout => Self::BUSY,
            ErrorKind::Lost | ErrorKind::NotHeld => Self::LOST,
            ErrorKind::InvalidKey | ErrorKind::InvalidConfig => Self::USAGE,
            _ => Self::ENGINE,
        }
    }

    /// What an error of connecting means: a URL that cannot be used is a matter of usage.
    pub(crate) fn of_connect(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::USAGE,
            _ => Self::of(error),
        }
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.0)
    }
}
