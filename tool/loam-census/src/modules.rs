//! The files of code and data of a target, and the names of variables and tables in them.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Mutex;

use loam_process::mappings::Mapping;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

use crate::names;
use crate::target::Target;

/// A symbol table longer than this is not read. Chosen: some 2 GiB of a browser's.
const MOST_SYMBOLS: usize = 4 << 20;

/// A named range of data.
#[derive(Debug, Clone)]
struct Named {
    start: u64,
    end: u64,
    name: Box<str>,
}

/// A file that is mapped.
pub struct Module {
    /// Its name without the folder, printable.
    pub name: String,
    /// Its addresses: headers, code, data, and variables without a value.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// From the file's addresses to the process's.
    bias: u64,
    mapping: usize,
    symbols: Mutex<Option<std::sync::Arc<Vec<Named>>>>,
}

/// All modules of a target.
pub struct Modules<'a> {
    target: &'a dyn Target,
    all: Vec<Module>,
    /// Ranges with code.
    code: Vec<(u64, u64)>,
}

impl<'a> Modules<'a> {
    /// Finds the modules by the mappings.
    pub fn of(target: &'a dyn Target) -> Modules<'a> {
        let mappings = target.mappings();
        let mut all: Vec<Module> = Vec::new();
        let mut place = 0;
        while place < mappings.len() {
            let first = &mappings[place];
            let is_file = first.name.starts_with('/') && first.inode != 0;
            let mut behind = place + 1;
            let is_same = |one: &Mapping| one.inode == first.inode && one.name == first.name;
            // Neighbours of one file; a hole without a name may lie between its parts.
            let mut end = first.end;
            let mut is_code = first.executable;
            while is_file && behind < mappings.len() {
                let next = &mappings[behind];
                if is_same(next) {
                    is_code |= next.executable;
                    end = next.end;
                } else if next.start != end || !next.name.is_empty() {
                    break;
                } else if mappings.get(behind + 1).is_some_and(is_same) {
                    end = next.end;
                } else {
                    break;
                }
                behind += 1;
            }
            if is_file && is_code {
                if let Some(module) = module(target, place, end) {
                    all.push(module);
                }
            }
            place = behind;
        }
        all.sort_by_key(|one| one.start);
        let code = mappings.iter().filter(|one| one.executable);
        Modules {
            target,
            all,
            code: code.map(|one| (one.start, one.end)).collect(),
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Module] {
        &self.all
    }

    /// The module of an address.
    pub fn at(&self, address: u64) -> Option<&Module> {
        let place = self.all.partition_point(|one| one.start <= address);
        let module = self.all.get(place.checked_sub(1)?)?;
        (address < module.end).then_some(module)
    }

    /// Whether code is at an address.
    pub fn is_code(&self, address: u64) -> bool {
        let place = self.code.partition_point(|(start, _)| *start <= address);
        place > 0 && address < self.code[place - 1].1
    }

    /// The variable or table at an address: start, end and name.
    pub fn symbol(&self, address: u64) -> Option<(u64, u64, String)> {
        let module = self.at(address)?;
        let symbols = self.symbols(module);
        let place = symbols.partition_point(|one| one.start <= address);
        let found = symbols.get(place.checked_sub(1)?)?;
        (address < found.end).then(|| (found.start, found.end, found.name.to_string()))
    }

    /// The address of a variable of some module.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.all.iter().find_map(|module| {
            let symbols = self.symbols(module);
            let found = symbols.iter().find(|one| &*one.name == name);
            found.map(|one| one.start)
        })
    }

    fn symbols(&self, module: &Module) -> std::sync::Arc<Vec<Named>> {
        let mut known = module
            .symbols
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let read = || {
            let file = self.target.file(&self.target.mappings()[module.mapping]);
            let named = file.and_then(|file| named(file, module.bias));
            std::sync::Arc::new(named.unwrap_or_default())
        };
        known.get_or_insert_with(read).clone()
    }
}

fn module(target: &dyn Target, place: usize, mut end: u64) -> Option<Module> {
    let first = &target.mappings()[place];
    let name = names::printable(first.file_name().unwrap_or("?"), 80);
    let mut bias = first.start.wrapping_sub(first.offset);
    if let Some(file) = target.file(first) {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let segments: Vec<(u64, u64, u64)> = file
            .segments()
            .map(|one| (one.address(), one.size(), one.file_range().0))
            .collect();
        let lowest = segments
            .iter()
            .find(|(_, _, offset)| offset & !0xfff <= first.offset)?;
        bias = (first.start.wrapping_sub(first.offset))
            .wrapping_sub((lowest.0 & !0xfff).wrapping_sub(lowest.2 & !0xfff));
        let highest = segments
            .iter()
            .map(|(address, size, _)| address.saturating_add(*size))
            .max()?;
        let behind = bias.wrapping_add(highest);
        // A damaged file may claim everything.
        if behind > end && behind - end < 1 << 32 {
            end = behind;
        }
    }
    Some(Module {
        name,
        start: first.start,
        end,
        bias,
        mapping: place,
        symbols: Mutex::new(None),
    })
}

fn named(file: File, bias: u64) -> Option<Vec<Named>> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache).ok()?;
    let mut found: HashMap<u64, Named> = HashMap::new();
    let symbols = file.symbols().chain(file.dynamic_symbols());
    for symbol in symbols.take(MOST_SYMBOLS) {
        let is_data = matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Unknown);
        if !is_data || symbol.size() == 0 || symbol.is_undefined() {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        let start = bias.wrapping_add(symbol.address());
        found.entry(start).or_insert_with(|| Named {
            start,
            end: start.saturating_add(symbol.size()),
            name: name.split('@').next().unwrap_or(name).into(),
        });
    }
    let mut found: Vec<Named> = found.into_values().collect();
    found.sort_unstable_by_key(|one| one.start);
    Some(found)
}
