//! Files in memory that a process holds by a descriptor and has not mapped. Their pages count for
//! nobody's resident set.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::mappings::Mapping;
use crate::process::{face, Pid};

/// Files in memory without a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldFiles {
    /// How many.
    pub count: u64,
    /// Bytes in memory.
    pub bytes: u64,
}

/// The most descriptors that are looked at; each costs two system calls.
const MOST_DESCRIPTORS: usize = 4096;

impl HeldFiles {
    /// Looks at the descriptors of a process.
    pub fn of(pid: Pid, mappings: &[Mapping]) -> HeldFiles {
        let mut held = HeldFiles::default();
        let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", face(pid))) else {
            return held;
        };
        let mut known: HashSet<u64> = mappings.iter().map(|mapping| mapping.inode).collect();
        for descriptor in descriptors.flatten().take(MOST_DESCRIPTORS) {
            let Ok(name) = fs::read_link(descriptor.path()) else {
                continue;
            };
            let name = name.to_string_lossy();
            // A file with a name is there without the process, too.
            let is_in_memory = name.starts_with("/memfd:")
                || name.ends_with(" (deleted)") && name.starts_with("/dev/shm/");
            let Some(file) = is_in_memory
                .then(|| fs::metadata(descriptor.path()).ok())
                .flatten()
            else {
                continue;
            };
            if known.insert(file.ino()) {
                held.count += 1;
                held.bytes += file.blocks() * 512;
            }
        }
        held
    }
}
