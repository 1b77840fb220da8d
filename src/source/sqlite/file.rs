//! Which file a path leads to, and whether it is still the file that was opened.
//!
//! SQLite looks at the path once. If the file is moved away and another put there, open connections go on with the old
//! one and new ones get the new one: two worlds, and no engine notices (hole 11). So every look at the database is
//! framed by looks at the path.
//!
//! Coeval never opens the file itself: closing any descriptor of it would drop all POSIX locks that this process holds on
//! it, SQLite's too.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

/// Where a database and the files beside it lie.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) database: PathBuf,
    wal: PathBuf,
    shm: PathBuf,
}

/// A file, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

/// The three files of a database. If one of them is another, connections opened before and after see different worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    database: Inode,
    wal: Option<Inode>,
    shm: Option<Inode>,
}

/// When the database's own file was last written, and how long it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    bytes: u64,
    at: Option<std::time::SystemTime>,
    /// When anything about the file was last changed, in seconds and nanoseconds. Unlike the time above, nobody can set
    /// it back.
    changed: (i64, i64),
}

/// What stood at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) identity: Identity,
    pub(super) written: Written,
    /// How many names the file has. Through another one it has another log, and what is written there isn't seen here.
    pub(super) names: u64,
}

impl Files {
    /// The files of the database at `path`, through symbolic links as SQLite goes.
    pub(super) fn at(path: &Path) -> Self {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let beside = |suffix: &str| {
            let mut name = real.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        Self {
            wal: beside("-wal"),
            shm: beside("-shm"),
            database: path.to_owned(),
        }
    }

    /// What stands there now; nothing if there is no database.
    pub(super) fn look(&self) -> Option<Look> {
        let database = fs::metadata(&self.database).ok().filter(Metadata::is_file)?;
        let beside = |path: &Path| fs::metadata(path).ok().map(|file| inode(&file));
        let identity = Identity {
            database: inode(&database),
            wal: beside(&self.wal),
            shm: beside(&self.shm),
        };
        let written = Written {
            bytes: database.len(),
            at: database.modified().ok(),
            changed: changed(&database),
        };
        let names = names(&database);
        Some(Look {
            identity,
            written,
            names,
        })
    }

    /// Whether the file lies on a disk of this machine, on which its locks and shared memory can be relied on. What
    /// isn't known doesn't.
    pub(super) fn is_local(&self) -> bool {
        self.look()
            .is_some_and(|look| is_local(look.identity.database.device))
    }
}

impl Identity {
    /// The same database file, whatever stands beside it.
    pub(super) fn same_database(&self, other: &Self) -> bool {
        self.database == other.database
    }

    /// Whether the log and its index are there.
    pub(super) fn has_log(&self) -> bool {
        self.wal.is_some() && self.shm.is_some()
    }
}

#[cfg(unix)]
fn inode(file: &Metadata) -> Inode {
    use std::os::unix::fs::MetadataExt as _;
    Inode {
        device: file.dev(),
        number: file.ino(),
    }
}

#[cfg(unix)]
fn names(file: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    file.nlink()
}

#[cfg(unix)]
fn changed(file: &Metadata) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    (file.ctime(), file.ctime_nsec())
}

#[cfg(not(unix))]
fn names(_: &Metadata) -> u64 {
    1
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> (i64, i64) {
    (0, 0)
}

/// Elsewhere the time of creation has to stand for the file.
#[cfg(not(unix))]
fn inode(file: &Metadata) -> Inode {
    let born = file
        .created()
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    Inode {
        device: 0,
        number: born.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0)),
    }
}

/// File systems on a machine's own disks or in its memory.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs",
    "xfs", "zfs",
];

/// Whether this device is mounted as one of them: fields 3 (`major:minor`) and, after the dash, the type.
fn is_local(device: u64) -> bool {
    let (major, minor) = (
        (device >> 8) & 0xfff | (device >> 32) & 0xffff_f000,
        device & 0xff | (device >> 12) & 0xffff_ff00,
    );
    let wanted = format!("{major}:{minor}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut types = mounts.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        (head.split(' ').nth(2)? == wanted).then(|| tail.split(' ').next())?
    });
    types.next().is_some_and(|kind| LOCAL.contains(&kind))
}
