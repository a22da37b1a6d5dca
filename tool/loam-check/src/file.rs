//! The contents of an ELF file that concern the dynamic linker and the family.
//!
//! The contents are read from section headers; a file without them can not be inspected
//! (`is_blind`). Calls that the static linker bound inside the file (`-Bsymbolic`, protected or
//! hidden symbols) leave no trace here. The only sign of such calls is that the file exports a
//! function of the family and refers to none.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use object::elf;
use object::read::elf::{
    Dyn, FileHeader, ProgramHeader, Rel, Rela, SectionHeader, SectionTable, Sym,
};
use object::{Endianness, ReadCache, ReadRef, SectionIndex};

use loam_format::counters::list::LIST;
use loam_process::apart::step_to_file;
use loam_process::elf::{Image, ImageError};

use crate::family::{self, Function};

/// A function that a file exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// Which.
    pub function: Function,
    /// Its address, as linked.
    pub address: u64,
    /// Whether the file's own references insist on this definition (`STV_PROTECTED`).
    pub is_protected: bool,
}

/// A word that the dynamic linker fills with the address of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Which.
    pub function: Function,
    /// The address of the word, as linked.
    pub slot: u64,
}

/// One file.
#[derive(Debug, Clone)]
pub struct ObjectFile {
    /// Headers, libraries, and allocators in the file.
    pub image: Image,
    /// Folders in which it looks for libraries: `DT_RPATH`.
    pub rpath: Vec<String>,
    /// Folders in which it looks for libraries: `DT_RUNPATH`, which makes the linker ignore
    /// `DT_RPATH`.
    pub runpath: Vec<String>,
    /// Whether it searches itself before the program (`-Bsymbolic`).
    pub is_symbolic: bool,
    /// The functions of the family that it exports.
    pub exports: Vec<Export>,
    /// The functions of the family that it imports.
    pub references: Vec<Reference>,
    /// The functions that it imports from the own interfaces of other allocators, each with the
    /// allocator.
    pub foreign: Vec<(String, &'static str)>,
    /// The functions that it exports of the own interfaces of other allocators.
    pub offers: Vec<String>,
    /// Whether it is the heap, or contains it.
    pub is_loam: bool,
    /// A sanitizer with its run-time library inside the file or needed by it.
    pub sanitizer: Option<&'static str>,
    /// Whether it may load libraries into a namespace of their own.
    pub calls_dlmopen: bool,
    /// Whether it lacks section headers. Then the fields above mean nothing.
    pub is_blind: bool,
    /// The link-time address of the first byte.
    pub base: u64,
}

/// Symbols and libraries that identify a sanitizer with a `malloc` of its own.
const SANITIZERS: [(&str, &str, &str); 5] = [
    ("__asan_init", "libasan.", "AddressSanitizer"),
    ("__hwasan_init", "libhwasan.", "HWAddressSanitizer"),
    ("__msan_init", "libmsan.", "MemorySanitizer"),
    ("__tsan_init", "libtsan.", "ThreadSanitizer"),
    ("__lsan_init", "liblsan.", "LeakSanitizer"),
];

impl ObjectFile {
    /// Reads a file by its path.
    pub fn read(path: &Path) -> Result<ObjectFile, ImageError> {
        step_to_file(path);
        ObjectFile::of_file(File::open(path)?)
    }

    /// Reads an open file.
    pub fn of_file(mut file: File) -> Result<ObjectFile, ImageError> {
        let image = Image::of_file(file.try_clone()?)?;
        let mut ident = [0; 5];
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut ident)?;
        let cache = ReadCache::new(file);
        match elf::FileClass(ident[4]) {
            elf::ELFCLASS32 => inspect::<elf::FileHeader32<Endianness>, _>(&cache, image),
            _ => inspect::<elf::FileHeader64<Endianness>, _>(&cache, image),
        }
    }

    /// The function's definition in the file, if it exports it.
    pub fn export(&self, function: Function) -> Option<&Export> {
        self.exports
            .iter()
            .find(|export| export.function == function)
    }

    /// Whether it is the C library itself.
    pub fn is_c_library(&self) -> bool {
        let soname = self.image.soname.as_deref().unwrap_or_default();
        soname.starts_with("libc.so") || soname.starts_with("libc.musl")
    }

    /// Whether it is made for musl; none if it does not name a C library.
    pub fn is_for_musl(&self) -> Option<bool> {
        let loader = self.image.interpreter.as_deref().unwrap_or_default();
        let needed = self.image.needed.iter().map(String::as_str);
        // The program's loader decides.
        let mut names = loader.rsplit('/').next().into_iter().chain(needed);
        names.find_map(|name| {
            let is_musl =
                name.starts_with("ld-musl") || name.starts_with("libc.musl") || name == "libc.so";
            let is_gnu = name.starts_with("libc.so.6") || name.starts_with("ld-linux");
            (is_musl || is_gnu).then_some(is_musl)
        })
    }

    /// Whether one process can load both files.
    pub fn suits(&self, other: &ObjectFile) -> bool {
        self.image.machine == other.image.machine && self.image.is_64 == other.image.is_64
    }
}

fn inspect<'data, H, R>(data: R, image: Image) -> Result<ObjectFile, ImageError>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let segments = header.program_headers(endian, data)?;
    let loaded = |segment: &&H::ProgramHeader| segment.p_type(endian) == elf::PT_LOAD;
    let base = segments.iter().find(loaded).map_or(0, |first| {
        first
            .p_vaddr(endian)
            .into()
            .wrapping_sub(first.p_offset(endian).into())
    });
    let mut file = ObjectFile {
        rpath: Vec::new(),
        runpath: Vec::new(),
        is_symbolic: false,
        exports: Vec::new(),
        references: Vec::new(),
        foreign: Vec::new(),
        offers: Vec::new(),
        is_loam: false,
        sanitizer: sanitizer_of(&image),
        calls_dlmopen: false,
        is_blind: sections.is_empty(),
        base,
        image,
    };
    let read = Reading::<H, R> {
        data,
        endian,
        sections,
    };
    read.dynamic(&mut file)?;
    read.hidden(&mut file)?;
    let functions = read.symbols(&mut file)?;
    read.relocations(&mut file, &functions)?;
    Ok(file)
}

/// The sanitizer that the file is, or that it needs by the name of its library.
fn sanitizer_of(image: &Image) -> Option<&'static str> {
    let needs = |stem: &str| image.needed.iter().any(|name| name.starts_with(stem));
    let is_it = |stem: &str| {
        let soname = image.soname.as_deref();
        soname.is_some_and(|name| name.starts_with(stem))
    };
    let found = SANITIZERS
        .iter()
        .find(|(_, stem, _)| needs(stem) || is_it(stem));
    found.map(|(_, _, name)| *name)
}

/// A file of one class and byte order, with its sections.
struct Reading<'data, H: FileHeader, R: ReadRef<'data>> {
    data: R,
    endian: Endianness,
    sections: SectionTable<'data, H, R>,
}

impl<'data, H, R> Reading<'data, H, R>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    /// Reads the dynamic section: where libraries are searched, and which module is searched first.
    fn dynamic(&self, file: &mut ObjectFile) -> Result<(), ImageError> {
        let (endian, data) = (self.endian, self.data);
        let Some((entries, link)) = self.sections.dynamic(endian, data)? else {
            return Ok(());
        };
        let strings = self.sections.strings(endian, data, link)?;
        for entry in entries {
            let folders = || -> Result<Vec<String>, object::read::Error> {
                let text = String::from_utf8_lossy(entry.string(endian, strings)?).into_owned();
                Ok(text.split(':').map(str::to_owned).collect())
            };
            match entry.tag(endian) {
                elf::DT_RPATH => file.rpath = folders()?,
                elf::DT_RUNPATH => file.runpath = folders()?,
                elf::DT_SYMBOLIC => file.is_symbolic = true,
                elf::DT_FLAGS if entry.val(endian) & u64::from(SYMBOLIC_FLAG) != 0 => {
                    file.is_symbolic = true;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the static symbol table, if it was not stripped: it shows what is inside without being
    /// exported.
    fn hidden(&self, file: &mut ObjectFile) -> Result<(), ImageError> {
        let (endian, data) = (self.endian, self.data);
        let hidden = self.sections.symbols(endian, data, elf::SHT_SYMTAB)?;
        for symbol in hidden.iter().filter(|symbol| !symbol.is_undefined(endian)) {
            if let Ok(name) = symbol.name(endian, hidden.strings()) {
                note_inside(file, name);
            }
        }
        Ok(())
    }

    /// Reads the dynamic symbol table: exports and imports. Returns each symbol's function of the
    /// family.
    fn symbols(&self, file: &mut ObjectFile) -> Result<Vec<Option<Function>>, ImageError> {
        let endian = self.endian;
        let symbols = self.sections.symbols(endian, self.data, elf::SHT_DYNSYM)?;
        let mut functions = Vec::new();
        for symbol in symbols.iter() {
            let name = symbol.name(endian, symbols.strings()).unwrap_or_default();
            let function = Function::named(name);
            functions.push(function);
            if symbol.is_undefined(endian) {
                file.calls_dlmopen |= name == b"dlmopen";
                if let Some(allocator) = family::own_interface(name) {
                    let name = String::from_utf8_lossy(name).into_owned();
                    file.foreign.push((name, allocator));
                }
                continue;
            }
            note_inside(file, name);
            if family::own_interface(name).is_some() {
                file.offers.push(String::from_utf8_lossy(name).into_owned());
            }
            let is_global = symbol.st_bind() != elf::STB_LOCAL;
            if let Some(function) = function.filter(|_| is_global) {
                file.exports.push(Export {
                    function,
                    address: symbol.st_value(endian).into(),
                    is_protected: symbol.st_visibility() == elf::STV_PROTECTED,
                });
            }
        }
        Ok(functions)
    }

    /// Reads the words that the dynamic linker fills with functions of the family.
    fn relocations(
        &self,
        file: &mut ObjectFile,
        functions: &[Option<Function>],
    ) -> Result<(), ImageError> {
        let (endian, data) = (self.endian, self.data);
        for section in self.sections.iter() {
            let mut note = |symbol: u32, slot: u64| {
                let function = functions.get(symbol as usize).copied().flatten();
                if let Some(function) = function {
                    file.references.push(Reference { function, slot });
                }
            };
            // In a linked file, relocations belong to the dynamic linker. If --emit-relocs kept the
            // static linker's too, those refer to the static symbol table.
            let link = SectionIndex(section.sh_link(endian) as usize);
            let table = self.sections.section(link);
            if !table.is_ok_and(|table| table.sh_type(endian) == elf::SHT_DYNSYM) {
                continue;
            }
            if let Some((entries, _)) = section.rela(endian, data)? {
                entries
                    .iter()
                    .for_each(|r| note(r.r_sym(endian, false), r.r_offset(endian).into()));
            }
            if let Some((entries, _)) = section.rel(endian, data)? {
                entries
                    .iter()
                    .for_each(|r| note(r.r_sym(endian), r.r_offset(endian).into()));
            }
        }
        Ok(())
    }
}

/// `DF_SYMBOLIC`
const SYMBOLIC_FLAG: u32 = 2;

fn note_inside(file: &mut ObjectFile, name: &[u8]) {
    if name == LIST.symbol.as_bytes() {
        file.is_loam = true;
    }
    let found = SANITIZERS
        .iter()
        .find(|(symbol, ..)| symbol.as_bytes() == name);
    if let Some((_, _, sanitizer)) = found {
        file.sanitizer = Some(sanitizer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_asks_for_malloc_and_offers_none() {
        let file = ObjectFile::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(file
            .references
            .iter()
            .any(|r| r.function == Function::MALLOC));
        assert!(file.exports.is_empty() && !file.is_loam && !file.is_blind);
        assert_eq!(file.is_for_musl(), Some(cfg!(target_env = "musl")));
        assert!(file.suits(&file.clone()));
    }
}
