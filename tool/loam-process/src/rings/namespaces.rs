//! Processes of other namespaces: a sandbox inside of the recorded program has numbers, and maybe
//! clocks, of its own.

use std::fs;

use crate::process::{inner, Pid, Stat};

/// A recorded process, as this process's `/proc` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub pid: Pid,
    /// Its start, in ticks since the machine's.
    pub started: u64,
    /// What its `CLOCK_MONOTONIC` is behind this process's, in nanoseconds.
    pub behind: i64,
}

/// Finds the process that calls itself `pid` in namespaces with these inodes (0: unknown). None: it
/// is not visible here, or has ended.
pub fn find(pid: u32, started: u64, (space, time_space): (u64, u64)) -> Option<Seen> {
    let pid = Pid::try_from(pid).ok()?;
    let is_here = space == 0 || inode_of("self", "pid").is_none_or(|own| own == space);
    let seen = if is_here { pid } else { outer(pid, space)? };
    let has_own_clock =
        time_space != 0 && inode_of("self", "time").is_some_and(|own| own != time_space);
    if !has_own_clock {
        return Some(Seen {
            pid: seen,
            started,
            behind: 0,
        });
    }
    Some(Seen {
        pid: seen,
        started: Stat::read(seen).ok()?.started,
        behind: offset_of("self")?.checked_sub(offset_of(&seen.to_string())?)?,
    })
}

/// The number here of a process that has the number `pid` in a namespace below.
fn outer(pid: Pid, space: u64) -> Option<Pid> {
    let mut names = fs::read_dir("/proc").ok()?.flatten();
    names.find_map(|entry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        let here: Pid = name.parse().ok()?;
        let is_it = inner(here)? == pid && inode_of(name, "pid") == Some(space);
        is_it.then_some(here)
    })
}

/// The inode of a namespace, of a link like `pid:[4026531836]`.
fn inode_of(process: &str, kind: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()?;
    let link = link.to_str()?;
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// What a process's `CLOCK_MONOTONIC` is ahead of the machine's.
fn offset_of(process: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{process}/timens_offsets")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("monotonic"))?;
    let mut words = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, nanoseconds) = (words.next()?.ok()?, words.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_namespace_is_itself() {
        let me = std::process::id();
        let space = inode_of("self", "pid").unwrap();
        for known in [0, space] {
            let seen = find(me, 7, (known, 0)).unwrap();
            assert_eq!((seen.pid as u32, seen.started, seen.behind), (me, 7, 0));
        }
        assert_eq!(outer(me as Pid, space), Some(me as Pid));
        assert_eq!(outer(me as Pid, 1), None);
        assert_eq!(find(me, 7, (1, 0)), None);
    }
}
