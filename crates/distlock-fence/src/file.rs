//! Fencing for files: the token is kept next to the data, and checked under a lock of the operating system.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use distlock_core::FencingToken;

use crate::error::FenceError;
use crate::gate::FenceGate;
use crate::record;

/// A file that refuses stale writers.
///
/// Next to the data lies `<name>.fence`, which remembers the largest token seen. A write takes the operating
/// system's lock on it, checks and remembers the token (on disk, before the data change), and then puts the new
/// content in place with an atomic rename. Readers see the old content or the new one, never a mixture, and need
/// no lock.
///
/// ```
/// use distlock_fence::{FencedFile, FencingToken};
/// let dir = tempfile::tempdir()?;
/// let report = FencedFile::new(dir.path().join("report.csv"));
///
/// report.replace(FencingToken::new(34), b"by the present holder")?;
/// let refused = report.replace(FencingToken::new(33), b"by one that was paused");
///
/// assert!(refused.is_err_and(|e| e.is_stale()));
/// assert_eq!(std::fs::read(dir.path().join("report.csv"))?, b"by the present holder");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Limits
/// - It protects against writers that use it. Whoever writes to the path directly is not seen.
/// - All writers must see one file system with working file locks: one host, or a network file system that passes
///   locks on to its server. On one that only pretends (some NFS and FUSE mounts) two writes may overlap.
/// - Deleting `<name>.fence` forgets the token. Delete it together with the data or not at all.
/// - A writer that is stopped *inside* a write keeps the others out until it goes on or is killed: they get
///   [`FenceError::Blocked`] after [`patience`](Self::patience). That is late, never wrong.
/// - All methods block on disk; async code uses the [`FenceGate`] of [`FileGate`], or `spawn_blocking`.
#[derive(Debug, Clone)]
pub struct FencedFile {
    path: PathBuf,
    patience: Duration,
}

impl FencedFile {
    /// Fences this path. Nothing is created before the first write. Through a symbolic link, the file that it
    /// points to is meant.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            patience: Duration::from_secs(10),
        }
    }

    /// How long a write waits for another one to end; 10 s by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Puts new content in place of the old, or creates the file. Permissions of an existing file are kept.
    ///
    /// # Errors
    /// [`FenceError`]; nothing was written unless it is [`Store`](FenceError::Store), and even then the content is
    /// the old or the new one as a whole.
    pub fn replace(&self, token: FencingToken, content: impl AsRef<[u8]>) -> Result<(), FenceError> {
        self.guarded(token, |path| swap(path, content.as_ref()))
    }

    /// Makes the new content from the old one (`None` if there is no file yet).
    ///
    /// # Errors
    /// As [`replace`](Self::replace); an error of `change` comes back as [`FenceError::Store`].
    pub fn update<F>(&self, token: FencingToken, change: F) -> Result<(), FenceError>
    where
        F: FnOnce(Option<Vec<u8>>) -> io::Result<Vec<u8>>,
    {
        self.guarded(token, |path| {
            let old = match fs::read(path) {
                Ok(old) => Some(old),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(e),
            };
            swap(path, &change(old)?)
        })
    }

    /// Adds to the end of the file, or creates it. Cheaper than [`update`](Self::update) for logs, but a crash can
    /// leave a part of `bytes` behind.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn append(&self, token: FencingToken, bytes: impl AsRef<[u8]>) -> Result<(), FenceError> {
        self.guarded(token, |path| {
            let mut file = OpenOptions::new().append(true).create(true).open(path)?;
            file.write_all(bytes.as_ref())?;
            file.sync_data()
        })
    }

    /// Runs any write of one's own while no other fenced write of this path can come in between: for data that are
    /// more than one file, or not a file at all. `write` gets the path with symbolic links resolved.
    ///
    /// # Errors
    /// As [`replace`](Self::replace), except that after an error of `write` the data are as it left them.
    pub fn guarded<T, F>(&self, token: FencingToken, write: F) -> Result<T, FenceError>
    where
        F: FnOnce(&Path) -> io::Result<T>,
    {
        let path = resolved(&self.path)?;
        let mut fence = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(beside(&path, ".fence"))?;
        self.lock(&fence)?;
        self.admit(&mut fence, token)?;
        // The lock ends when `fence` is closed, after the write.
        Ok(write(&path)?)
    }

    /// The largest token seen, if any.
    ///
    /// # Errors
    /// [`FenceError::Damaged`], or [`FenceError::Store`] when the record cannot be read.
    pub fn newest_token(&self) -> Result<Option<FencingToken>, FenceError> {
        match File::open(beside(&resolved(&self.path)?, ".fence")) {
            Ok(fence) => Ok(self.remembered(&fence)?.newest),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The rule: refuses a stale token, else remembers it on disk before anything is written.
    fn admit(&self, fence: &mut File, token: FencingToken) -> Result<(), FenceError> {
        let record = self.remembered(fence)?;
        match record.newest {
            Some(newest) if token < newest => Err(FenceError::Stale {
                resource: self.path.display().to_string(),
                token,
                newest,
            }),
            Some(newest) if token == newest => Ok(()),
            _ => {
                fence.seek(SeekFrom::Start((record.next_slot * record::SLOT) as u64))?;
                fence.write_all(&record::slot(token))?;
                Ok(fence.sync_data()?)
            }
        }
    }

    fn remembered(&self, fence: &File) -> Result<record::Record, FenceError> {
        let mut bytes = Vec::with_capacity(2 * record::SLOT);
        fence.take(2 * record::SLOT as u64).read_to_end(&mut bytes)?;
        record::read(&bytes).map_err(|why| FenceError::Damaged {
            resource: self.path.display().to_string(),
            why,
        })
    }

    /// Takes the operating system's lock within the patience. Polls, because the blocking form has no time-out.
    fn lock(&self, fence: &File) -> Result<(), FenceError> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            match fence.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(e)) => return Err(e.into()),
                Err(TryLockError::WouldBlock) if start.elapsed() >= self.patience => {
                    let resource = self.path.display().to_string();
                    return Err(FenceError::Blocked {
                        resource,
                        waited: start.elapsed(),
                    });
                }
                Err(TryLockError::WouldBlock) => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
            }
        }
    }
}

/// The real file, so that all names of it share one fence.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let name = path
                .file_name()
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
            let dir = path
                .parent()
                .filter(|dir| !dir.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            Ok(fs::canonicalize(dir)?.join(name))
        }
        other => other,
    }
}

/// `path` with something added to its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    name.into()
}

/// Replaces a file's content by an atomic rename. Called under the fence's lock, so that the name of the new file
/// can be fixed and what a crash left there is simply overwritten.
fn swap(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = beside(path, ".fence-new");
    let mut file = File::create(&fresh)?;
    match fs::metadata(path) {
        Ok(old) => file.set_permissions(old.permissions())?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_dir(path)
}

/// Makes the rename itself durable.
fn sync_dir(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if cfg!(unix) => File::open(dir)?.sync_all(),
        _ => Ok(()),
    }
}

/// A directory of [fenced files](FencedFile), one per resource: the file engine's [`FenceGate`].
#[derive(Debug, Clone)]
pub struct FileGate {
    dir: PathBuf,
}

impl FileGate {
    /// Fences the files below this directory, which must exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The file of a resource: its name is a relative path below the directory.
    ///
    /// # Errors
    /// [`FenceError::InvalidResource`] for a name that leads out of the directory, or ends like our own files.
    pub fn file(&self, resource: &str) -> Result<FencedFile, FenceError> {
        let invalid = |why| FenceError::InvalidResource {
            resource: resource.to_owned(),
            why,
        };
        let path = Path::new(resource);
        if resource.is_empty() || !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(invalid("it must be a relative path without `.` and `..`"));
        }
        if resource.ends_with(".fence") || resource.ends_with(".fence-new") {
            return Err(invalid("names that end in .fence or .fence-new are taken"));
        }
        Ok(FencedFile::new(self.dir.join(path)))
    }
}

/// The write is the file's new content.
impl FenceGate<Vec<u8>> for FileGate {
    type Output = ();

    async fn pass(&self, resource: &str, token: FencingToken, content: Vec<u8>) -> Result<(), FenceError> {
        let file = self.file(resource)?;
        let write = move || file.replace(token, content);
        tokio::task::spawn_blocking(write)
            .await
            .map_err(FenceError::store)?
    }
}
