//! Settings of a directory, and of the host, that endanger its locks.

use std::path::Path;
use std::time::Duration;

use distlock_core::driver::{DriverError, Finding, Severity};
use rustix::fs;

use crate::config::Share;
use crate::filesystem;
use crate::place::Place;
use crate::snapshot::Snapshot;
use crate::table::BUCKETS;
use crate::trouble::failed;

/// With less room than this the next change of a busy bucket may fail.
const ROOM: u64 = 1 << 20;
/// Where programs that tidy up remove files that nobody changed for some days.
const TIDIED: [&str; 2] = ["/tmp", "/var/tmp"];
/// How far tokens may be ahead of the wall clock before the clock must have been set back.
const AHEAD: Duration = Duration::from_secs(60);

pub(crate) fn examine(place: &Place) -> Result<Vec<Finding>, DriverError> {
    let mut found = Vec::new();
    let path = place.dir().path();
    table(place, path, &mut found);
    let stat = fs::fstatfs(place.dir()).map_err(|e| failed("cannot examine", path, e))?;
    let kind = filesystem::kind(&stat);
    found.extend(file_system(path, kind));
    found.extend(room(
        path,
        stat.f_bavail,
        stat.f_bsize.unsigned_abs(),
        stat.f_files,
        stat.f_ffree,
    ));
    found.extend(parent(path));
    if let Some(tidied) = TIDIED.iter().find(|tidied| path.starts_with(tidied)) {
        let what = format!(
            "{} is below {tidied}, where programs remove what is old: holders and newcomers would use different tables",
            path.display()
        );
        let fix = "choose a directory such as /var/lib/distlock, or except it (tmpfiles.d: x)";
        found.push(Finding::new(Severity::Warning, "file-tidied", what, fix));
    }
    if place.dir().share() == Share::All {
        let what = format!(
            "{} is shared with every user of the host, who may break its locks",
            path.display()
        );
        let fix = "share=group with a group for those who need it";
        found.push(Finding::new(Severity::Info, "file-shared-with-all", what, fix));
    }
    Ok(found)
}

fn table(place: &Place, path: &Path, found: &mut Vec<Finding>) {
    let (mut damaged, mut last_token) = (0, 0);
    for bucket in 0..BUCKETS {
        match place.table.read(bucket) {
            Ok((
                _,
                Snapshot {
                    last_token: token, ..
                },
            )) => last_token = token.max(last_token),
            Err(_) => damaged += 1,
        }
    }
    if damaged > 0 {
        let what = format!(
            "{damaged} of {BUCKETS} parts of {} are damaged",
            place.table.path().display()
        );
        let fix = "`break` a key of each, or remove the directory when nobody uses it";
        found.push(Finding::new(Severity::Error, "file-damaged", what, fix));
    }
    if !place.is_in_place() {
        let what = format!("{} was removed or replaced while in use", path.display());
        let fix = "restart what still holds locks in it";
        found.push(Finding::new(Severity::Error, "file-removed", what, fix));
    }
    found.extend(wall_clock(last_token, place.table.boot.wall_micros()));
}

/// Tokens begin at the wall clock when a table is made; only a clock that was set back lets them be ahead of it.
fn wall_clock(last_token: u64, now_us: u64) -> Option<Finding> {
    let ahead = Duration::from_micros(last_token.saturating_sub(now_us));
    (ahead > AHEAD).then(|| {
        let what = format!(
            "the last token is {ahead:.0?} ahead of the host's clock, which was set back: if the table were lost now, \
             the next tokens would be smaller"
        );
        let fix = "set the clock (NTP), and do not remove the directory before it has caught up";
        Finding::new(Severity::Warning, "file-clock", what, fix)
    })
}

fn file_system(path: &Path, kind: filesystem::Kind) -> Option<Finding> {
    let path = path.display();
    let name = kind.name.unwrap_or("an unknown file system");
    if !kind.is_local() {
        let what = format!("{path} is on {name} (network_fs=allow): two hosts may hold the same lock");
        let fix = "a directory on a local file system, or an engine with a server";
        return Some(Finding::new(Severity::Error, "file-network", what, fix));
    }
    match name {
        "tmpfs" | "ramfs" => {
            let what = format!(
                "{path} is on {name}, which a restart empties: tokens begin anew at the host's clock, and step back if \
                 that is behind then"
            );
            let fix = "a directory on a disk, if tokens are checked by a store that outlives the restart";
            Some(Finding::new(Severity::Warning, "file-volatile", what, fix))
        }
        "overlay" => {
            let what = format!(
                "{path} is in a container's own layer: other containers and the host do not see these locks"
            );
            let fix = "mount one directory of the host into all of them";
            Some(Finding::new(Severity::Info, "file-container-layer", what, fix))
        }
        _ => None,
    }
}

fn room(path: &Path, blocks: u64, size: u64, files: u64, files_left: u64) -> Option<Finding> {
    let bytes = blocks.saturating_mul(size);
    let no_files = files > 0 && files_left == 0;
    (bytes < ROOM || no_files).then(|| {
        let left = if no_files {
            "no file".to_owned()
        } else {
            format!("{} KiB", bytes >> 10)
        };
        let what = format!(
            "{left} left on the file system of {}: soon nothing can be locked",
            path.display()
        );
        let fix = "free some space; what is held can be released on a full disk";
        Finding::new(Severity::Warning, "file-full", what, fix)
    })
}

/// Whoever may write to the parent may put another directory in place of this one, unless the parent is sticky.
fn parent(path: &Path) -> Option<Finding> {
    let parent = path.parent()?;
    let mode = fs::stat(parent).ok()?.st_mode;
    (mode & 0o002 != 0 && mode & 0o1000 == 0).then(|| {
        let what = format!(
            "everybody may rename and replace {} (the mode of {} is {:04o}): two processes may then use two tables",
            path.display(),
            parent.display(),
            mode & 0o7777
        );
        let fix = format!("chmod o-w {}", parent.display());
        Finding::new(Severity::Error, "file-parent", what, fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_is_told() {
        let now = 1_800_000_000_000_000;
        assert_eq!(wall_clock(now + 1_000_000, now), None, "a busy counter");
        let found = wall_clock(now + 3_600_000_000, now).unwrap();
        assert_eq!((&*found.id, found.severity), ("file-clock", Severity::Warning));
    }

    #[test]
    fn a_file_system_of_other_hosts_is_an_error() {
        let nfs = filesystem::Kind::by_name("NFS").unwrap();
        let found = file_system(Path::new("/mnt/x"), nfs).unwrap();
        assert_eq!((&*found.id, found.severity), ("file-network", Severity::Error));
        assert!(file_system(Path::new("/x"), filesystem::Kind::by_name("ext4").unwrap()).is_none());
    }
}
