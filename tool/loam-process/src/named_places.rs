//! Functions and variables of a mapped file by their names, with their addresses in memory.

use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol};

use crate::mappings::Mapping;
use crate::process::{face, Pid};
use crate::untrusted::{self, Pieces};

/// Bytes of a page.
const PAGE: u64 = 4_096;

/// A place: its address, its length, and its name.
pub type Place = (u64, u64, String);

/// The named places of a file, by their addresses.
#[derive(Debug)]
pub struct NamedPlaces(Vec<Place>);

impl NamedPlaces {
    /// All of the file that a process has mapped there as code.
    pub fn read(pid: Pid, mapping: &Mapping) -> Option<NamedPlaces> {
        NamedPlaces::of(pid, mapping, true)
    }

    /// Those that the file exports.
    pub fn exported(pid: Pid, mapping: &Mapping) -> Option<NamedPlaces> {
        NamedPlaces::of(pid, mapping, false)
    }

    fn of(pid: Pid, mapping: &Mapping, wants_all: bool) -> Option<NamedPlaces> {
        let path = mapping
            .name
            .strip_suffix(" (deleted)")
            .unwrap_or(&mapping.name);
        let (start, end) = (mapping.start, mapping.end);
        let pid = face(pid);
        let exact = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
        let inside = format!("/proc/{pid}/root{path}");
        let file = [exact, inside]
            .iter()
            .find_map(|path| untrusted::open(Path::new(path)).ok());
        let cache = Pieces::of(file?);
        let file = object::File::parse(&cache).ok()?;
        let segment = file.segments().find(|segment| {
            let (offset, length) = segment.file_range();
            let from = offset - offset % PAGE;
            (from..offset + length).contains(&mapping.offset) && segment.permissions().executable()
        })?;
        let (offset, _) = segment.file_range();
        let in_file = segment
            .address()
            .wrapping_add(mapping.offset)
            .wrapping_sub(offset);
        let bias = start.wrapping_sub(in_file);
        let others = wants_all.then(|| file.symbols());
        let mut found: Vec<Place> = file
            .dynamic_symbols()
            .chain(others.into_iter().flatten())
            .filter(|symbol| symbol.is_definition() && symbol.address() != 0)
            .filter_map(|symbol| {
                let name = symbol.name().ok()?.to_owned();
                Some((symbol.address().wrapping_add(bias), symbol.size(), name))
            })
            .collect();
        found.sort_unstable();
        Some(NamedPlaces(found))
    }

    /// All, the lowest address first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Place> {
        self.0.iter()
    }

    /// The address of a name.
    pub fn address(&self, name: &str) -> Option<u64> {
        let mut named = self.0.iter().filter(|(.., other)| other == name);
        named.next().map(|(address, ..)| *address)
    }
}
