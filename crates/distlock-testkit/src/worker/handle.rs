//! Workers as the harness sees them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::timeout;

use super::{Answer, Do, Reply, Request};
use crate::history::{Event, Recorder, What};
use crate::servers::{find, spawn};

/// How long a worker may take to answer, beyond what the request itself asks for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts workers of one run, each with a number of its own.
#[derive(Debug)]
pub struct Fleet {
    /// The worker program.
    pub program: PathBuf,
    /// The engine.
    pub url: String,
    /// Where histories go.
    pub dir: PathBuf,
    /// The stores' socket.
    pub store: PathBuf,
    /// Records what is done to the workers.
    pub recorder: Arc<Recorder>,
    /// Variables for the workers' environment.
    pub env: Vec<(String, String)>,
    /// The network namespace in which the workers run.
    pub namespace: Option<String>,
    next: AtomicU32,
}

impl Fleet {
    /// A fleet without workers.
    pub fn new(program: PathBuf, url: String, dir: PathBuf, store: PathBuf, recorder: Arc<Recorder>) -> Self {
        Self {
            program,
            url,
            dir,
            store,
            recorder,
            env: Vec::new(),
            namespace: None,
            next: AtomicU32::new(1),
        }
    }

    /// Starts one more worker.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> io::Result<Worker> {
        let process = self.next.fetch_add(1, Ordering::Relaxed);
        let events = self.dir.join(format!("worker-{process}.jsonl"));
        let log = File::create(self.dir.join(format!("worker-{process}.log")))?;
        let mut command = match &self.namespace {
            Some(namespace) => {
                let mut command = Command::new(find("ip").map_err(io::Error::other)?);
                command.args(["netns", "exec", namespace]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(["--url", &self.url, "--process", &process.to_string()])
            .arg("--events")
            .arg(&events)
            .arg("--store")
            .arg(&self.store)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let recorder = self.recorder.clone();
        Worker::new(process, spawn(command)?, events, recorder)
    }
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

/// A worker process. Killed when dropped, without a word in the history.
#[derive(Debug)]
pub struct Worker {
    process: u32,
    child: Child,
    stdin: AsyncMutex<Option<ChildStdin>>,
    waiting: Waiting,
    next: AtomicU64,
    events: PathBuf,
    recorder: Arc<Recorder>,
}

impl Worker {
    fn new(process: u32, mut child: Child, events: PathBuf, recorder: Arc<Recorder>) -> io::Result<Self> {
        let pipe = || io::Error::other("the worker has no pipe");
        let stdin = ChildStdin::from_std(child.stdin.take().ok_or_else(pipe)?)?;
        let stdout = ChildStdout::from_std(child.stdout.take().ok_or_else(pipe)?)?;
        let waiting = Waiting::default();
        tokio::spawn(listen(stdout, waiting.clone()));
        Ok(Self {
            process,
            child,
            stdin: AsyncMutex::new(Some(stdin)),
            waiting,
            next: AtomicU64::new(0),
            events,
            recorder,
        })
    }

    /// Its number in the history.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// When the worker is dead, or does not answer for a minute.
    pub async fn ask(&self, task: Do) -> io::Result<Answer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        self.waiting().insert(id, tell);
        let mut line = serde_json::to_vec(&Request { id, task })?;
        line.push(b'\n');
        match &mut *self.stdin.lock().await {
            Some(stdin) => stdin.write_all(&line).await?,
            None => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        timeout(PATIENCE, told)
            .await?
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its last events tell of a hold that it has not begun to release. A hint: it may do so right now.
    pub fn seems_to_hold(&self) -> bool {
        let tail = File::open(&self.events).and_then(|file| {
            let length = file.metadata()?.len();
            let from = length.saturating_sub(4096);
            let mut tail = vec![0; usize::try_from(length - from).unwrap_or(0)];
            file.read_exact_at(&mut tail, from)?;
            Ok(tail)
        });
        let tail = tail.unwrap_or_default();
        let mut held = std::collections::HashSet::new();
        for line in String::from_utf8_lossy(&tail).lines() {
            match serde_json::from_str::<Event>(line).map(|e| e.what) {
                Ok(What::Granted { hold, .. }) => {
                    held.insert(hold);
                }
                Ok(What::Releases { hold } | What::Lost { hold, .. } | What::Held { hold, held: false }) => {
                    held.remove(&hold);
                }
                _ => {}
            }
        }
        !held.is_empty()
    }

    /// Sends SIGSTOP, and says so in the history.
    ///
    /// # Errors
    /// When it is dead, or the history cannot be written.
    pub fn stop(&self) -> io::Result<()> {
        let victim = self.process;
        self.recorder.record(What::Stopped { victim })?;
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT, and says so in the history.
    ///
    /// # Errors
    /// When it is dead, or the history cannot be written.
    pub fn resume(&self) -> io::Result<()> {
        let victim = self.process;
        self.recorder.record(What::Continued { victim })?;
        self.signal(Signal::CONT)
    }

    /// Sends SIGKILL, says so in the history, and waits until it is gone.
    ///
    /// # Errors
    /// When it is dead, or the history cannot be written.
    pub fn kill9(mut self) -> io::Result<()> {
        let victim = self.process;
        self.recorder.record(What::Killed { victim })?;
        self.signal(Signal::KILL)?;
        self.child.wait().map(|_| ())
    }

    /// Lets it end on its own (see [`Do::Exit`]), says so in the history, and waits until it is gone.
    ///
    /// # Errors
    /// When it does not end within a minute, or the history cannot be written.
    pub async fn exit(mut self, abort: bool) -> io::Result<()> {
        let victim = self.process;
        self.recorder.record(What::Killed { victim })?;
        // Nobody answers.
        let _ = self.ask(Do::Exit { abort }).await;
        let ended = crate::servers::eventually(PATIENCE, async || self.child.try_wait().ok().flatten()).await;
        ended
            .map(|_| ())
            .ok_or_else(|| io::Error::other("the worker did not end"))
    }

    /// Ends it in good order: its standard input closes, and it shuts its client down.
    ///
    /// # Errors
    /// When it does not end well within a minute.
    pub async fn quit(mut self) -> io::Result<()> {
        // Closing the pipe is the request.
        self.stdin.get_mut().take();
        let ended = crate::servers::eventually(PATIENCE, async || self.child.try_wait().ok().flatten()).await;
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!(
                "worker {} ended with {status}",
                self.process
            ))),
            None => Err(io::Error::other(format!("worker {} does not end", self.process))),
        }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or_else(|| io::Error::other("not a process id"))?, signal)?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn listen(stdout: ChildStdout, waiting: Waiting) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(Reply { id, answer }) = serde_json::from_str(&line)
            && let Some(tell) = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
        {
            let _ = tell.send(answer);
        }
    }
    // The worker is gone: nobody will be answered any more.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
