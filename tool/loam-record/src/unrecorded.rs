//! Programs that start below a recorded command and are not recorded: static ones, and those that
//! get an environment without the recording's variables.
//!
//! The kernel tells each start, and each recorded program makes a file when it starts. A start
//! without a file before the process's next start is one that nobody recorded.

use std::collections::{BTreeMap, HashMap};

use loam_format::words;
use loam_process::perf::{Started, Starts};
use loam_process::process::{Pid, Stat};

/// A start whose process lives and has made no file for so long will make none, in nanoseconds.
/// Chosen: a loader that waits for a slow disk.
const LATE: u64 = 2_000_000_000;
/// Starts that are listed one by one; more are only counted.
const LISTED: usize = 1_000;
/// How often the rings are read until they agree.
const ROUNDS: u32 = 4;
/// Names in the message at the end.
const NAMED: usize = 5;

/// Follows which programs start, and which of them are recorded.
#[derive(Debug)]
pub struct Unrecorded {
    starts: Starts,
    /// The command's process.
    command: Pid,
    /// Starts that no file belongs to yet, by process, in the order of time.
    open: HashMap<Pid, Vec<Started>>,
    /// Those that none will belong to any more.
    found: Vec<Started>,
    further: u64,
}

impl Unrecorded {
    /// For the starts below a command.
    pub fn new(starts: Starts, command: Pid) -> Unrecorded {
        Unrecorded {
            starts,
            command,
            open: HashMap::new(),
            found: Vec::new(),
            further: 0,
        }
    }

    /// Takes what the kernel has told meanwhile.
    pub fn look(&mut self) {
        let mut started = Vec::new();
        let own = std::process::id() as Pid;
        // Each processor has a ring. While one is read, a process may be forked into one that was
        // read before, and start a program in one that was not. All of them descend from this
        // process.
        for _ in 0..ROUNDS {
            self.starts.drain(&mut started);
            if started.iter().all(|one| self.starts.descends(one.pid, own)) {
                break;
            }
        }
        started.sort_by_key(|one| one.time);
        for one in started {
            // The tool starts programs of its own.
            if self.starts.descends(one.pid, self.command) {
                self.open.entry(one.pid).or_default().push(one);
            }
        }
    }

    /// A process that became that program made its file at that `CLOCK_MONOTONIC`. Its earlier
    /// starts made none. Of a process in another PID namespace the number is not known: then it is
    /// the one that became that program last.
    pub fn is_recorded(&mut self, pid: Option<Pid>, name: &str, moment: u64) {
        // The start comes before its file.
        self.look();
        let last = || {
            let all = self.open.values().flatten();
            let fits = all.filter(|one| one.name == name && one.time <= moment);
            fits.max_by_key(|one| one.time).map(|one| one.pid)
        };
        let Some(pid) = pid.or_else(last) else {
            return;
        };
        let Some(open) = self.open.get_mut(&pid) else {
            return;
        };
        let before = open.partition_point(|one| one.time <= moment);
        let mut earlier: Vec<Started> = open.drain(..before).collect();
        earlier.pop();
        if open.is_empty() {
            self.open.remove(&pid);
        }
        earlier.into_iter().for_each(|one| self.add(one));
    }

    fn add(&mut self, one: Started) {
        match self.found.len() < LISTED {
            true => self.found.push(one),
            false => self.further += 1,
        }
    }

    /// Ends the search: the starts that were not recorded, with the process that forked each, and
    /// how many there are beside these. `now`: `CLOCK_MONOTONIC`.
    pub fn finish(mut self, now: u64) -> (Vec<(Started, Option<Pid>)>, u64) {
        self.look();
        let mut rest: Vec<Started> = std::mem::take(&mut self.open)
            .into_values()
            .flatten()
            .collect();
        rest.sort_by_key(|one| one.time);
        for one in rest {
            // It may be about to make its file.
            let lives = || Stat::read(one.pid).is_ok_and(|stat| !stat.is_dead());
            if now.saturating_sub(one.time) >= LATE || !lives() {
                self.add(one);
            }
        }
        let with_parent = |one: Started| {
            let parent = self.starts.parent(one.pid);
            (one, parent)
        };
        let further = self.further + self.starts.lost();
        (self.found.into_iter().map(with_parent).collect(), further)
    }
}

/// One sentence about all of them.
pub fn told(found: &[(Started, Option<Pid>)], further: u64) -> Option<String> {
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for (one, _) in found {
        *names.entry(&one.name).or_default() += 1;
    }
    let mut names: Vec<(&str, u64)> = names.into_iter().collect();
    names.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let (all, more) = (
        found.len() as u64 + further,
        names.len().saturating_sub(NAMED),
    );
    let mut shown: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|(name, count)| match count {
            1 => format!("`{name}`"),
            _ => format!("`{name}` ({count} times)"),
        })
        .collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    (all > 0).then(|| {
        format!(
            "{} not recorded: {}; static, or started without the recording's variables (`env -i`)",
            match all {
                1 => "1 program was".to_owned(),
                _ => format!("{all} programs were"),
            },
            words::list(&shown)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(pid: Pid, time: u64, name: &str) -> Started {
        Started {
            pid,
            time,
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_sentence_names_the_most_frequent_first() {
        assert_eq!(told(&[], 0), None);
        let found = ["b", "a", "b"].map(|name| (started(1, 1, name), None));
        assert_eq!(
            told(&found, 0).unwrap(),
            "3 programs were not recorded: `b` (2 times) and `a`; static, or started without the \
             recording's variables (`env -i`)"
        );
        assert!(told(&found[..1], 0)
            .unwrap()
            .starts_with("1 program was not recorded: `b`;"));
    }

    #[test]
    fn a_file_belongs_to_the_last_start_before_it() {
        let Ok(starts) = Starts::of_children() else {
            eprintln!("skipped: the kernel does not allow events here");
            return;
        };
        let mut unrecorded = Unrecorded::new(starts, 1);
        let all = vec![
            started(7, 10, "sh"),
            started(7, 20, "env"),
            started(7, 30, "prog"),
        ];
        unrecorded.open.insert(7, all);
        unrecorded.is_recorded(Some(7), "sh", 12);
        unrecorded.is_recorded(None, "env", 25);
        unrecorded.is_recorded(Some(8), "sh", 25);
        unrecorded.is_recorded(None, "other", 35);
        let (found, _) = unrecorded.finish(u64::MAX);
        let names: Vec<&str> = found.iter().map(|(one, _)| one.name.as_str()).collect();
        assert_eq!(names, ["prog"]);
    }
}
