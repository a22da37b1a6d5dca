//! Files of code as unwinding and naming need them: the places of their parts in memory, their
//! tables for unwinding, and their identity.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use loam_format::trace::Module;
use object::{Object, ObjectSection, ObjectSegment};

use crate::jit;
use crate::mappings::Mapping;
use crate::process::{face, Pid};
use crate::python;
use crate::untrusted::{self, checksum, Pieces};

/// A section: its address in the file's numbering, and its bytes.
pub type Section = (Range<u64>, Arc<[u8]>);

/// Whether a file is that of a recorded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// It is.
    Yes,
    /// Another file has its path now.
    No,
    /// The recording does not say which file that was.
    Unsaid,
}

impl Same {
    /// Compares the file at the module's path. `None` if it can not be read or is no program. Bytes
    /// are read only if the recording has their checksum.
    pub fn of(module: &Module) -> Option<Same> {
        if !has_file(&module.path) {
            return None;
        }
        let path = Path::new(&module.path);
        let cache = match untrusted::open(path) {
            Ok(file) => Pieces::of(file),
            // A pipe, or a file that no program has.
            Err(_) if path.exists() => return Some(Same::No),
            Err(_) => return None,
        };
        let file = object::File::parse(&cache).ok()?;
        let is_same = match (&module.build_id, &module.checksum) {
            (Some(_), _) => build_id_in(&file) == module.build_id,
            (None, Some(_)) => checksum(&untrusted::open(path).ok()?).ok() == module.checksum,
            (None, None) => return Some(Same::Unsaid),
        };
        Some(if is_same { Same::Yes } else { Same::No })
    }
}

/// Whether a module of a trace may be a file. Code that a runtime made, and Python's functions, lie
/// in none.
pub fn has_file(path: &str) -> bool {
    path != jit::PATH && path != python::PATH
}

fn build_id_in<'a>(file: &impl Object<'a>) -> Option<String> {
    file.build_id().ok().flatten().map(hex)
}

/// The linker's build id of a file, in hexadecimal, if it has one.
pub fn build_id(path: &Path) -> Option<String> {
    let cache = Pieces::of(untrusted::open(path).ok()?);
    build_id_in(&object::File::parse(&cache).ok()?)
}

/// Checksums of files that have no build id. Another thread computes them, each once: a file of a
/// GiB takes a second.
#[derive(Debug, Default)]
pub struct Checksums {
    /// By device, number, and the time of the last change.
    known: HashMap<(u64, u64, i64, i64), Checksum>,
    work: Option<Sender<Checksum>>,
}

impl Checksums {
    /// That of a file that a process has mapped; `None` if the file can not be opened.
    pub fn of(&mut self, pid: Pid, name: &str) -> Option<Checksum> {
        if !has_file(name) {
            return None;
        }
        let file = as_seen_by(pid, name)
            .iter()
            .find_map(|path| untrusted::open(path).ok())?;
        let about = file.metadata().ok()?;
        let key = (about.dev(), about.ino(), about.mtime(), about.mtime_nsec());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let found = OnceLock::new();
        let checksum = Checksum(Arc::new(Pending { file, found }));
        self.known.insert(key, checksum.clone());
        let work = self.work.get_or_insert_with(|| {
            let (work, taken) = mpsc::channel::<Checksum>();
            thread::spawn(move || taken.iter().for_each(|checksum| drop(checksum.wait())));
            work
        });
        // Without that thread, the first one that waits computes.
        let _ = work.send(checksum.clone());
        Some(checksum)
    }
}

/// A checksum that may still be computed.
#[derive(Debug, Clone)]
pub struct Checksum(Arc<Pending>);

#[derive(Debug)]
struct Pending {
    file: File,
    found: OnceLock<Option<String>>,
}

impl Checksum {
    /// The checksum, if it is known by now.
    pub fn now(&self) -> Option<String> {
        self.0.found.get().cloned().flatten()
    }

    /// Whether `wait` does not wait.
    pub fn is_known(&self) -> bool {
        self.0.found.get().is_some()
    }

    /// The checksum, as soon as it is computed; `None` if the file can not be read.
    pub fn wait(&self) -> Option<String> {
        let compute = || checksum(&self.0.file).ok();
        self.0.found.get_or_init(compute).clone()
    }
}

/// Where a file is for us that a process has mapped: first as the process sees it, because the
/// process may be in a container of its own.
fn as_seen_by(pid: Pid, name: &str) -> [PathBuf; 2] {
    let mut inside = PathBuf::from(format!("/proc/{}/root", face(pid)));
    inside.push(name.trim_start_matches('/'));
    [inside, PathBuf::from(name)]
}

/// What the system puts behind the name of a file that was deleted, or that another file has
/// replaced.
const DELETED: &str = " (deleted)";

/// Where a mapped file is for us. One that was deleted can still be read through its mapping, with
/// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
pub fn as_mapped(pid: Pid, name: &str, start: u64, end: u64) -> Vec<PathBuf> {
    match name.ends_with(DELETED) {
        true => vec![format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()],
        false => as_seen_by(pid, name).to_vec(),
    }
}

/// A file of code.
#[derive(Debug, Default)]
pub struct Code {
    /// The linker's identity of it, in hexadecimal.
    pub build_id: Option<String>,
    /// Parts that are loaded as code: offset in the file, bytes, and address in the file's
    /// numbering.
    parts: Vec<(u64, u64, u64)>,
    /// `.eh_frame`.
    pub frames: Option<Section>,
    /// `.eh_frame_hdr`.
    pub index: Option<Section>,
    /// The addresses of `.got`.
    pub offsets: Option<Range<u64>>,
    /// The addresses of `.text`.
    pub text: Option<Range<u64>>,
}

impl Code {
    /// Reads a file; `None` if it can not be read or is no program.
    pub fn read(path: &Path) -> Option<Code> {
        let cache = Pieces::of(untrusted::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let section = |name: &str| -> Option<Section> {
            let bytes = file.section_by_name(name)?.uncompressed_data().ok()?;
            Some((range(name)?, bytes.into()))
        };
        // Another part may share its last page with the first page of the code.
        let parts = file
            .segments()
            .filter(|segment| segment.permissions().executable())
            .map(|segment| {
                let (offset, bytes) = segment.file_range();
                (offset, bytes, segment.address())
            });
        Some(Code {
            build_id: build_id_in(&file),
            parts: parts.collect(),
            frames: section(".eh_frame"),
            index: section(".eh_frame_hdr"),
            offsets: range(".got"),
            text: range(".text"),
        })
    }

    /// The address, in the file's numbering, of an offset in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        // Mappings begin at a page, parts anywhere.
        const PAGE: u64 = 64 << 10;
        self.parts.iter().find_map(|&(begin, bytes, address)| {
            let from = begin - begin % PAGE;
            let is_within = (from..begin.saturating_add(bytes)).contains(&offset);
            is_within.then(|| address.wrapping_add(offset).wrapping_sub(begin))
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files that were read, each once.
#[derive(Debug, Default)]
pub struct Codes {
    read: HashMap<(String, u64, String), Option<Arc<Code>>>,
}

impl Codes {
    /// The file that a process has mapped there.
    pub fn of(&mut self, pid: Pid, mapping: &Mapping) -> Option<Arc<Code>> {
        let key = (mapping.device.clone(), mapping.inode, mapping.name.clone());
        let read = self.read.entry(key).or_insert_with(|| {
            let read = as_mapped(pid, &mapping.name, mapping.start, mapping.end);
            read.iter().find_map(|path| Code::read(path)).map(Arc::new)
        });
        read.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_found_in_its_part_and_in_the_page_before_it() {
        let code = Code {
            parts: vec![(0x10_1100, 0x900, 0x4100)],
            ..Code::default()
        };
        assert_eq!(code.address_of(0x10_1000), Some(0x4000));
        assert_eq!(code.address_of(0x10_1200), Some(0x4200));
        assert_eq!(code.address_of(0x10_9000), None);
        assert_eq!(code.address_of(0x1000), None);
    }

    #[test]
    fn a_checksum_is_computed_once_for_a_file_of_several_names() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c"].map(|name| folder.path().join(name));
        std::fs::write(&names[0], "123456789").unwrap();
        std::fs::hard_link(&names[0], &names[1]).unwrap();
        std::fs::write(&names[2], "12345678").unwrap();
        let mut checksums = Checksums::default();
        let pid = std::process::id() as Pid;
        let of = |checksums: &mut Checksums, path: &Path| {
            checksums.of(pid, path.to_str().unwrap()).unwrap()
        };
        let found: Vec<Checksum> = names.iter().map(|name| of(&mut checksums, name)).collect();
        // The CRC-32 of these digits is the one that its definition gives as an example.
        assert_eq!(found[0].wait().as_deref(), Some("cbf43926-9"));
        assert!(found[0].is_known() && Arc::ptr_eq(&found[0].0, &found[1].0));
        assert!(found[2].wait().unwrap().ends_with("-8"));
        // Nothing is waited for: the other thread computes it too.
        assert!(checksums.of(pid, "/no/such/file").is_none());
        std::fs::write(&names[2], "1234567").unwrap();
        let changed = of(&mut checksums, &names[2]);
        while !changed.is_known() {
            thread::yield_now();
        }
        assert!(changed.wait().unwrap().ends_with("-7"));
    }

    #[test]
    fn this_program_has_tables_and_parts() {
        let code = Code::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(code.frames.is_some() && code.text.is_some());
        assert!(Code::read(Path::new("/proc/self/maps")).is_none());
    }
}
