//! The data that the locks protect: a store that checks tokens, and its twin that does not.
//!
//! Both live in the harness, behind a Unix socket, and survive the workers. The fenced one compares the token and
//! appends in one step; the unfenced one is read and then overwritten, as a file would be, so that two writers who
//! both believe that they hold lose each other's values.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufStream};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::history::{HoldId, Recorder, What};

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Appends to the fenced store, if no larger token was seen.
    Append {
        by: HoldId,
        key: String,
        token: Option<u64>,
        value: u64,
    },
    /// How long the unfenced list is.
    Length { key: String },
    /// Overwrites the unfenced list with its first `length` values and this one.
    Overwrite {
        by: HoldId,
        key: String,
        length: u64,
        value: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Accepted(bool),
    Length(u64),
}

#[derive(Debug, Default)]
struct State {
    fenced: HashMap<String, (Option<u64>, Vec<u64>)>,
    unfenced: HashMap<String, Vec<u64>>,
}

/// The two stores of a run.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    shared: Arc<Shared>,
    accepts: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    recorder: Arc<Recorder>,
}

impl Store {
    /// Listens on a socket at `path`; decisions go to the recorder.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(path: &Path, recorder: Arc<Recorder>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            recorder,
        });
        let serving = shared.clone();
        let accepts = tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, serving.clone()));
                }
            }
        });
        Ok(Self {
            path: path.to_owned(),
            shared,
            accepts,
        })
    }

    /// Where workers connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records what is stored.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn record(&self) -> io::Result<()> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fenced = state.fenced.iter().map(|(key, (_, values))| (key, true, values));
        let unfenced = state.unfenced.iter().map(|(key, values)| (key, false, values));
        for (key, fenced, values) in fenced.chain(unfenced) {
            self.shared.recorder.record(What::Stored {
                key: key.clone(),
                fenced,
                values: values.clone(),
            })?;
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Shared {
    /// Decides and records in one step, so that the record is in the store's order.
    fn decide(&self, request: Request) -> io::Result<Reply> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (by, key, token, fenced, value, accepted) = match request {
            Request::Length { key } => {
                return Ok(Reply::Length(state.unfenced.get(&key).map_or(0, Vec::len) as u64));
            }
            Request::Append {
                by,
                key,
                token,
                value,
            } => {
                let (largest, values) = state.fenced.entry(key.clone()).or_default();
                let accepted = token.is_some() && token >= *largest;
                if accepted {
                    *largest = token;
                    values.push(value);
                }
                (by, key, token, true, value, accepted)
            }
            Request::Overwrite {
                by,
                key,
                length,
                value,
            } => {
                let values = state.unfenced.entry(key.clone()).or_default();
                values.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                values.push(value);
                (by, key, None, false, value, true)
            }
        };
        self.recorder.record(What::Wrote {
            by,
            key,
            token,
            fenced,
            value,
            accepted,
        })?;
        Ok(Reply::Accepted(accepted))
    }
}

async fn serve(stream: UnixStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let reply = shared.decide(serde_json::from_str(&line)?)?;
        let mut reply = serde_json::to_vec(&reply)?;
        reply.push(b'\n');
        stream.write_all(&reply).await?;
        line.clear();
    }
    Ok(())
}

/// A worker's connection to the stores.
#[derive(Debug)]
pub struct StoreClient(BufStream<UnixStream>);

impl StoreClient {
    /// Connects.
    ///
    /// # Errors
    /// When the store is gone.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self(BufStream::new(UnixStream::connect(path).await?)))
    }

    /// Appends a value under a token to the fenced store; whether it was accepted.
    ///
    /// # Errors
    /// When the store is gone.
    pub async fn append(
        &mut self,
        by: HoldId,
        key: &str,
        token: Option<u64>,
        value: u64,
    ) -> io::Result<bool> {
        let key = key.to_owned();
        match self
            .ask(&Request::Append {
                by,
                key,
                token,
                value,
            })
            .await?
        {
            Reply::Accepted(accepted) => Ok(accepted),
            Reply::Length(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The first half of an unfenced write: how much is there.
    ///
    /// # Errors
    /// When the store is gone.
    pub async fn length(&mut self, key: &str) -> io::Result<u64> {
        match self.ask(&Request::Length { key: key.to_owned() }).await? {
            Reply::Length(length) => Ok(length),
            Reply::Accepted(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The second half: writes back what was there, and one value more.
    ///
    /// # Errors
    /// When the store is gone.
    pub async fn overwrite(&mut self, by: HoldId, key: &str, length: u64, value: u64) -> io::Result<()> {
        let key = key.to_owned();
        self.ask(&Request::Overwrite {
            by,
            key,
            length,
            value,
        })
        .await
        .map(|_| ())
    }

    async fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.0.write_all(&line).await?;
        self.0.flush().await?;
        let mut reply = String::new();
        if self.0.read_line(&mut reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&reply)?)
    }
}
