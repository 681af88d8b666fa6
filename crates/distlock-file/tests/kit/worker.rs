//! The other side of a [`Worker`](super::Worker): this test binary, started again, obeying lines on its stdin.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::driver::{DriverError, DriverErrorKind, LostReason, Mode, Released, Renewal};
use distlock_file::{Config, Share};

use super::{Ask, Client, Contender, client_of, mutex};

/// Sends a signal.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid, signal) };
}

/// Obeys, if this process was started as a worker.
pub fn main() {
    let Some(dir) = std::env::var_os("DISTLOCK_FILE_WORKER") else {
        return;
    };
    let share = match std::env::var("DISTLOCK_FILE_SHARE").as_deref() {
        Ok("group") => Share::Group,
        Ok("all") => Share::All,
        _ => Share::User,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(obey(Config {
        share,
        ..Config::new(PathBuf::from(dir))
    }));
    std::process::exit(0);
}

fn say(text: impl std::fmt::Display) {
    println!("#> {text}");
}

async fn obey(config: Config) {
    let client = match client_of(config) {
        Ok(client) => client,
        Err(e) => return say(format!("error {}", explain(&e))),
    };
    say(format!("ready {}", std::process::id()));
    let mut held: Option<Contender> = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lock", key, mode, order, ttl] => {
                let mut c = client.contender(ask(key, mode, order, ttl));
                let answer = c.wait(client.engine.clock()).await;
                held = Some(c);
                answered(answer.map(Some));
            }
            ["try", key, mode, ttl] => {
                let mut c = client.contender(ask(key, mode, "any", ttl).never());
                let answer = c.look().await;
                if matches!(answer, Ok(Some(_))) {
                    held = Some(c);
                }
                answered(answer);
            }
            // Acquire and release in a loop until the file appears, counting with a plain read-modify-write.
            ["count", key, stop, counter] => {
                say(count(&client, key, stop, counter).await);
            }
            ["release"] => match held.take() {
                None => say("nothing"),
                Some(mut c) => match c.claim.release(None).await {
                    Ok(Released::Freed) => say("freed"),
                    Ok(Released::NotHeld) => say("not held"),
                    Err(e) => say(format!("error {}", explain(&e))),
                },
            },
            ["renew", ttl] => {
                let c = held.as_ref().unwrap();
                let ttl = Duration::from_millis(ttl.parse().unwrap());
                say(match client.renew(c, ttl).await {
                    Renewal::Good(_) => "good".to_owned(),
                    Renewal::Lost(LostReason::Broken { reason }) => format!("lost broken {reason:?}"),
                    Renewal::Lost(reason) => format!("lost {}", reason.word()),
                    Renewal::Unknown(e) => format!("unknown {}", explain(&e)),
                });
            }
            ["stop-before-commit", n] => {
                distlock_file::hook::STOP_BEFORE_COMMIT.store(n.parse().unwrap(), Ordering::SeqCst);
                say("ok");
            }
            ["stopped"] => say(distlock_file::hook::STOPPED.load(Ordering::SeqCst)),
            // A child without exec, that sleeps; or that tries to release what is its parent's.
            ["fork", what] => {
                let c = held.as_mut().unwrap();
                // SAFETY: the child only makes system calls and then exits without running anything else.
                match unsafe { libc::fork() } {
                    0 if what == "sleep" => loop {
                        std::thread::sleep(Duration::from_secs(60));
                    },
                    0 => {
                        use futures_util::FutureExt;
                        let r = c.claim.release(None).now_or_never();
                        let code = i32::from(!matches!(r, Some(Ok(Released::NotHeld))));
                        // SAFETY: ends the child at once.
                        unsafe { libc::_exit(code) };
                    }
                    pid if what == "sleep" => say(format!("forked {pid}")),
                    pid => {
                        let mut status = 0;
                        // SAFETY: reaps the child just made.
                        unsafe { libc::waitpid(pid, &mut status, 0) };
                        say(format!("child {status}"));
                    }
                }
            }
            ["close"] => {
                client.driver.close().await;
                say("closed");
            }
            _ => say(format!("what? {line}")),
        }
    }
}

async fn count(client: &Client, key: &str, stop: &str, counter: &str) -> String {
    let mut done = 0u64;
    while !std::path::Path::new(stop).exists() {
        let mut c = client.contender(mutex(key).ttl(2000));
        c.wait(client.engine.clock()).await.unwrap();
        let n: u64 = std::fs::read_to_string(counter).unwrap().trim().parse().unwrap();
        std::fs::write(counter, (n + 1).to_string()).unwrap();
        c.claim.release(None).await.unwrap();
        done += 1;
    }
    format!("counted {done}")
}

fn ask(key: &str, mode: &str, order: &str, ttl: &str) -> Ask {
    let a = mutex(key).ttl(ttl.parse().unwrap()).mode(match mode {
        "mutex" => Mode::Mutex,
        "write" => Mode::Write,
        "read" => Mode::Read,
        n => Mode::Slot {
            of: n.parse().unwrap(),
        },
    });
    match order {
        "fifo" => a.fifo(),
        "lease" => a.lease(),
        _ => a,
    }
}

fn answered(answer: Result<Option<u64>, DriverError>) {
    match answer {
        Ok(Some(token)) => say(format!("held {token}")),
        Ok(None) => say("busy"),
        Err(e) => say(format!("error {}", explain(&e))),
    }
}

fn explain(e: &DriverError) -> String {
    let kind = match e.kind {
        DriverErrorKind::Unavailable => "unavailable",
        DriverErrorKind::Refused(_) => "refused",
        _ => "closed",
    };
    format!("{kind}: {e}")
}
