//! What people who come from other commands type, and what they probably mean.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Advice beyond what the parser itself says about a mistake.
pub(crate) fn meant(mistake: &clap::Error, words: impl Iterator<Item = OsString>) -> Option<&'static str> {
    let words: Vec<OsString> = words.collect();
    let runs = words.first().is_some_and(|word| word == "run" || word == "try");
    let parted = words.iter().any(|word| word == "--");
    let argument = match mistake.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    match mistake.kind() {
        ErrorKind::UnknownArgument if runs && argument == "-c" => {
            Some("for a line of shell: distlock run KEY -- sh -c 'LINE'")
        }
        ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument if runs && !parted => {
            Some("the command stands after --, as in: distlock run KEY -- CMD ARG")
        }
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument if !runs && parted => {
            Some("to run a command under a lock: distlock run KEY -- CMD ARG")
        }
        _ => None,
    }
}
