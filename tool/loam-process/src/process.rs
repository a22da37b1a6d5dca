//! One process as the system describes it: its identity, and the figures that cost nothing to read.
//!
//! Other programs chose all that is read here. Names may be any bytes, and a file may be empty
//! because the process is just ending. Text is read lossily, and figures that are absent stay
//! absent.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use thiserror::Error;

use loam_format::plain::{self, printable};

use crate::apart::{step, Doing};

/// A process number. Positive and at most 2^22 on Linux.
pub type Pid = i32;

/// Why a process can not be looked at.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No process has this number.
    #[error("there is no process {0}")]
    Absent(Pid),
    /// The process existed, and does not any more.
    #[error("process {0} ended while it was being read")]
    Ended(Pid),
    /// The process has ended, and only its entry in the table of processes is left.
    #[error(
        "process {0} has ended and waits for its parent to collect it; it has no memory any more"
    )]
    Zombie(Pid),
    /// The number belongs to a thread of the kernel.
    #[error("{0} is a thread of the kernel and has no memory of its own")]
    Kernel(Pid),
    /// The numbers under /proc are those of another PID namespace.
    #[error(
        "/proc belongs to another PID namespace: it calls this loam {there} and the system calls \
         it {here}, so process {pid} would be mistaken for another; mount the namespace's own \
         (`mount -t proc proc /proc`, or `unshare --mount-proc`)"
    )]
    OtherNamespace {
        /// Its number.
        pid: Pid,
        /// This process's number in system calls.
        here: Pid,
        /// This process's number in /proc.
        there: String,
    },
    /// The system does not allow it.
    #[error("{what} of process {pid} may not be read: {remedy}")]
    Denied {
        /// Its number.
        pid: Pid,
        /// What was wanted.
        what: &'static str,
        /// What to do.
        remedy: String,
    },
    /// The process holds up its readers.
    #[error("process {pid} can not be read: {doing}")]
    Silent {
        /// Its number.
        pid: Pid,
        /// What it waits for.
        doing: Doing,
    },
    /// The system gave an answer that is not understood.
    #[error("{what} of process {pid} can not be read: {reason}")]
    Unreadable {
        /// Its number.
        pid: Pid,
        /// What was wanted.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
}

impl ProcessError {
    /// What an error of the file system means for a process that existed a moment ago.
    pub fn of_io(pid: Pid, what: &'static str, error: &io::Error) -> ProcessError {
        match error.kind() {
            io::ErrorKind::NotFound => ProcessError::Ended(pid),
            // ESRCH: the file was opened in time, and the process ended before it was read.
            _ if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                ProcessError::Ended(pid)
            }
            io::ErrorKind::PermissionDenied => ProcessError::Denied {
                pid,
                what,
                remedy: permission_remedy(pid),
            },
            _ => ProcessError::Unreadable {
                pid,
                what,
                reason: error.to_string(),
            },
        }
    }

    /// Whether the process simply does not exist any more.
    pub fn is_gone(&self) -> bool {
        matches!(
            self,
            ProcessError::Absent(_) | ProcessError::Ended(_) | ProcessError::Zombie(_)
        )
    }
}

/// What a user who was refused can do, by what the system says of itself.
pub fn permission_remedy(pid: Pid) -> String {
    let me = rustix::process::geteuid().as_raw();
    let owner = Identity::read(pid).ok().map(|identity| identity.user);
    match owner {
        // If the user is root already, there is another reason.
        _ if me == 0 => "you are root, but without the capability CAP_SYS_PTRACE over it: a \
                         container, a user namespace or a sandbox keeps it from you; run loam \
                         outside, or give the container SYS_PTRACE"
            .to_owned(),
        Some(owner) if owner != me => {
            format!("it belongs to user {owner} and you are {me}; run loam as that user or as root")
        }
        _ => match yama_scope() {
            Some(scope @ 1..) => format!(
                "the system lets only parents look into processes (kernel.yama.ptrace_scope is \
                 {scope}); run loam as root, or `sysctl kernel.yama.ptrace_scope=0`"
            ),
            _ => "the process has raised privileges or forbids it; run loam as root".to_owned(),
        },
    }
}

/// How far the security module Yama limits looks into the user's own processes; none if it is
/// absent.
pub fn yama_scope() -> Option<u32> {
    let text = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    text.trim().parse().ok()
}

/// What distinguishes a process from all earlier and later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey {
    /// Its number, which may be used again after it ends.
    pub pid: Pid,
    /// When it started, in clock ticks since the system did.
    pub started: u64,
}

/// The identity of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Number and start.
    pub key: ProcessKey,
    /// What the kernel calls it, at most 15 bytes.
    pub name: String,
    /// The file that it runs, as far as that may be known.
    pub executable: Option<PathBuf>,
    /// Its command line, as a shell reads it; empty for threads of the kernel.
    pub command: String,
    /// The first word of the command line.
    pub argument0: String,
    /// The effective user.
    pub user: u32,
    /// The state's letter: R, S, D, T, Z...
    pub state: char,
    /// Whether it is a thread of the kernel.
    pub of_the_kernel: bool,
}

impl Identity {
    /// Reads the identity of a process. The number of a thread stands for its process.
    pub fn read(pid: Pid) -> Result<Identity, ProcessError> {
        let mut identity = Identity::sketch(pid)?;
        let face = face(identity.key.pid);
        identity.read_command(face);
        Ok(identity)
    }

    /// The same without the command line: all that can be read without waiting, whatever the
    /// process does.
    pub fn sketch(pid: Pid) -> Result<Identity, ProcessError> {
        require_own_proc(pid)?;
        let status = match read_short(&format!("/proc/{pid}/status")) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ProcessError::Absent(pid))
            }
            Err(error) => return Err(ProcessError::of_io(pid, "the status", &error)),
        };
        let pid = fields(&status)
            .find(|(key, _)| *key == b"Tgid")
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or(pid);
        let mut files = Files::open(pid)?;
        let glance = files.read()?;
        Ok(Identity::of(&files, &glance))
    }

    /// The identity of the process that these files belong to, by what they said just now; and its
    /// command line.
    pub fn again(files: &Files, glance: &Glance) -> Identity {
        let mut identity = Identity::of(files, glance);
        identity.read_command(files.face);
        identity
    }

    fn of(files: &Files, glance: &Glance) -> Identity {
        let stat = &glance.stat;
        Identity {
            key: stat.key(files.pid),
            name: printable(&stat.name),
            executable: fs::read_link(format!("/proc/{}/exe", files.face)).ok(),
            command: String::new(),
            argument0: String::new(),
            user: glance.user,
            state: stat.state,
            of_the_kernel: stat.is_of_the_kernel(),
        }
    }

    /// Two kinds of processes have an empty command line: the kernel's threads and processes that
    /// have ended. The command line lies in the process's memory, so this read may wait.
    fn read_command(&mut self, face: Pid) {
        step(Doing::Process(self.key.pid));
        let words = read_short(&format!("/proc/{face}/cmdline")).unwrap_or_default();
        let mut words: Vec<Cow<str>> = words
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .collect();
        while words.last().is_some_and(|word| word.is_empty()) {
            words.pop();
        }
        self.command = plain::command(&words);
        self.argument0 = printable(words.first().map_or("", Cow::as_ref));
    }

    /// Fails for a process without memory.
    pub fn require_memory(&self) -> Result<(), ProcessError> {
        match self.state {
            'Z' | 'X' | 'x' => Err(ProcessError::Zombie(self.key.pid)),
            _ if self.of_the_kernel => Err(ProcessError::Kernel(self.key.pid)),
            // A process that ends gives up its memory before its state says so.
            _ if self.command.is_empty()
                && self.executable.is_none()
                && !has_memory(face(self.key.pid)) =>
            {
                Err(ProcessError::Ended(self.key.pid))
            }
            _ => Ok(()),
        }
    }

    /// Every name that a user may use for it: the kernel's, the file's, the first word's.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let file = self
            .executable
            .as_deref()
            .and_then(|path| path.file_name())
            .and_then(|name| name.to_str())
            .map(|name| name.trim_end_matches(" (deleted)"));
        let word = self.argument0.rsplit('/').next();
        [Some(self.name.as_str()), file, word]
            .into_iter()
            .flatten()
            .filter(|name| !name.is_empty())
    }
}

/// How much one call reads from a file of the system; nearly all files are shorter. Chosen: one
/// page.
const SHORT: usize = 4096;

/// Reads a whole file of the system. Such a file reports no length, and the system makes its text
/// again for many calls. So it costs less to read it into enough room than to ask for its length
/// and grow.
fn read_short(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(SHORT);
    fs::File::open(path)?
        .take(u64::MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`, in the flags of `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The number under which the system shows the process's memory: its own, or, if its main thread
/// has ended, that of a live thread.
pub fn face(pid: Pid) -> Pid {
    if has_memory(pid) {
        return pid;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads = threads.into_iter().flatten().filter_map(|entry| {
        let thread: Pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        has_memory(thread).then_some(thread)
    });
    threads.next().unwrap_or(pid)
}

/// Fails if /proc numbers processes otherwise than the system calls: a number from one would mean
/// another process to the other.
fn require_own_proc(pid: Pid) -> Result<(), ProcessError> {
    let here = rustix::process::getpid().as_raw_nonzero().get();
    let there = fs::read_link("/proc/self").unwrap_or_default();
    match there.to_str() {
        Some(number) if number.parse() == Ok(here) => Ok(()),
        // No /proc at all is another error, which the reader of /proc reports.
        _ if !fs::exists("/proc/stat").unwrap_or(false) => Ok(()),
        number => Err(ProcessError::OtherNamespace {
            pid,
            here,
            there: number
                .filter(|n| !n.is_empty())
                .unwrap_or("nothing")
                .to_owned(),
        }),
    }
}

/// Whether the process has memory of its own. The kernel's threads and ending processes have none.
pub fn has_memory(pid: Pid) -> bool {
    read_short(&format!("/proc/{pid}/statm"))
        .is_ok_and(|text| text.first().is_some_and(|digit| *digit != b'0'))
}

/// Whether the process was sent SIGKILL and has not ended yet. Its memory may already be taken away
/// piece by piece.
pub fn is_being_killed(pid: Pid) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let status = read_short(&format!("/proc/{}/status", face(pid))).unwrap_or_default();
    let mut pending = fields(&status)
        .filter(|(key, _)| matches!(*key, b"SigPnd" | b"ShdPnd"))
        .filter_map(|(_, value)| u64::from_str_radix(value.trim(), 16).ok());
    pending.any(|signals| signals & SIGKILL != 0)
}

/// Resident bytes that belong to no file and to no shared memory, exact to the kernel's batches of
/// counting: the cheapest figure. None for a process that has ended.
pub fn private_bytes(pid: Pid) -> Option<u64> {
    let (resident, shared) = resident_and_shared(pid)?;
    Some(resident.saturating_sub(shared))
}

/// Resident bytes, as exact. None for a process that has ended.
pub fn resident_bytes(pid: Pid) -> Option<u64> {
    Some(resident_and_shared(pid)?.0)
}

fn resident_and_shared(pid: Pid) -> Option<(u64, u64)> {
    let read = |pid| read_short(&format!("/proc/{pid}/statm")).ok();
    let own = read(pid)?;
    let text = match own.first() {
        Some(b'0') => read(face(pid))?,
        _ => own,
    };
    let text = std::str::from_utf8(&text).ok()?;
    let mut words = text.split_ascii_whitespace().skip(1);
    let mut bytes = || Some(words.next()?.parse::<u64>().ok()? * rustix::param::page_size() as u64);
    Some((bytes()?, bytes()?))
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The kernel's name of the process, as the file has it.
    pub name: String,
    /// The state's letter.
    pub state: char,
    flags: u64,
    /// Page faults that needed no disk, since the start.
    pub minor_faults: u64,
    /// Page faults that needed it.
    pub major_faults: u64,
    /// Processor time, in clock ticks.
    pub cpu_ticks: u64,
    /// Threads.
    pub threads: u64,
    /// Start, in clock ticks since the system's.
    pub started: u64,
}

impl Stat {
    /// Reads it.
    pub fn read(pid: Pid) -> Result<Stat, ProcessError> {
        let bytes = read_short(&format!("/proc/{pid}/stat"))
            .map_err(|error| ProcessError::of_io(pid, "the state", &error))?;
        Stat::parse(&bytes).ok_or(ProcessError::Ended(pid))
    }

    /// That of a thread. Unlike that of the process, its times are of one thread: the kernel needs
    /// not sum up those of all threads.
    pub fn read_thread(pid: Pid, thread: Pid) -> Result<Stat, ProcessError> {
        let bytes = read_short(&format!("/proc/{pid}/task/{thread}/stat"))
            .map_err(|error| ProcessError::of_io(thread, "the state", &error))?;
        Stat::parse(&bytes).ok_or(ProcessError::Ended(thread))
    }

    /// What distinguishes the process from all others.
    pub fn key(&self, pid: Pid) -> ProcessKey {
        ProcessKey {
            pid,
            started: self.started,
        }
    }

    /// Whether it is a thread of the kernel.
    pub fn is_of_the_kernel(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether the process has ended, and only its entry in the table of processes is left. If
    /// other threads live, only the first thread has ended.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    fn parse(bytes: &[u8]) -> Option<Stat> {
        // The name is in parentheses and may itself contain blanks and parentheses, so the last
        // parenthesis ends it.
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
        let rest = String::from_utf8_lossy(bytes.get(close + 1..)?).into_owned();
        let words: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts fields from 1 and the state is the third.
        let number = |field: usize| words.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            name,
            state: words.first()?.chars().next()?,
            flags: number(9)?,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            threads: number(20)?,
            started: number(22)?,
        })
    }
}

/// The `Key: value` lines of `/proc/PID/status`.
fn fields(text: &[u8]) -> impl Iterator<Item = (&[u8], &str)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = std::str::from_utf8(&line[colon + 1..]).ok()?;
        Some((&line[..colon], value))
    })
}

/// A process's number in its own PID namespace.
pub fn inner(pid: Pid) -> Option<Pid> {
    let numbers = status_value(pid, "NSpid")?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// What `/proc/PID/status` says of a key, such as `Uid`; none if the process has gone, or if the
/// system does not say it.
pub fn status_value(pid: Pid, key: &str) -> Option<String> {
    let status = read_short(&format!("/proc/{pid}/status")).ok()?;
    let mut fields = fields(&status);
    let (_, value) = fields.find(|(name, _)| *name == key.as_bytes())?;
    Some(value.trim().to_owned())
}

/// The memory figures of `/proc/PID/status`: every user may read them, and the process pays
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outline {
    /// Resident bytes: the sum of the next three.
    pub resident: u64,
    /// Anonymous bytes.
    pub anonymous: u64,
    /// Pages of files.
    pub files: u64,
    /// Shared memory.
    pub shared: u64,
    /// Swapped out; not resident.
    pub swapped: u64,
    /// Address space, whether or not anything is there.
    pub virtual_bytes: u64,
    /// The highest resident bytes so far.
    pub peak_resident: u64,
    /// Threads.
    pub threads: u64,
    /// Page faults without disk access since the start.
    pub minor_faults: u64,
    /// Page faults with disk access.
    pub major_faults: u64,
    /// Processor time in clock ticks.
    pub cpu_ticks: u64,
}

impl Outline {
    /// Reads it.
    pub fn read(pid: Pid) -> Result<Outline, ProcessError> {
        Ok(Files::open(pid)?.read()?.outline)
    }
}

/// The changing files of a process at one moment.
#[derive(Debug, Clone)]
pub struct Glance {
    /// The process's figures, with the state of a live thread, if there is one.
    pub stat: Stat,
    /// Its memory.
    pub outline: Outline,
    /// The effective user.
    pub user: u32,
    /// Whether it has memory of its own.
    pub has_memory: bool,
}

impl Glance {
    fn of(status: &[u8], stat: Stat) -> Glance {
        let mut glance = Glance {
            outline: Outline {
                threads: stat.threads,
                minor_faults: stat.minor_faults,
                major_faults: stat.major_faults,
                cpu_ticks: stat.cpu_ticks,
                ..Outline::default()
            },
            stat,
            user: u32::MAX,
            has_memory: false,
        };
        let outline = &mut glance.outline;
        for (key, value) in fields(status) {
            let mut words = value.split_ascii_whitespace();
            let into = match key {
                b"State" => {
                    let letter = words.next().and_then(|word| word.chars().next());
                    glance.stat.state = letter.unwrap_or(glance.stat.state);
                    continue;
                }
                b"Uid" => {
                    let effective = words.nth(1).and_then(|word| word.parse().ok());
                    glance.user = effective.unwrap_or(u32::MAX);
                    continue;
                }
                b"VmRSS" => {
                    glance.has_memory = true;
                    &mut outline.resident
                }
                b"RssAnon" => &mut outline.anonymous,
                b"RssFile" => &mut outline.files,
                b"RssShmem" => &mut outline.shared,
                b"VmSwap" => &mut outline.swapped,
                b"VmSize" => &mut outline.virtual_bytes,
                b"VmHWM" => &mut outline.peak_resident,
                _ => continue,
            };
            let kilobytes = words.next().and_then(|word| word.parse::<u64>().ok());
            *into = kilobytes
                .and_then(|amount| amount.checked_mul(1024))
                .unwrap_or(0);
        }
        glance
    }
}

/// The changing files of a process, kept open for repeated looks. They stay those of this process,
/// even if another process gets its number after its end.
#[derive(Debug)]
pub struct Files {
    pid: Pid,
    /// The process or thread of the status.
    face: Pid,
    status: fs::File,
    /// The process's own file, because that of a thread has the thread's start.
    stat: fs::File,
}

impl Files {
    /// Opens them.
    pub fn open(pid: Pid) -> Result<Files, ProcessError> {
        let open = |name, what| {
            let file = fs::File::open(format!("/proc/{pid}/{name}"));
            file.map_err(|error| ProcessError::of_io(pid, what, &error))
        };
        Ok(Files {
            pid,
            face: pid,
            status: open("status", "the status")?,
            stat: open("stat", "the state")?,
        })
    }

    /// Reads them once more. A process that has ended, or is ending, is an error.
    pub fn read(&mut self) -> Result<Glance, ProcessError> {
        let stat = Stat::parse(&self.text(&self.stat, "the state")?);
        let stat = stat.ok_or(ProcessError::Ended(self.pid))?;
        let glance = self.text(&self.status, "the status");
        let glance = glance.map(|status| Glance::of(&status, stat.clone()));
        let is_whole = matches!(&glance, Ok(glance) if glance.has_memory);
        if is_whole || stat.is_of_the_kernel() || stat.is_dead() {
            return glance;
        }
        // The thread that showed the memory has ended, and other threads live.
        let face = face(self.pid);
        let status = fs::File::open(format!("/proc/{face}/status"));
        self.status =
            status.map_err(|error| ProcessError::of_io(self.pid, "the status", &error))?;
        self.face = face;
        Ok(Glance::of(&self.text(&self.status, "the status")?, stat))
    }

    fn text(&self, file: &fs::File, what: &'static str) -> Result<Vec<u8>, ProcessError> {
        let mut text = Vec::new();
        let mut buffer = [0; SHORT];
        loop {
            let length = file.read_at(&mut buffer, text.len() as u64);
            let length = length.map_err(|error| ProcessError::of_io(self.pid, what, &error))?;
            text.extend_from_slice(&buffer[..length]);
            // The status of a user who is in a thousand groups is longer.
            if length < SHORT {
                return Ok(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let line = b"42 (a) b) (c) S 1 42 42 0 -1 4194304 100 0 7 0 30 12 0 0 20 0 3 0 999 5 6";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) b) (c", 'S'));
        assert_eq!((stat.minor_faults, stat.major_faults), (100, 7));
        assert_eq!((stat.cpu_ticks, stat.threads, stat.started), (42, 3, 999));
    }

    #[test]
    fn what_is_cut_short_is_no_panic() {
        let line = b"42 (a) S 1 42 42 0 -1 4194304 100 0 7 0 30 12 0 0 20 0 3 0 999 5 6";
        for end in 0..line.len() {
            let _ = Stat::parse(&line[..end]);
        }
        assert_eq!(Stat::parse(b")("), None);
        let stat = Stat::parse(line).unwrap();
        let odd =
            b"VmRSS:\nRssAnon: x kB\n\xff\xff: 1\nVmSwap: 18446744073709551615 kB\nUid: 7\nState:";
        for end in 0..=odd.len() {
            let glance = Glance::of(&odd[..end], stat.clone());
            assert_eq!(glance.outline.anonymous, 0);
            assert_eq!((glance.user, glance.stat.state), (u32::MAX, 'S'));
        }
        assert_eq!(Glance::of(odd, stat).outline.swapped, 0);
    }

    #[test]
    fn this_process_is_known_by_its_file_and_has_memory() {
        let me = Identity::read(std::process::id() as Pid).unwrap();
        let file = std::env::current_exe().unwrap();
        let file = file.file_name().unwrap().to_str().unwrap();
        assert!(me.names().any(|name| name == file), "{me:?}");
        me.require_memory().unwrap();
        let outline = Outline::read(me.key.pid).unwrap();
        assert!(outline.resident > 0 && outline.threads > 0);
        // The files are not one snapshot, so figures may differ a little.
        let sum = outline.anonymous + outline.files + outline.shared;
        assert!(sum.abs_diff(outline.resident) < 4 << 20);
    }

    #[test]
    fn files_that_stay_open_say_what_is_new_and_when_the_process_has_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut files = Files::open(child.id() as Pid).unwrap();
        let glance = files.read().unwrap();
        assert_eq!(glance.outline.threads, glance.stat.threads);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(files.read(), Err(ProcessError::Ended(_))));
        let mut me = Files::open(std::process::id() as Pid).unwrap();
        let before = me.read().unwrap().outline;
        // The compiler would leave out a block that is not used. No arena of a thread has as much
        // memory at its end (glibc's HEAP_MAX_SIZE is 64 MiB), so the block has a fresh mapping.
        let touched = std::hint::black_box(vec![1u8; 128 << 20]);
        let after = me.read().unwrap().outline;
        // Other tests of this process free memory meanwhile, but page faults only grow. With huge
        // pages there is one for each 2 MiB.
        let faults = (touched.len() as u64) >> 21;
        assert!(after.minor_faults >= before.minor_faults + faults);
        assert!(after.peak_resident >= touched.len() as u64);
    }

    #[test]
    fn a_process_whose_main_thread_has_ended_lives_and_has_memory() {
        let script = "import ctypes, threading, time\n\
                      threading.Thread(target=time.sleep, args=(60,)).start()\n\
                      print('ready', flush=True)\n\
                      ctypes.CDLL(None).syscall(60 if ctypes.sizeof(ctypes.c_long) and \
                      __import__('os').uname().machine == 'x86_64' else 93, 0)\n";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as Pid;
        let mut line = String::new();
        let mut out = io::BufReader::new(child.stdout.take().unwrap());
        io::BufRead::read_line(&mut out, &mut line).unwrap();
        while Stat::read(pid).unwrap().state != 'Z' {
            std::thread::yield_now();
        }
        let found = Identity::read(pid).unwrap();
        let outline = Outline::read(pid).unwrap();
        let needs = found.require_memory();
        let maps = super::super::mappings::read_names(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        needs.unwrap();
        assert_eq!(found.key.pid, pid);
        assert!(found.command.contains("threading"), "{found:?}");
        assert!(outline.resident > 0 && !maps.unwrap().is_empty());
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        let remedy = permission_remedy(std::process::id() as Pid);
        let am_root = rustix::process::geteuid().is_root();
        assert_eq!(am_root, !remedy.contains("as root"), "{remedy}");
    }

    #[test]
    fn nobody_has_an_impossible_number() {
        assert!(matches!(
            Identity::read(Pid::MAX),
            Err(ProcessError::Absent(_))
        ));
    }

    #[test]
    fn a_name_can_not_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(
            printable("gnp.\u{202e}exe\u{2028}"),
            "gnp.\u{fffd}exe\u{fffd}"
        );
    }
}
