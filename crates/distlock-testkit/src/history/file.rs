//! Histories as files of JSON lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::{Event, History, What, now};

/// Writes the events of one process.
#[derive(Debug)]
pub struct Recorder {
    process: u32,
    file: Mutex<File>,
}

impl Recorder {
    /// Appends to this file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path, process: u32) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            process,
            file: Mutex::new(file),
        })
    }

    /// Stamps an event with this moment and writes it. The stamp is taken under the writer's lock, so that a file
    /// is in order of time.
    ///
    /// # Errors
    /// When it cannot be written; the run is worthless then.
    pub fn record(&self, what: What) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut file, now(), self.process, what)
    }

    /// Writes an event with a stamp that was taken before.
    ///
    /// # Errors
    /// When it cannot be written; the run is worthless then.
    pub fn record_at(&self, at: u64, what: What) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut file, at, self.process, what)
    }
}

fn write(file: &mut File, at: u64, process: u32, what: What) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Event { at, process, what })?;
    line.push(b'\n');
    // One call: a process that is killed leaves whole lines.
    file.write_all(&line)
}

impl History {
    /// Reads all `*.jsonl` files of a directory.
    ///
    /// # Errors
    /// When a file cannot be read, or a line that is not the last of its file is not an event. (The last line of a
    /// killed process may be cut.)
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut events = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "jsonl") {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            for line in text.split_inclusive('\n') {
                match serde_json::from_str(line) {
                    Ok(event) => events.push(event),
                    Err(_) if !line.ends_with('\n') => {}
                    Err(e) => return Err(io::Error::other(format!("{}: {e}: {line}", path.display()))),
                }
            }
        }
        Ok(Self::new(events))
    }

    /// Writes all events to one file, for a later look.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut out = io::BufWriter::new(File::create(path)?);
        for event in self.events() {
            serde_json::to_writer(&mut out, event)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}
