//! Each program that the children of this thread become, and theirs: by `exec`, in any namespace,
//! whatever its environment is. The kernel tells it by an event that counts nothing and that
//! children inherit.

use std::collections::HashMap;
use std::io;

use loam_format::bytes::{u32_at, u64_at};
use perf_event_open_sys::bindings::{self as perf, perf_event_attr};

use super::system::{self, Event, Ring};
use super::threads::cpus;
use crate::process::Pid;

/// Bytes of a processor's ring. Chosen: some thousand starts between two looks; two pages more than
/// this are allowed for each processor by default (`perf_event_mlock_kb`).
const RING: usize = 128 << 10;

/// A process became a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The process.
    pub pid: Pid,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The kernel's name of the program: 15 bytes of the file's.
    pub name: String,
}

/// Watches programs start.
#[derive(Debug)]
pub struct Starts {
    rings: Vec<(Event, Ring)>,
    parents: HashMap<Pid, Pid>,
    lost: u64,
}

impl Starts {
    /// Begins to watch the children that this thread will have. An error says that the kernel does
    /// not allow it.
    pub fn of_children() -> io::Result<Starts> {
        let mut attributes = perf_event_attr {
            type_: perf::PERF_TYPE_SOFTWARE,
            config: u64::from(perf::PERF_COUNT_SW_DUMMY),
            sample_type: perf::PERF_SAMPLE_TIME as u64,
            clockid: 1, // CLOCK_MONOTONIC
            ..Default::default()
        };
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        attributes.set_use_clockid(1);
        attributes.set_inherit(1);
        attributes.set_task(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_sample_id_all(1);
        let mut rings = Vec::new();
        for cpu in cpus() {
            match system::open(&mut attributes, 0, cpu) {
                Ok(event) => {
                    let ring = Ring::of(&event, RING)?;
                    rings.push((event, ring));
                }
                // A processor that is switched off.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Starts {
            rings,
            parents: HashMap::new(),
            lost: 0,
        })
    }

    /// Appends what has started since the last question.
    pub fn drain(&mut self, started: &mut Vec<Started>) {
        let (parents, lost) = (&mut self.parents, &mut self.lost);
        for (_, ring) in &mut self.rings {
            ring.drain(|raw| {
                let number = |at: usize| u32_at(raw.body, at).map(|word| word as Pid);
                match raw.kind {
                    perf::PERF_RECORD_LOST => {
                        *lost = lost.saturating_add(u64_at(raw.body, 8).unwrap_or(0));
                    }
                    // pid, parent's pid. A thread has its own process's.
                    perf::PERF_RECORD_FORK => {
                        if let (Some(pid), Some(parent)) = (number(0), number(4)) {
                            if pid != parent {
                                parents.insert(pid, parent);
                            }
                        }
                    }
                    perf::PERF_RECORD_COMM
                        if u32::from(raw.misc) & perf::PERF_RECORD_MISC_COMM_EXEC != 0 =>
                    {
                        started.extend(became(raw.body));
                    }
                    _ => {}
                }
            });
        }
    }

    /// The process that forked this one.
    pub fn parent(&self, pid: Pid) -> Option<Pid> {
        self.parents.get(&pid).copied()
    }

    /// Whether a process is this one, or was forked by it or its descendants.
    pub fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        let mut at = Some(pid);
        // Numbers are used again, so that a chain might be a circle.
        for _ in 0..=self.parents.len() {
            match at {
                Some(pid) if pid == ancestor => return true,
                Some(pid) => at = self.parent(pid),
                None => return false,
            }
        }
        false
    }

    /// How many records were lost, because a ring was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// pid, thread, name; the time is the last word.
fn became(body: &[u8]) -> Option<Started> {
    let name = body.get(8..body.len().checked_sub(8)?)?;
    let end = name.iter().position(|byte| *byte == 0);
    Some(Started {
        pid: u32_at(body, 0)? as Pid,
        time: u64_at(body, body.len() - 8)?,
        name: String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_program_below_a_child_is_told_whatever_its_environment() {
        let Ok(mut starts) = Starts::of_children() else {
            eprintln!("skipped: the kernel does not allow events here");
            return;
        };
        let script = "env -i true; (exec env -i sleep 0); exit 0";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = child.id() as Pid;
        child.wait().unwrap();
        let mut started = Vec::new();
        starts.drain(&mut started);
        started.sort_by_key(|one| one.time);
        let names: Vec<&str> = started.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["sh", "env", "true", "env", "sleep"]);
        assert!(started.iter().all(|one| starts.descends(one.pid, pid)));
        assert_eq!(starts.lost(), 0);
        assert!(!starts.descends(1, pid));
    }

    #[test]
    fn a_cut_record_is_none() {
        let body = [7u32, 7, u32::from_le_bytes(*b"true"), 0, 9, 0].map(u32::to_le_bytes);
        let whole = became(body.as_flattened()).unwrap();
        assert_eq!((whole.pid, whole.time, &*whole.name), (7, 9, "true"));
        for length in 0..16 {
            assert_eq!(became(&body.as_flattened()[..length]), None, "{length}");
        }
    }
}
