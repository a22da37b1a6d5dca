//! Names of code that a program made while it ran: those that its runtime tells in
//! `/tmp/perf-PID.map`, by the convention of perf (`node --perf-basic-prof`, `python -X perf`,
//! `DOTNET_PerfMapEnabled`, agents of Java).
//!
//! Each line has an address, a length, both in hexadecimal, and a name. Code moves and is replaced,
//! so a line counts more than those before it.
//!
//! The file is the target's, as is its `/tmp`: it is looked for below the target's root and never
//! outside, must be a regular file of the target's user, and only its end is read.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rangemap::RangeMap;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::mappings::Mapping;
use crate::process::{face, inner, status_value, Pid, Stat};

/// The path of the module in which such code lies: no file has it.
pub const PATH: &str = "//jit";

/// How much of a file is read, and how many lines of that. Chosen: a large program in node has a
/// tenth, and the tool's memory stays small.
const MOST_BYTES: u64 = 32 << 20;
const MOST_LINES: usize = 400_000;
/// A name is cut behind so many bytes.
const MOST_NAME: usize = 512;

/// Whether this is code that was made at run time: it lies in no file that could name it.
pub fn is_made(mapping: &Mapping) -> bool {
    let name = mapping.name.as_str();
    let is_memory = name.is_empty() || name.starts_with("[anon:") || name.starts_with("/memfd:");
    mapping.executable && is_memory
}

/// The names of one process's code.
#[derive(Default)]
pub struct Names {
    text: Vec<u8>,
    /// Where the name of a range of addresses begins and ends in the text.
    ranges: RangeMap<u64, (u32, u32)>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    fn read(file: &File) -> Names {
        let length = file.metadata().map_or(0, |about| about.len());
        let from = length.saturating_sub(MOST_BYTES);
        let mut text = vec![0; (length - from) as usize];
        let mut filled = 0;
        while filled < text.len() {
            match file.read_at(&mut text[filled..], from + filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(size) => filled += size,
            }
        }
        text.truncate(filled);
        if from > 0 {
            // The first line is not whole.
            let begin = text.iter().position(|byte| *byte == b'\n');
            text.drain(..begin.map_or(text.len(), |at| at + 1));
        }
        Names::parse(text)
    }

    fn parse(text: Vec<u8>) -> Names {
        let mut begin = text.len();
        let mut lines = 0;
        while begin > 0 && lines < MOST_LINES {
            let before = text[..begin - 1].iter().rposition(|byte| *byte == b'\n');
            begin = before.map_or(0, |at| at + 1);
            lines += 1;
        }
        let mut ranges = RangeMap::new();
        let mut at = begin;
        // A last line without an end is still being written.
        for line in text[begin..].split_inclusive(|byte| *byte == b'\n') {
            let end = at + line.len();
            if let Some((range, name)) = line.strip_suffix(b"\n").and_then(parts) {
                let name_end = end - 1;
                ranges.insert(range, ((name_end - name) as u32, name_end as u32));
            }
            at = end;
        }
        Names { text, ranges }
    }

    /// The name at an address in memory.
    pub fn at(&self, address: u64) -> Option<String> {
        let (begin, end) = *self.ranges.get(&address)?;
        let name = &self.text[begin as usize..end as usize];
        let name = &name[..name.len().min(MOST_NAME)];
        Some(String::from_utf8_lossy(name).trim().to_owned())
    }
}

/// The addresses of a line, and the length of its name.
fn parts(line: &[u8]) -> Option<(std::ops::Range<u64>, usize)> {
    let number = |word: &[u8]| {
        let word = std::str::from_utf8(word).ok()?;
        let word = word.strip_prefix("0x").unwrap_or(word);
        // `from_str_radix` would take a sign.
        word.starts_with(|c: char| c.is_ascii_hexdigit())
            .then(|| u64::from_str_radix(word, 16).ok())?
    };
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let start = number(words.next()?)?;
    let size = number(words.next()?)?;
    let name = words.next()?;
    let is_told = size > 0 && name.iter().any(|byte| !byte.is_ascii_whitespace());
    is_told.then_some((start..start.checked_add(size)?, name.len()))
}

/// Where a process tells names; it may have ended since.
#[derive(Debug)]
pub struct Source {
    root: File,
    /// Its number in its own namespace.
    inner: Pid,
    users: Vec<u32>,
    /// Seconds since 1970 at which the process was there already.
    since: i64,
}

impl Source {
    /// Of a living process.
    pub fn of(pid: Pid) -> Option<Source> {
        let users = status_value(pid, "Uid")?;
        let users = users.split_ascii_whitespace();
        Some(Source {
            root: File::open(format!("/proc/{}/root", face(pid))).ok()?,
            inner: inner(pid)?,
            users: users.filter_map(|one| one.parse().ok()).collect(),
            since: begin(pid)?,
        })
    }

    /// The names so far; none if there is no such file, or none that is the process's own. A file
    /// that was last written before the process began belongs to another one of that number.
    pub fn names(&self) -> Names {
        let path = format!("tmp/perf-{}.map", self.inner);
        let file = open_below(&self.root, &path, &self.users);
        let is_its = |file: &File| {
            file.metadata()
                .is_ok_and(|about| about.mtime() >= self.since)
        };
        file.filter(is_its)
            .map(|file| Names::read(&file))
            .unwrap_or_default()
    }
}

/// When a process began, in seconds since 1970, rounded down. The system tells both parts in coarse
/// units.
fn begin(pid: Pid) -> Option<i64> {
    const COARSE: i64 = 2;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot: i64 = boot.trim().parse().ok()?;
    let started = Stat::read(pid).ok()?.started / rustix::param::clock_ticks_per_second().max(1);
    Some(boot.saturating_add_unsigned(started).saturating_sub(COARSE))
}

/// Opens a file of these users below a folder that is taken for the root: links lead to places in
/// it, and the file itself is no link.
fn open_below(root: &impl AsFd, path: &str, users: &[u32]) -> Option<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(root, path, flags, Mode::empty(), within).ok()?;
    let file = File::from(file);
    let about = file.metadata().ok()?;
    (about.is_file() && users.contains(&about.uid())).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn named(text: &str) -> impl Fn(u64) -> Option<String> {
        let names = Names::parse(text.as_bytes().to_vec());
        move |address| names.at(address)
    }

    #[test]
    fn a_later_line_counts_more_than_those_before_it_in_any_order_of_addresses() {
        let at = named(
            "3000 100 LazyCompile:~third /app/c.js:1:1\n0x1000 0x100 first\n2000 100 second\n\
             1080 100 newer\n1040 10 newest\n",
        );
        let found = [0x1000, 0x103f, 0x1040, 0x104f, 0x1050, 0x1080, 0x117f].map(&at);
        let wanted = [
            "first", "first", "newest", "newest", "first", "newer", "newer",
        ];
        assert_eq!(found.map(Option::unwrap), wanted);
        assert_eq!(at(0x3050).unwrap(), "LazyCompile:~third /app/c.js:1:1");
        assert_eq!((at(0x1180), at(0xfff), at(0x2100)), (None, None, None));
    }

    #[test]
    fn what_is_no_line_names_nothing() {
        let at = named(
            "\n1000\n1000 10\n1000 10 \n-1000 10 a\n+1000 10 a\nzz 10 a\n1000 0 a\n\
             ffffffffffffffff 2 a\n1000 11111111111111111 a\n 1000 10 a\n2000 10 b\n1000 10 cut",
        );
        assert_eq!((at(0x1000), at(u64::MAX), at(0)), (None, None, None));
        assert_eq!(at(0x2008).unwrap(), "b");
        let long = "a".repeat(1 << 20);
        let at = named(&format!("1000 10 {long}\n2000 10 \u{1b}[31m\n"));
        assert_eq!(at(0x1000).unwrap().len(), MOST_NAME);
        assert_eq!(at(0x2000).unwrap(), "\u{1b}[31m");
        let bytes = Names::parse(b"1000 10 \xff\xfe\n".to_vec());
        assert_eq!(bytes.at(0x1000).unwrap(), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn of_a_long_file_the_end_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_at(b"\n1000 10 last\n", (1 << 40) - 14).unwrap();
        let names = Names::read(&File::open(&path).unwrap());
        assert_eq!(names.at(0x1000).as_deref(), Some("last"));
        let mut text = String::from("1 1 a\n");
        text.extend((0..MOST_LINES).map(|_| "2 1 b\n"));
        let at = named(&text);
        assert_eq!((at(1), at(2).as_deref()), (None, Some("b")));
    }

    #[test]
    fn a_process_tells_names_and_a_file_older_than_itself_is_not_its_own() {
        let pid = std::process::id() as Pid;
        let source = Source::of(pid).unwrap();
        let path = format!("/tmp/perf-{pid}.map");
        fs::write(&path, "1000 10 mine\n").unwrap();
        let found = source.names().at(0x1000);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30))
            .unwrap();
        let old = source.names().at(0x1000);
        fs::remove_file(&path).unwrap();
        assert_eq!((found.as_deref(), old), (Some("mine"), None));
    }

    #[test]
    fn only_a_regular_file_of_the_user_within_the_root_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "1 1 a\n").unwrap();
        let inside = folder.path().join("root");
        fs::create_dir_all(inside.join("private/tmp")).unwrap();
        let file = |name: &str| inside.join("private/tmp").join(name);
        fs::write(file("mine"), "1 1 a\n").unwrap();
        symlink(&outside, file("link")).unwrap();
        symlink("mine", file("near")).unwrap();
        symlink("../../outside", inside.join("up")).unwrap();
        // As the target sees it: a link to a folder of its own root.
        symlink("/private/tmp", inside.join("tmp")).unwrap();
        symlink(folder.path(), inside.join("away")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            file("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        let root = File::open(&inside).unwrap();
        let me = fs::metadata(&outside).unwrap().uid();
        assert!(open_below(&root, "tmp/mine", &[me]).is_some());
        assert!(open_below(&root, "tmp/mine", &[me + 1]).is_none());
        for path in [
            "tmp/link",
            "tmp/near",
            "tmp/pipe",
            "tmp",
            "up",
            "away/outside",
            "../outside",
            "tmp/no",
        ] {
            assert!(open_below(&root, path, &[me]).is_none(), "{path}");
        }
    }
}
