//! What an executable file says about itself, as far as a preloaded `malloc` needs it.
//!
//! Only the file is read, before anything is started. Limits: an executable without section headers
//! shows no symbols. An allocator that is loaded later with `dlopen`, or that was inlined, is not
//! seen.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadRef};
use thiserror::Error;

use crate::apart::step_to_file;
use crate::untrusted::{self, Pieces};

/// Why a file could not be inspected.
#[derive(Debug, Error)]
pub enum ImageError {
    /// No ELF file: a script, or a file that this system can not execute.
    #[error("it is not an ELF file")]
    NotElf,
    /// ELF by its first bytes, but broken after them.
    #[error("its ELF headers can not be read: {0}")]
    Broken(#[from] object::read::Error),
    /// The file could not be opened or read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

/// Where an executable defines its own `malloc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnMalloc {
    /// It defines none.
    None,
    /// Only inside: its own calls use it, those of its libraries do not.
    Hidden,
    /// Exported: the executable is searched before any preload, so the whole process uses it.
    Exported,
}

/// What one ELF file says about itself.
#[derive(Debug, Clone)]
pub struct Image {
    /// `e_machine`.
    pub machine: elf::Machine,
    /// Whether the file is a 64-bit one.
    pub is_64: bool,
    /// The loader that it names (`PT_INTERP`); none in a static executable.
    pub interpreter: Option<String>,
    /// The libraries that it is linked with (`DT_NEEDED`).
    pub needed: Vec<String>,
    /// Its own name as a library (`DT_SONAME`).
    pub soname: Option<String>,
    /// Whether and where it defines `malloc`.
    pub own_malloc: OwnMalloc,
    /// An allocator whose prefixed functions (`je_malloc`, `mi_malloc`...) are compiled in.
    pub compiled_in: Option<&'static str>,
    /// An allocator that tells its own figures, by functions that `native/peer` asks.
    pub tells_figures: bool,
    /// Built by the Go compiler, whose objects do not come from `malloc`.
    pub is_go: bool,
}

/// A defined symbol that shows a compiled-in allocator.
const TELLTALES: [(&str, &str); 12] = [
    ("je_malloc", "jemalloc"),
    ("je_mallctl", "jemalloc"),
    ("_rjem_malloc", "jemalloc"),
    ("_rjem_mallctl", "jemalloc"),
    ("mallctl", "jemalloc"),
    ("mi_malloc", "mimalloc"),
    ("mi_heap_malloc", "mimalloc"),
    ("tc_malloc", "tcmalloc"),
    ("tc_new", "tcmalloc"),
    ("TCMallocInternalMalloc", "tcmalloc"),
    ("rpmalloc", "rpmalloc"),
    ("sn_malloc", "snmalloc"),
];

/// The section that the Go compiler's programs have.
const GO: &[u8] = b".go.buildinfo";

/// Functions by which an allocator tells its figures.
const TELLING: [&str; 4] = [
    "mallctl",
    "mi_process_info",
    "MallocExtension_GetNumericProperty",
    "MallocExtension_Internal_GetNumericProperty",
];

impl Image {
    /// Reads the file's headers and symbols.
    pub fn read(path: &Path) -> Result<Image, ImageError> {
        step_to_file(path);
        Image::of_file(untrusted::open(path)?)
    }

    /// Whether a file was built by the Go compiler. Reads its headers only.
    pub fn is_of_go(path: &Path) -> bool {
        let Ok(file) = untrusted::open(path) else {
            return false;
        };
        let cache = Pieces::of(file);
        let data = &cache;
        let Ok(header) = elf::FileHeader64::<Endianness>::parse(data) else {
            return false;
        };
        let sections = header.endian().and_then(|endian| {
            let sections = header.sections(endian, data)?;
            Ok(has_section::<elf::FileHeader64<Endianness>, _>(
                endian, &sections, GO,
            ))
        });
        sections.unwrap_or(false)
    }

    /// Reads an open file.
    pub fn of_file(mut file: File) -> Result<Image, ImageError> {
        file.seek(SeekFrom::Start(0))?;
        let mut ident = [0; 5];
        file.read_exact(&mut ident)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => ImageError::NotElf,
                _ => ImageError::Unreadable(error),
            })?;
        if ident[..4] != elf::ELFMAG {
            return Err(ImageError::NotElf);
        }
        file.seek(SeekFrom::Start(0))?;
        let cache = Pieces::of(file);
        match elf::FileClass(ident[4]) {
            elf::ELFCLASS32 => inspect::<elf::FileHeader32<Endianness>, _>(&cache, false),
            _ => inspect::<elf::FileHeader64<Endianness>, _>(&cache, true),
        }
    }

    /// `x86-64, 64-bit`, for messages.
    pub fn architecture(&self) -> String {
        let machine = match self.machine {
            elf::EM_X86_64 => "x86-64".to_owned(),
            elf::EM_386 => "i386".to_owned(),
            elf::EM_AARCH64 => "aarch64".to_owned(),
            elf::EM_ARM => "arm".to_owned(),
            elf::EM_RISCV => "riscv".to_owned(),
            elf::EM_PPC64 => "ppc64".to_owned(),
            elf::EM_S390 => "s390".to_owned(),
            elf::EM_LOONGARCH => "loongarch".to_owned(),
            elf::Machine(number) => format!("ELF machine {number}"),
        };
        format!("{machine}, {}-bit", if self.is_64 { 64 } else { 32 })
    }

    /// Whether the file is a dynamic loader, started as a command. It has no loader itself, and
    /// honours preloads.
    pub fn is_loader(&self) -> bool {
        self.soname
            .as_deref()
            .is_some_and(|name| name.starts_with("ld-") || name == "ld.so.1")
    }

    /// The first library that contains an allocator, by its file name.
    pub fn allocator_library(&self) -> Option<&str> {
        const STEMS: [&str; 7] = [
            "libjemalloc",
            "libmimalloc",
            "libtcmalloc",
            "libtbbmalloc",
            "libsnmalloc",
            "librpmalloc",
            "libhoard",
        ];
        let brings_one = |name: &&String| STEMS.iter().any(|stem| name.starts_with(stem));
        self.needed.iter().find(brings_one).map(String::as_str)
    }
}

fn inspect<'data, H, R>(data: R, is_64: bool) -> Result<Image, ImageError>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let mut interpreter = None;
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            interpreter = Some(text(path));
        }
    }
    let sections = header.sections(endian, data)?;
    let (needed, soname) = libraries::<H, R>(endian, data, &sections)?;
    let mut image = Image {
        machine: header.e_machine(endian),
        is_64,
        interpreter,
        needed,
        soname,
        own_malloc: OwnMalloc::None,
        compiled_in: None,
        tells_figures: false,
        is_go: has_section::<H, R>(endian, &sections, GO),
    };
    // The static table comes first. An exported malloc is in both tables, and the export decides.
    for (table, place) in [
        (elf::SHT_SYMTAB, OwnMalloc::Hidden),
        (elf::SHT_DYNSYM, OwnMalloc::Exported),
    ] {
        let symbols = sections.symbols(endian, data, table)?;
        for symbol in symbols.iter() {
            let is_defined = symbol.st_shndx(endian) != elf::SHN_UNDEF;
            let Ok(name) = symbol.name(endian, symbols.strings()) else {
                continue;
            };
            note_symbol(
                &mut image,
                name,
                is_defined,
                symbol.st_type() == elf::STT_FUNC,
                place,
            );
        }
    }
    Ok(image)
}

fn note_symbol(
    image: &mut Image,
    name: &[u8],
    is_defined: bool,
    is_function: bool,
    place: OwnMalloc,
) {
    if !is_defined {
        return;
    }
    image.tells_figures |= is_function && TELLING.iter().any(|symbol| symbol.as_bytes() == name);
    if name == b"malloc" && is_function {
        image.own_malloc = place;
    } else if is_function && image.compiled_in.is_none() {
        let telltale = TELLTALES
            .iter()
            .find(|(symbol, _)| symbol.as_bytes() == name);
        image.compiled_in = telltale.map(|(_, allocator)| *allocator);
    }
}

/// `DT_NEEDED` and `DT_SONAME`.
fn libraries<'data, H, R>(
    endian: Endianness,
    data: R,
    sections: &SectionTable<'data, H, R>,
) -> Result<(Vec<String>, Option<String>), ImageError>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut needed = Vec::new();
    let mut soname = None;
    if let Some((entries, link)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        for entry in entries {
            match entry.tag(endian) {
                elf::DT_NEEDED => needed.push(text(entry.string(endian, strings)?)),
                elf::DT_SONAME => soname = Some(text(entry.string(endian, strings)?)),
                _ => {}
            }
        }
    }
    Ok((needed, soname))
}

fn has_section<'data, H, R>(
    endian: Endianness,
    sections: &SectionTable<'data, H, R>,
    name: &[u8],
) -> bool
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    sections.iter().any(|section| {
        section.sh_type(endian) != elf::SHT_NULL
            && sections
                .section_name(endian, section)
                .is_ok_and(|found| found == name)
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_is_dynamic_and_has_no_allocator_of_its_own() {
        let image = Image::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(image.interpreter.is_some());
        assert_eq!(image.own_malloc, OwnMalloc::None);
        assert_eq!(image.compiled_in, None);
        assert!(image.needed.iter().any(|name| name.starts_with("libc.")));
        assert!(!image.is_go && !image.is_loader());
    }

    #[test]
    fn the_loader_is_known_as_the_loader() {
        let program = Image::read(&std::env::current_exe().unwrap()).unwrap();
        let loader = Image::read(Path::new(&program.interpreter.unwrap())).unwrap();
        assert_eq!(loader.interpreter, None);
        assert!(loader.is_loader());
    }

    #[test]
    fn what_is_no_elf_file_is_told_apart_from_what_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(matches!(Image::read(&path), Err(ImageError::NotElf)));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(Image::read(&path), Err(ImageError::NotElf)));
        std::fs::write(&path, b"\x7fELF\x02\x01\x01").unwrap();
        assert!(matches!(Image::read(&path), Err(ImageError::Broken(_))));
    }
}
