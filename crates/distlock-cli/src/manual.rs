//! The manual page, made from the same definitions as `--help`.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, line_break, roman};

use crate::args::Cli;

/// Each exit code with its meaning.
const EXIT_STATUS: &[(&str, &str)] = &[
    (
        "the command's own",
        "It ran to its end; 128 + n if signal n ended it.",
    ),
    (
        "64",
        "Usage: a bad flag, key, duration or URL. Nothing was contacted.",
    ),
    (
        "75",
        "Busy: the lock was not obtained within the wait (-E N to change it, --skip-ok for 0).",
    ),
    ("78", "The configuration file is wrong. Nothing was contacted."),
    (
        "79",
        "The lock was lost while the command ran; the command was stopped.",
    ),
    ("124", "--max-hold passed; the command was stopped."),
    (
        "125",
        "The engine could not be reached within the wait, or refused; nothing was run.",
    ),
    ("126", "The command cannot be executed."),
    ("127", "The command was not found."),
    (
        "130, 143, 129",
        "Interrupted by INT, TERM, HUP while waiting; nothing was run.",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "DISTLOCK_URL",
        "The engine, unless --url is given. Passwords are safer here than on the command line.",
    ),
    (
        "DISTLOCK_CONFIG",
        "The configuration file, unless --config is given.",
    ),
    (
        "DISTLOCK_LOG",
        "What to log to standard error, such as distlock=debug.",
    ),
    (
        "DISTLOCK_KEY",
        "Set for the command: the key. Several are on lines of their own, sorted.",
    ),
    (
        "DISTLOCK_TOKEN",
        "Set for the command: the fencing token, a number that grows with each holder. Send it along with every \
         write, and let the store refuse a smaller one. Not set for --shared and --permits.",
    ),
    (
        "DISTLOCK_OWNER",
        "Set for the command: the owner, as the engine stores it.",
    ),
    (
        "DISTLOCK_ENGINE",
        "Set for the command: the engine's URL without secrets.",
    ),
    (
        "DISTLOCK_CTL",
        "Set for the command: lets a nested run of the same key re-enter.",
    ),
];

const CONFIGURATION: &str = "Read from /etc/distlock.toml, then from .config/distlock.toml in the home directory \
that the password database has for the user (not $HOME, so that cron jobs and shells agree); what the second says \
wins, and flags win over both. Settings: url, ttl, wait, kill_after, max_hold, on_lost, label, and a table [urls] of \
names for URLs, which can stand wherever a URL can.";

/// Writes the page, in roff.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(to: &mut dyn Write) -> io::Result<()> {
    let command = Cli::command().disable_help_flag(false);
    let man = Man::new(command.clone()).section("1");
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    for sub in command.get_subcommands() {
        subcommand(sub, to)?;
    }
    let mut roff = Roff::default();
    section(&mut roff, "EXIT STATUS", EXIT_STATUS);
    section(&mut roff, "ENVIRONMENT", ENVIRONMENT);
    roff.control("SH", ["CONFIGURATION"]);
    roff.text([roman(CONFIGURATION)]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("flock"), roman("(1), "), bold("timeout"), roman("(1)")]);
    roff.to_writer(to)
}

fn section(roff: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (term, text) in entries {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*text)]);
    }
}

/// One subcommand: its usage, what it does, its own options.
fn subcommand(sub: &clap::Command, to: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::default();
    let title = format!("distlock {}", sub.get_name());
    roff.control("SH", [title.to_uppercase().as_str()]);
    let mut sub = sub.clone().bin_name(title);
    roff.text([roman(sub.render_usage().to_string())]);
    roff.text([line_break()]);
    roff.text([roman(
        sub.get_about().map(ToString::to_string).unwrap_or_default() + ".",
    )]);
    for arg in sub.get_arguments().filter(|arg| !arg.is_hide_set()) {
        roff.control("TP", []);
        roff.text(term(arg));
        roff.text([roman(arg.get_help().map(ToString::to_string).unwrap_or_default())]);
    }
    roff.to_writer(to)
}

fn term(arg: &clap::Arg) -> Vec<Inline> {
    let mut words = Vec::new();
    if let Some(short) = arg.get_short() {
        words.push(bold(format!("-{short}")));
    }
    if let Some(long) = arg.get_long() {
        if !words.is_empty() {
            words.push(roman(", "));
        }
        words.push(bold(format!("--{long}")));
    }
    let takes_value = arg.get_action().takes_values();
    if takes_value || arg.is_positional() {
        let names = arg.get_value_names().unwrap_or_default();
        let name = names
            .first()
            .map_or_else(|| arg.get_id().to_string(), ToString::to_string);
        words.push(roman(if arg.is_positional() {
            name
        } else {
            format!(" {name}")
        }));
    }
    words
}
