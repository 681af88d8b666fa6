//! The record of each break: who, what, why, whose.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::json;

use crate::api::types::{HolderView, epoch_millis};

/// Where breaks are written down: in the log always, and in a file if there is one, as one JSON object a line.
#[derive(Debug)]
pub(crate) struct Audit(Option<Mutex<File>>);

impl Audit {
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().append(true).create(true).open(path);
            file.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
        };
        Ok(Self(path.map(open).transpose()?.map(Mutex::new)))
    }

    /// Notes a break that was asked for, and how it ended: those who held, or why not.
    pub(crate) fn note(
        &self,
        who: &str,
        namespace: &str,
        key: &str,
        reason: &str,
        ended: Result<&[HolderView], &str>,
    ) {
        let (broken, refused) = match ended {
            Ok(broken) => (broken, None),
            Err(why) => (&[][..], Some(why)),
        };
        tracing::warn!(target: "distlock::audit", who, namespace, key, reason, broken = broken.len(), refused,
            "a lock was broken, or should have been");
        let Some(file) = &self.0 else { return };
        let line = json!({
            "at_ms": epoch_millis(SystemTime::now()),
            "action": "break",
            "who": who,
            "namespace": namespace,
            "key": key,
            "reason": reason,
            "broken": broken,
            "refused": refused,
        });
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = writeln!(file, "{line}").and_then(|()| file.flush()) {
            tracing::error!(target: "distlock::audit", error = %e, "the audit log cannot be written");
        }
    }
}
