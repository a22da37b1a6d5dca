//! Reads `/proc/PID/smaps`: every mapping of a process, and how much of each is resident.
//!
//! The crate procfs is not used here, because the target chooses the names of mapped files. They
//! may be any bytes, and a name that is no UTF-8 must cost that name and not the whole account.
//! Unknown lines are skipped, because new kernels add lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use loam_format::plain::printable;

use crate::apart::{step, Doing};
use crate::pagemap::Held;
use crate::process::{Pid, ProcessError};
use crate::queries::{self, Found, Which};

/// One mapping. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Whether it may be read; guards may not.
    pub readable: bool,
    /// Whether it may be written to.
    pub writable: bool,
    /// Whether instructions may be fetched from it.
    pub executable: bool,
    /// Whether other processes see its writes (`MAP_SHARED`).
    pub shared: bool,
    /// Its offset in the file.
    pub offset: u64,
    /// The file system and the file's number in it; 0 without a file.
    pub device: String,
    /// The file's number; 0: there is no file.
    pub inode: u64,
    /// The file, `[heap]` and the like, or empty.
    pub name: String,
    /// Pages in memory.
    pub resident: u64,
    /// Resident bytes, where each page is divided by the number of processes that share it.
    pub proportional: u64,
    /// Resident bytes that are no page of a file: written to, or never a file's.
    pub anonymous: u64,
    /// Anonymous bytes that other processes have too: since a `fork()` neither has written to them.
    pub common: u64,
    /// Locked bytes (`mlock`): the kernel neither swaps them out nor waits for their first use.
    pub locked: u64,
    /// Resident bytes that were given back with `MADV_FREE` and that the kernel has not taken yet.
    pub lazily_freed: u64,
    /// Resident bytes in huge pages.
    pub huge: u64,
    /// Swapped out bytes; not resident.
    pub swapped: u64,
    /// Bytes in pages of hugetlbfs; the kernel does not count them as resident.
    pub hugetlb: u64,
}

/// The mapping in which the address lies. `mappings` are in the order of addresses, as the system
/// lists them.
pub fn at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let place = mappings.partition_point(|one| one.end <= address);
    mappings.get(place).filter(|one| one.contains(address))
}

impl Mapping {
    /// The same mapping with what its pages hold.
    pub fn holding(self, held: Held) -> Mapping {
        Mapping {
            resident: held.resident,
            anonymous: held.anonymous,
            common: held.common,
            huge: held.huge,
            swapped: held.swapped,
            ..self
        }
    }

    /// Address space, resident or not.
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The name of the mapped file, without its folder and without the mark of a deleted one.
    pub fn file_name(&self) -> Option<&str> {
        let path = self.name.strip_suffix(" (deleted)").unwrap_or(&self.name);
        path.strip_prefix('/')
            .map(|path| path.rsplit('/').next().unwrap_or(path))
    }

    fn add(&mut self, key: &[u8], value: u64) {
        let field = match key {
            b"Rss" => &mut self.resident,
            b"Pss" => &mut self.proportional,
            b"Anonymous" => &mut self.anonymous,
            b"Shared_Clean" if self.inode == 0 => &mut self.common,
            b"Shared_Dirty" => &mut self.common,
            b"Locked" => &mut self.locked,
            b"LazyFree" => &mut self.lazily_freed,
            b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped" => &mut self.huge,
            b"Swap" => &mut self.swapped,
            b"Shared_Hugetlb" | b"Private_Hugetlb" => &mut self.hugetlb,
            _ => return,
        };
        *field = field.saturating_add(value);
        // A file's pages are shared as well; only the copies of its pages count. Anonymous pages
        // are told last.
        if key == b"Anonymous" {
            self.common = if self.shared {
                0
            } else {
                self.common.min(value)
            };
        }
    }
}

/// Reads the mappings with their figures. The kernel locks the address space for one mapping at a
/// time, so a very large process may change meanwhile.
pub fn read_all(pid: Pid) -> Result<Vec<Mapping>, ProcessError> {
    read(pid, "smaps", "the memory")
}

/// Reads the mappings without figures, which is cheap.
pub fn read_names(pid: Pid) -> Result<Vec<Mapping>, ProcessError> {
    read(pid, "maps", "the address space")
}

/// Reads the mappings of files, without figures. For a heap of 60,000 mappings the kernel then need
/// not write a line for each. If the kernel has no PROCMAP_QUERY, the lines are read after all.
pub fn read_files(pid: Pid) -> Result<Vec<Mapping>, ProcessError> {
    if let Some(found) = ask_files(pid) {
        return Ok(found);
    }
    let mut found = read_names(pid)?;
    found.retain(|mapping| mapping.inode != 0);
    Ok(found)
}

/// The same by PROCMAP_QUERY alone; none if the kernel does not have it.
fn ask_files(pid: Pid) -> Option<Vec<Mapping>> {
    let maps = open(pid, "maps").ok()?;
    let mut found: Vec<Mapping> = Vec::new();
    while found.len() < MOST_MAPPINGS {
        step(Doing::Process(pid));
        let behind = found.last().map_or(0, |last| last.end);
        match queries::mapping(&maps, behind, Which::NextOfFile).ok()? {
            Some(next) => found.push(next.into()),
            None => break,
        }
    }
    Some(found)
}

/// The mapping that contains an address now; none if PROCMAP_QUERY does not say.
pub fn ask(pid: Pid, address: u64) -> Option<Mapping> {
    let maps = open(pid, "maps").ok()?;
    let found = queries::mapping(&maps, address, Which::Containing).ok()??;
    Some(found.into())
}

fn open(pid: Pid, file: &str) -> std::io::Result<File> {
    step(Doing::Process(pid));
    File::open(format!("/proc/{}/{file}", super::process::face(pid)))
}

impl From<Found> for Mapping {
    fn from(found: Found) -> Mapping {
        let may = |bit| found.permissions & bit != 0;
        let (major, minor) = found.device;
        Mapping {
            start: found.start,
            end: found.end,
            readable: may(1),
            writable: may(2),
            executable: may(4),
            shared: may(8),
            offset: found.offset,
            device: format!("{major:02x}:{minor:02x}"),
            inode: found.inode,
            name: name_of(&found.name),
            ..Mapping::default()
        }
    }
}

/// The name as `maps` writes it, in one line: a line's end in a name is written as `\012`.
fn name_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.trim_ascii());
    printable(&text.replace('\n', "\\012"))
}

fn read(pid: Pid, file: &str, what: &'static str) -> Result<Vec<Mapping>, ProcessError> {
    let failed = |error| ProcessError::of_io(pid, what, &error);
    let file = open(pid, file).map_err(failed)?;
    let steps = Stepping { pid, file };
    parse(BufReader::with_capacity(1 << 16, steps)).map_err(failed)
}

/// A file of a process. Each read of it may wait for the lock of the process's address space.
struct Stepping {
    pid: Pid,
    file: File,
}

impl Read for Stepping {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        step(Doing::Process(self.pid));
        self.file.read(buffer)
    }
}

/// The kernel writes no longer lines than this (a path has 4,096 bytes at most, escaped 16 Ki).
const LONGEST_LINE: u64 = 32 << 10;
/// The kernel allows 65,530 mappings by default; some machines allow ten times as many.
const MOST_MAPPINGS: usize = 1 << 22;

/// Parses `maps` and `smaps`.
pub fn parse(mut source: impl BufRead) -> std::io::Result<Vec<Mapping>> {
    let mut found: Vec<Mapping> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (&mut source)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?;
        if length == 0 || found.len() >= MOST_MAPPINGS {
            return Ok(found);
        }
        if let Some(mapping) = head(&line) {
            found.push(mapping);
        } else if let (Some(mapping), Some((key, value))) = (found.last_mut(), figure(&line)) {
            mapping.add(key, value);
        }
    }
}

/// `55d0-55d4 r-xp 00003000 fe:00 247741      /usr/bin/sed`
fn head(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_ascii_start();
        let end = trimmed.iter().position(|byte| byte.is_ascii_whitespace());
        let (word, tail) = trimmed.split_at(end.unwrap_or(trimmed.len()));
        rest = tail;
        std::str::from_utf8(word).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let permissions = word()?.as_bytes();
    let permission = |place: usize, letter| permissions.get(place) == Some(&letter);
    let mapping = Mapping {
        start,
        end,
        readable: permission(0, b'r'),
        writable: permission(1, b'w'),
        executable: permission(2, b'x'),
        shared: permission(3, b's'),
        offset: u64::from_str_radix(word()?, 16).ok()?,
        device: word()?.to_owned(),
        inode: word()?.parse().ok()?,
        ..Mapping::default()
    };
    let name = name_of(rest);
    (end > start).then_some(Mapping { name, ..mapping })
}

/// `Rss:                  12 kB`
fn figure(line: &[u8]) -> Option<(&[u8], u64)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (key, rest) = line.split_at(colon);
    let value = std::str::from_utf8(rest.get(1..)?).ok()?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some((key, number.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &[u8] =
        b"555bf4332000-555bf4335000 r-xp 00001000 fe:00 24   /usr/bin/a b (deleted)\n\
        Rss:                  12 kB\nPss:                   6 kB\nAnonymous:             4 kB\n\
        SomethingNew:         99 kB\nVmFlags: rd mr mw me\n\
        7f0000000000-7f0000200000 rw-p 00000000 00:00 0\n\
        Rss:                2048 kB\nAnonHugePages:      2048 kB\nLazyFree: 8 kB\nSwap: 16 kB\n";

    #[test]
    fn mappings_have_their_figures_and_names() {
        let found = parse(TWO).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].file_name(), Some("a b"));
        assert!(found[0].executable && found[0].readable && !found[0].shared);
        assert_eq!((found[0].size(), found[0].offset), (0x3000, 0x1000));
        assert_eq!(
            (found[0].resident, found[0].proportional, found[0].anonymous),
            (12288, 6144, 4096)
        );
        assert_eq!(
            (found[1].huge, found[1].lazily_freed, found[1].swapped),
            (2 << 20, 8192, 16384)
        );
        assert_eq!((found[1].name.as_str(), found[1].file_name()), ("", None));
    }

    #[test]
    fn a_name_that_is_no_text_costs_only_the_name() {
        let line = b"1000-2000 r--p 00000000 fe:00 24   /tmp/\xff\xfe\x1b\nRss: 4 kB\n";
        let found = parse(&line[..]).unwrap();
        assert_eq!((found.len(), found[0].resident), (1, 4096));
        assert!(found[0].name.starts_with("/tmp/") && !found[0].name.contains('\u{1b}'));
    }

    #[test]
    fn this_process_has_a_stack_and_its_own_file() {
        let found = read_all(std::process::id() as Pid).unwrap();
        assert!(found.iter().any(|mapping| mapping.name == "[stack]"));
        let here = this_process_has_a_stack_and_its_own_file as *const () as u64;
        let code = found.iter().find(|mapping| mapping.contains(here)).unwrap();
        assert!(code.executable && code.file_name().is_some());
    }

    #[test]
    fn queries_and_lines_tell_the_same_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a b\nc\\d");
        std::fs::copy("/bin/sleep", &odd).unwrap();
        let mut program = std::process::Command::new(&odd).arg("60").spawn().unwrap();
        let pid = program.id() as Pid;
        // Until the process has become that program and loaded its libraries.
        while !read_names(pid)
            .unwrap_or_default()
            .iter()
            .any(|one| one.name.ends_with("d") && one.executable)
        {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        // On a busy machine it may load them still.
        let (mut lines, asked) = loop {
            let before = read_names(pid).unwrap();
            let asked = ask_files(pid);
            if read_names(pid).unwrap() == before {
                break (before, asked);
            }
        };
        let stack = lines.iter().find(|one| one.name == "[stack]").cloned();
        let stack = stack.unwrap();
        let at_stack = ask(pid, stack.start + 5);
        let nowhere = ask(pid, stack.end + (1 << 20));
        program.kill().unwrap();
        program.wait().unwrap();
        let Some(asked) = asked else {
            eprintln!("skipped: this kernel has no PROCMAP_QUERY");
            return;
        };
        lines.retain(|one| one.inode != 0);
        assert_eq!(asked, lines);
        assert!(
            lines.len() >= 5 && lines[0].name.contains("a b\\012c"),
            "{lines:?}"
        );
        assert_eq!((at_stack, nowhere), (Some(stack), None));
        assert!(ask_files(pid).is_none(), "the process has ended");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&bytes[..]);
        }

        #[test]
        fn a_torn_file_is_survived(
            end in 0..TWO.len(),
            place in 0..TWO.len(),
            byte in any::<u8>(),
        ) {
            let mut torn = TWO.to_vec();
            torn[place] = byte;
            let found = parse(&torn[..end]).unwrap();
            prop_assert!(found.iter().all(|mapping| mapping.end > mapping.start));
        }
    }
}
