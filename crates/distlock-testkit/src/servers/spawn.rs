//! Starting children that never outlive this process.
//!
//! The kernel's parent-death signal fires when the *thread* that forked ends, and test threads end early. All
//! children are therefore forked by one thread that lives as long as the process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

type Job = (Command, Sender<io::Result<Child>>);

/// Spawns `command` in a process group of its own; it is killed when this process ends, however that happens.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static FORKER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let forker = FORKER.get_or_init(|| {
        let (jobs, todo) = channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in todo {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    command.process_group(0);
    die_with_parent(&mut command);
    let (answer, child) = channel();
    forker
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, answer))
        .map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe work is allowed; the closure makes two plain system
    // calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died before the call above; then the signal will never come.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
}
