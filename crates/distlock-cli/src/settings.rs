//! What was asked for, put together from flags, environment and configuration file, and checked.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use distlock_core::driver::{Kind, Mode};
use distlock_core::{Key, Lock, OnCrash, driver};

use crate::args::{Common, LockArgs};
use crate::config::Config;
use crate::engine::Engine;
use crate::exit::Exit;
use crate::say::Say;
use crate::values::Wait;

/// What no engine goes beyond.
const TTL: RangeInclusive<Duration> = Duration::from_millis(10)..=driver::MAX_TTL;

/// Which engine, and how to speak.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    pub(crate) say: Say,
}

impl Session {
    /// Reads the configuration; contacts nothing. `status_fd` is where events go.
    ///
    /// # Errors
    /// The exit code, after the trouble was told.
    pub(crate) fn open(common: &Common, status_fd: Option<i32>) -> Result<Self, Exit> {
        let plain = || Say::new(common.json, common.quiet);
        let say = plain()
            .with_url(common.url.clone())
            .with_status(status_fd)
            .map_err(|e| plain().error(Exit::USAGE, e, None))?;
        let config = Config::load(common.config.as_deref()).map_err(|e| {
            say.error(
                Exit::CONFIG,
                e,
                Some("see the section CONFIGURATION of: distlock man"),
            )
        })?;
        let url = config
            .url(common.url.as_deref())
            .map_err(|e| say.error(Exit::USAGE, e, None))?;
        Ok(Self {
            engine: Engine::new(url),
            config,
            say,
        })
    }
}

/// Which lock, and how to get it.
#[derive(Debug, Clone)]
pub(crate) struct Want {
    /// Sorted, each once: whoever wants several takes them in the same order.
    pub(crate) keys: Vec<Key>,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) ttl: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) fifo: bool,
    pub(crate) reason: Option<String>,
    pub(crate) label: Option<String>,
    /// `--once-per`: the window, and what a crash means.
    pub(crate) once: Option<(Duration, OnCrash)>,
    busy: Exit,
    done: Exit,
}

impl Want {
    /// Puts together and checks.
    ///
    /// # Errors
    /// The exit code, after the trouble was told.
    pub(crate) fn new(
        args: &LockArgs,
        session: &Session,
        default_label: Option<String>,
    ) -> Result<Self, Exit> {
        let mut keys = Vec::new();
        for name in args.key.iter().chain(&args.keys) {
            keys.push(key(name, &session.say)?);
        }
        keys.sort();
        keys.dedup();
        let mode = match args.permits {
            Some(of) => Mode::Slot { of },
            None if args.shared => Mode::Read,
            None if args.exclusive => Mode::Write,
            None => Mode::Mutex,
        };
        if args.permits == Some(0) {
            return Err(session
                .say
                .error(Exit::USAGE, "--permits is 0; it must be at least 1", None));
        }
        let ttl = match (args.ttl, session.config.ttl) {
            (Some(ttl), _) => Some((ttl, "--ttl", Exit::USAGE)),
            (None, Some(ttl)) => Some((ttl.0, "ttl in the configuration file", Exit::CONFIG)),
            (None, None) => None,
        };
        if let Some((ttl, name, exit)) = ttl
            && !TTL.contains(&ttl)
        {
            let text = format!(
                "{name} is {}; it can be {} to {} days, and each engine has a floor of its own",
                humantime::format_duration(ttl),
                humantime::format_duration(*TTL.start()),
                TTL.end().as_secs() / 86_400,
            );
            return Err(session.say.error(exit, text, None));
        }
        let ttl = ttl.map(|(ttl, ..)| ttl);
        let wait = if args.no_wait { Some(Wait::Try) } else { args.wait };
        Ok(Self {
            keys,
            mode,
            wait: wait.or(session.config.wait).unwrap_or(Wait::Forever),
            ttl,
            min_hold: args.min_hold,
            fifo: args.fifo,
            reason: args.reason.clone(),
            label: args
                .label
                .clone()
                .or(session.config.label.clone())
                .or(default_label),
            once: None,
            busy: match args.busy_exit_code {
                _ if args.skip_ok => Exit::OK,
                Some(code) => Exit::code(code),
                None => Exit::BUSY,
            },
            done: if args.skip_ok { Exit::OK } else { Exit::DONE },
        })
    }

    /// Limits the runs to one in each window.
    ///
    /// # Errors
    /// The exit code, after the trouble was told.
    pub(crate) fn once_per(mut self, window: Duration, on_crash: OnCrash, say: &Say) -> Result<Self, Exit> {
        if self.keys.len() > 1 {
            let text = format!("--once-per takes one key, and there are {}", self.keys.len());
            return Err(say.error(Exit::USAGE, text, None));
        }
        self.wait = Wait::Try;
        self.once = Some((window, on_crash));
        Ok(self)
    }

    /// The exit code for a lock that was not obtained.
    pub(crate) fn exit_of(&self, error: &distlock_core::Error) -> Exit {
        if self.is_done(error) {
            self.done
        } else if error.is_contention() {
            self.busy
        } else {
            Exit::of(error)
        }
    }

    /// Whether this exit code of a lock that was not obtained means that somebody else does the work, or did it.
    pub(crate) fn skips(&self, exit: Exit) -> bool {
        exit == self.busy || exit == self.done
    }

    /// Whether the lock was refused because the work was done within the window.
    pub(crate) fn is_done(&self, error: &distlock_core::Error) -> bool {
        self.once.is_some() && error.holder().is_some_and(driver::Holder::is_nobody)
    }

    /// The mode in words, as nested runs compare it.
    pub(crate) fn mode_words(&self) -> String {
        match self.mode {
            Mode::Mutex => "mutex".into(),
            Mode::Write => "write".into(),
            Mode::Read => "read".into(),
            Mode::Slot { of } => format!("permits {of}"),
        }
    }

    /// The library's lock for one of the keys.
    pub(crate) fn lock(&self, client: &distlock_core::Client, key: &Key) -> Lock {
        let mut lock = match self.mode {
            Mode::Mutex => match self.once {
                Some((window, on_crash)) => client.once(key, window, on_crash).lock(),
                None => client.mutex(key),
            },
            Mode::Write => client.rw(key).write(),
            Mode::Read => client.rw(key).read(),
            Mode::Slot { of } => client.semaphore(key, of),
        };
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(min) = self.min_hold {
            lock = lock.min_hold(min);
        }
        if self.fifo {
            lock = lock.order(driver::Order::Fifo);
        }
        if let Some(reason) = &self.reason {
            lock = lock.reason(reason.clone());
        }
        lock
    }

    /// The keys for a line of text.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.keys.iter().map(|key| format!("{key:?}")).collect();
        names.join(", ")
    }

    /// The keys for machines.
    pub(crate) fn names_json(&self) -> Vec<&str> {
        self.keys.iter().map(Key::as_str).collect()
    }
}

/// A key from the command line.
///
/// # Errors
/// The exit code, after the trouble was told.
pub(crate) fn key(name: &OsString, say: &Say) -> Result<Key, Exit> {
    Key::from_bytes(name.as_bytes()).map_err(|e| say.failure(&e, Exit::USAGE))
}

/// A kind of lock in words.
pub(crate) fn kind_words(kind: Option<Kind>) -> String {
    kind.map_or_else(
        || "lock".into(),
        |kind| {
            let words = kind.to_string();
            words.strip_prefix("a ").map(str::to_owned).unwrap_or(words)
        },
    )
}
