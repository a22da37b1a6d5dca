//! The room that an allocator gives blocks of some sizes. A process of its own asks the allocator
//! (`native/replayer/classes.h`).

use std::path::Path;
use std::process::{Command, Stdio};

use loam_format::results::AllocatorRecord;
use serde::Deserialize;

/// The room of a block of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Room {
    /// Bytes asked for.
    pub size: u64,
    /// Bytes that the block has.
    pub room: u64,
    /// The largest request that gets less room and is at most an eighth smaller; 0: none.
    pub below: u64,
    /// The room of that request.
    pub room_below: u64,
}

/// Asks the allocator for the rooms. The list is empty if it can not be asked.
pub fn of(replayer: &Path, allocator: &AllocatorRecord, sizes: &[u64]) -> Vec<Room> {
    if sizes.is_empty() {
        return Vec::new();
    }
    let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let mut command = Command::new(replayer);
    command
        .args(["--rooms", &list.join(",")])
        .env_clear()
        .envs(&allocator.environment)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    if let Some(path) = allocator
        .path
        .as_ref()
        .filter(|_| allocator.name != "system")
    {
        command.env("LD_PRELOAD", path);
    }
    let Ok(output) = command.output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
