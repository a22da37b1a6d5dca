//! Files of code as unwinding and naming need them: the places of their parts in memory, their tables for
//! unwinding, and their identity.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loam_format::trace::Module;
use object::{Object, ObjectSection, ObjectSegment, ReadCache};

use crate::mappings::Mapping;
use crate::process::Pid;

/// A section: its address in the file's numbering, and its bytes.
pub type Section = (Range<u64>, Arc<[u8]>);

/// What tells a file of code from another one at its path. A file has one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The linker's identity of it, in hexadecimal.
    pub build_id: Option<String>,
    /// Without that, the CRC-32 of its bytes and their number.
    pub checksum: Option<String>,
}

impl Identity {
    /// Of a file; `None` if it can not be read or is no program.
    pub fn of(path: &Path) -> Option<Identity> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        Some(Identity::with(&file, path))
    }

    fn with<'a>(file: &impl Object<'a>, path: &Path) -> Identity {
        let build_id = build_id_in(file);
        let checksum = match build_id {
            Some(_) => None,
            None => checksum(path).ok(),
        };
        Identity { build_id, checksum }
    }
}

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
    /// Compares the file at the module's path. `None` if it can not be read or is no program. Bytes are read only if the
    /// recording has their checksum.
    pub fn of(module: &Module) -> Option<Same> {
        let path = Path::new(&module.path);
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let is_same = match (&module.build_id, &module.checksum) {
            (Some(_), _) => build_id_in(&file) == module.build_id,
            (None, Some(_)) => Identity::with(&file, path).checksum == module.checksum,
            (None, None) => return Some(Same::Unsaid),
        };
        Some(if is_same { Same::Yes } else { Same::No })
    }
}

fn build_id_in<'a>(file: &impl Object<'a>) -> Option<String> {
    file.build_id().ok().flatten().map(hex)
}

/// The linker's build id of a file, in hexadecimal, if it has one.
pub fn build_id(path: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    build_id_in(&object::File::parse(&cache).ok()?)
}

fn checksum(path: &Path) -> io::Result<String> {
    let (mut file, mut crc) = (File::open(path)?, crc32fast::Hasher::new());
    let (mut piece, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{:08x}-{bytes}", crc.finalize())),
            size => {
                crc.update(&piece[..size]);
                bytes += size as u64;
            }
        }
    }
}

/// A file of code.
#[derive(Debug, Default)]
pub struct Code {
    /// Which file it is.
    pub identity: Identity,
    /// Parts that are loaded as code: offset in the file, bytes, and address in the file's numbering.
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
        let cache = ReadCache::new(File::open(path).ok()?);
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
            identity: Identity::with(&file, path),
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
            // The file as the process sees it, because the process may be in a container of its own.
            let mut inside = PathBuf::from(format!("/proc/{pid}/root"));
            inside.push(mapping.name.trim_start_matches('/'));
            let read = Code::read(&inside).or_else(|| Code::read(Path::new(&mapping.name)));
            read.map(Arc::new)
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
    fn this_program_has_tables_and_parts() {
        let code = Code::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(code.frames.is_some() && code.text.is_some());
        assert!(Code::read(Path::new("/proc/self/maps")).is_none());
    }
}
