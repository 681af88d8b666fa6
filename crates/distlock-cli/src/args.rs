//! The command line, as clap parses it.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help text, in which brackets are brackets"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use distlock_core::OnCrash;

use crate::values::{OnLost, Wait, duration, on_crash, on_lost, wait};

const EXIT_CODES: &str = "\
Exit codes:
  the command's own; 128 + n if signal n ended it
    64  usage: a bad flag, key, duration or URL; nothing was contacted
    75  busy: not obtained within the wait (-E N to change it, --skip-ok for 0)
    80  already done within the window of --once-per; nothing was run (--skip-ok for 0)
    78  the configuration file is wrong; nothing was contacted
    79  the lock was lost while the command ran; the command was stopped
   124  --max-hold passed; the command was stopped
   125  the engine could not be reached within the wait, or refused; nothing was run
   126  the command cannot be executed
   127  the command was not found
   130, 143, 129  interrupted by INT, TERM, HUP while waiting; nothing was run";

const FOR_FLOCK_USERS: &str = "\
Coming from flock(1):
  flock FILE CMD        distlock run KEY -- CMD        (no lock file is needed)
  flock -n FILE CMD     distlock try KEY -- CMD
  flock -w 10 FILE CMD  distlock run --wait 10s KEY -- CMD
  flock -E 0 -n …       distlock try --skip-ok …
  flock -s / -x         distlock run --shared / --exclusive
  flock FILE -c 'a; b'  distlock run KEY -- sh -c 'a; b'
  flock FD              distlock acquire / release, or distlock hold
  lslocks               distlock ls";

/// Run commands under a lock that means the same thing on every engine.
///
/// Without --url, locks are kept on this host, in a directory that depends only on the user: cron jobs and
/// shells meet. With --url they are kept on Redis, a Redlock quorum, MySQL, PostgreSQL, ZooKeeper or etcd.
#[derive(Debug, Parser)]
#[command(name = "distlock", version, max_term_width = 100, after_help = FOR_FLOCK_USERS)]
#[command(after_long_help = format!("{FOR_FLOCK_USERS}\n\n{EXIT_CODES}"))]
#[command(disable_help_subcommand = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The line of `run` and `try` without that word. Scripts start these two all day; to build the definitions of all
/// the others takes longer than to obtain the lock.
#[derive(Debug, Parser)]
#[command(name = "distlock")]
struct RunLine {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    args: RunArgs,
}

impl Cli {
    /// Parses the command line.
    ///
    /// # Errors
    /// What is wrong with it; or the help, or the version, that was asked for.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let mut words: Vec<OsString> = std::env::args_os().collect();
        let command = match words.get(1).and_then(|word| word.to_str()) {
            Some("run") => Command::Run as fn(RunArgs) -> Command,
            Some("try") => Command::Try,
            _ => return Self::try_parse_from(words),
        };
        let word = words.remove(1);
        if let Ok(line) = RunLine::try_parse_from(&words) {
            return Ok(Self {
                common: line.common,
                command: command(line.args),
            });
        }
        // Parsed as a whole for the message.
        words.insert(1, word);
        Self::try_parse_from(words)
    }
}

/// What every subcommand takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// The engine: a URL such as redis://127.0.0.1/, file:///var/lib/x, or a name from [urls] in the
    /// configuration file [default: this user's directory on this host]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DISTLOCK_URL",
        hide_env_values = true
    )]
    pub(crate) url: Option<String>,

    /// Read this configuration file instead of /etc/distlock.toml and ~/.config/distlock.toml
    #[arg(long, global = true, value_name = "FILE", env = "DISTLOCK_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Speak JSON, one object a line: results on standard output, messages on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Say nothing but errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,

    /// Log what happens inside to standard error (-vv: more); the variable DISTLOCK_LOG filters
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Common {
    /// The same on another engine, if one was named.
    pub(crate) fn at(&self, url: Option<&str>) -> Self {
        let mut common = self.clone();
        if let Some(url) = url {
            common.url = Some(url.to_owned());
        }
        common
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = EXIT_CODES, override_usage = "distlock run [OPTIONS] KEY... -- CMD [ARG...]")]
    Run(RunArgs),
    /// Run a command if the lock is free now (run --wait 0)
    #[command(after_help = EXIT_CODES, override_usage = "distlock try [OPTIONS] KEY... -- CMD [ARG...]")]
    Try(RunArgs),
    /// Stand for election, and run a command while leading
    #[command(after_help = EXIT_CODES, override_usage = "distlock elect [OPTIONS] OFFICE -- CMD [ARG...]")]
    Elect(ElectArgs),
    /// Hold a lock without a command: a JSON line when held, until end of input or a signal
    Hold(HoldArgs),
    /// Take a lease that no process keeps alive, and print its handle
    Acquire(AcquireArgs),
    /// Renew a lease for another TTL
    #[command(override_usage = "distlock renew [OPTIONS] <HANDLE>")]
    Renew(RenewArgs),
    /// Give a lease back
    #[command(override_usage = "distlock release [OPTIONS] <HANDLE>")]
    Release(ReleaseArgs),
    /// List locks
    Ls(LsArgs),
    /// Show who holds a lock, and who waits for it
    #[command(override_usage = "distlock inspect [OPTIONS] <KEY>")]
    Inspect(InspectArgs),
    /// Take a lock away from its holders
    #[command(override_usage = "distlock break [OPTIONS] --reason <TEXT> <KEY>")]
    Break(BreakArgs),
    /// Serve the locks over HTTP, with a page that shows them
    Serve(crate::cmd::serve::ServeArgs),
    /// Look for settings and troubles that endanger locks
    Doctor(DoctorArgs),
    /// Check the engine against what it promises
    Conformance(ConformanceArgs),
    /// Measure acquire and release
    Bench(BenchArgs),
    /// Make or show the table of locks in MySQL, MariaDB or PostgreSQL
    #[cfg(feature = "sql")]
    Sql(SqlArgs),
    /// Set up a Redlock quorum
    #[cfg(feature = "redis")]
    Redlock(RedlockArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    Man,
}

/// Which lock, and how to get it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LockArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8. Several names: all or none, in a safe order
    #[arg(value_name = "KEY", required_unless_present = "key")]
    pub(crate) keys: Vec<OsString>,

    /// The same as KEY, for a name that starts with a dash (--key=-x)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) key: Vec<OsString>,

    /// Hold as one of many readers of a read/write lock
    #[arg(long, short, conflicts_with_all = ["exclusive", "permits"])]
    pub(crate) shared: bool,

    /// Hold as the writer of a read/write lock, against --shared (the default is a plain mutex)
    #[arg(long, short = 'x', conflicts_with = "permits")]
    pub(crate) exclusive: bool,

    /// Up to N holders at a time; all contenders must say the same N
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u32>,

    /// How long to wait for the lock: 0, 1.5s, 10m, forever [default: forever]
    #[arg(long, short, value_name = "TIME", value_parser = wait)]
    pub(crate) wait: Option<Wait>,

    /// Do not wait (--wait 0)
    #[arg(long = "try", short = 'n', conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Be served in the order of arrival
    #[arg(long)]
    pub(crate) fifo: bool,

    /// The lease: how long the lock outlives a holder that nobody hears from [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// Stay held at least this long, also when the work is done sooner
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) min_hold: Option<Duration>,

    /// Why, for people who look
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Who, for people who look [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Exit with N instead of 75 when the lock is busy
    #[arg(long, short = 'E', value_name = "N", conflicts_with = "skip_ok")]
    pub(crate) busy_exit_code: Option<u8>,

    /// Exit with 0 when the lock is busy: skipping is fine
    #[arg(long)]
    pub(crate) skip_ok: bool,

    /// Write events as JSON lines to this open file descriptor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) status_fd: Option<i32>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,

    /// Stop the command when it has run this long: TERM, then KILL after --kill-after
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// The time between TERM and KILL when the command has to be stopped [default: 5s, at most ttl/4].
    /// When given, it also limits what the command may take after a TERM that was sent to distlock
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,

    /// Run at most once in this time, wherever; counts from the start of a run. Never waits
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "on_crash",
        conflicts_with_all = ["wait", "min_hold", "shared", "exclusive", "permits", "fifo"])]
    pub(crate) once_per: Option<Duration>,

    /// Of a run that does not end with 0, or whose host dies: retry (it was not done; the next caller runs it again)
    /// or skip (it counts as done)
    #[arg(long, value_name = "WHAT", value_parser = on_crash, requires = "once_per")]
    pub(crate) on_crash: Option<OnCrash>,

    /// What to do with the command when the lock is lost: kill (TERM, then KILL, before anybody else can hold
    /// it), signal:NAME (only that signal), ignore [default: kill]
    #[arg(long, value_name = "WHAT", value_parser = on_lost)]
    pub(crate) on_lost: Option<OnLost>,

    /// Count the run in this file, for the textfile collector of Prometheus' node exporter
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Give the command an empty standard input
    #[arg(long)]
    pub(crate) no_stdin: bool,

    /// The command and its arguments, byte for byte; no shell in between
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ElectArgs {
    /// What is led: all candidates name the same. It is a mutex of this name
    #[arg(value_name = "OFFICE", required_unless_present = "key")]
    pub(crate) office: Option<OsString>,

    /// The same as OFFICE, for a name that starts with a dash (--key=-x)
    #[arg(
        long,
        value_name = "OFFICE",
        allow_hyphen_values = true,
        conflicts_with = "office"
    )]
    pub(crate) key: Option<OsString>,

    /// How long there is no leader after one died, at most [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// Why, for people who look
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Who, for people who look [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// The time between TERM and KILL when the command has to be stopped [default: 5s, at most ttl/4]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,

    /// Write events as JSON lines to this open file descriptor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) status_fd: Option<i32>,

    /// Give the command an empty standard input
    #[arg(long)]
    pub(crate) no_stdin: bool,

    /// The command and its arguments, byte for byte. Started when elected, stopped before anybody else can be,
    /// started anew in the next term. When it ends by itself, its exit code is the end
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,

    /// Give the lock back after this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Do not end at the end of input; only a signal or a loss ends it
    #[arg(long)]
    pub(crate) no_stdin: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RenewArgs {
    /// What `acquire` printed; - reads it from standard input
    #[arg(value_name = "HANDLE")]
    pub(crate) handle: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReleaseArgs {
    /// What `acquire` printed; - reads it from standard input
    #[arg(value_name = "HANDLE")]
    pub(crate) handle: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LsArgs {
    /// Only locks whose names start with this, taken literally
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Go on, and show each change
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InspectArgs {
    /// The lock's name
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) key: OsString,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BreakArgs {
    /// The lock's name
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) key: OsString,

    /// Why; told to the holder and kept in the log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,

    /// Only if the present holder's token is N, as `inspect` shows it
    #[arg(long, value_name = "N")]
    pub(crate) expect_token: Option<u64>,

    /// Without the 5 seconds that the holder is given to stop before the next one may hold the lock
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// The engine, as with --url
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// End with 1 for warnings too, not for errors alone
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ConformanceArgs {
    /// The engine, as with --url
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// The engine, as with --url
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) time: Duration,

    /// How many tasks at once, each with a key of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) tasks: u16,
}

#[cfg(feature = "redis")]
#[derive(Debug, Clone, Args)]
pub(crate) struct RedlockArgs {
    #[command(subcommand)]
    pub(crate) what: RedlockCommand,
}

#[cfg(feature = "redis")]
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RedlockCommand {
    /// Vouch for the nodes of a new deployment: none has forgotten a lock that is held, so all may vote at once.
    /// Never after servers were lost: then wait for the longest lease (max_ttl) instead
    Init {
        /// The quorum: redlock://h1,h2,h3, or a name from [urls] in the configuration file [default: --url]
        #[arg(value_name = "URL")]
        url: Option<String>,
    },
}

#[cfg(feature = "sql")]
#[derive(Debug, Clone, Args)]
pub(crate) struct SqlArgs {
    #[command(subcommand)]
    pub(crate) what: SqlCommand,
}

#[cfg(feature = "sql")]
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SqlCommand {
    /// Make the table if it is missing; a table of that name that is not ours is refused
    Migrate(SqlUrl),
    /// Print the table's definition, for those who make it themselves; nothing is contacted
    Schema(SqlUrl),
}

#[cfg(feature = "sql")]
#[derive(Debug, Clone, Args)]
pub(crate) struct SqlUrl {
    /// The database: mysql://…, postgres://…, or a name from [urls] in the configuration file [default: --url]
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
}
