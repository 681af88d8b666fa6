//! On which file systems the table works: those with one page cache for `mmap`, `pread` and `pwrite`.

use std::path::Path;

use rustix::fs::StatFs;

/// A file system, by its magic number; see statfs(2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: Option<&'static str>,
    pub(crate) magic: u64,
    local: bool,
}

impl Kind {
    /// Whether it is known to be local and coherent.
    pub(crate) fn is_local(self) -> bool {
        self.local
    }

    #[cfg(test)]
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let (magic, name, local) = *KINDS.iter().find(|(_, known, _)| *known == name)?;
        Some(Self {
            name: Some(name),
            magic,
            local,
        })
    }
}

pub(crate) fn of(path: &Path) -> rustix::io::Result<Kind> {
    rustix::fs::statfs(path).map(|s| kind(&s))
}

pub(crate) fn kind(s: &StatFs) -> Kind {
    let magic = u64::from(s.f_type as u32);
    let known = KINDS.iter().find(|(m, ..)| *m == magic);
    Kind {
        name: known.map(|(_, name, _)| *name),
        magic,
        local: known.is_some_and(|(.., local)| *local),
    }
}

const KINDS: [(u64, &str, bool); 21] = [
    (0xef53, "ext4", true),
    (0x5846_5342, "xfs", true),
    (0x9123_683e, "btrfs", true),
    (0x0102_1994, "tmpfs", true),
    (0x8584_58f6, "ramfs", true),
    (0x794c_7630, "overlay", true),
    (0xf2f5_2010, "f2fs", true),
    (0x2fc1_2fc1, "zfs", true),
    (0xca45_1a4e, "bcachefs", true),
    (0x6969, "NFS", false),
    (0x517b, "SMB", false),
    (0xff53_4d42, "CIFS", false),
    (0xfe53_4d42, "SMB2", false),
    (0x6573_5546, "FUSE", false),
    (0x0102_1997, "9p", false),
    (0x00c3_6400, "Ceph", false),
    (0x5346_414f, "AFS", false),
    (0x0bd0_0bd0, "Lustre", false),
    (0x4750_4653, "GPFS", false),
    (0x0116_1970, "GFS2", false),
    (0x7461_636f, "OCFS2", false),
];
