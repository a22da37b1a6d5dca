//! A running process. Its modules come from the dynamic linker's own list, its bindings from the
//! words that the dynamic linker filled.
//!
//! ```text
//! auxv AT_PHDR --> program headers --> PT_DYNAMIC --> DT_DEBUG
//!                                      --> r_debug --> link_map, link_map, ...
//!                                          r_debug (the next namespace) --> ...
//! link_map: load bias + slot of a relocation --> word --> address in a module
//! ```
//!
//! A word that is not bound yet points into its own module's procedure linkage table. If the
//! program takes the address of a function, the word points into the program's linkage table. In
//! both cases the search order gives the definition. The process controls everything that is read
//! here: lengths are bounded and nothing is trusted.

use std::fs;
use std::path::PathBuf;

use anyhow::{anyhow, bail, Result};
use object::elf;

use loam_counters::locate;
use loam_format::bytes::u64_at;
use loam_format::memory::{Memory, ReadError};
use loam_format::plain;
use loam_process::apart::{step, step_to_file, Doing};
use loam_process::mappings::{self, Mapping};
use loam_process::process::{face, Identity, Pid, ProcessError};
use loam_process::remote::ProcessMemory;

use crate::examined::{Examined, Failure, Preload};
use crate::file::ObjectFile;
use crate::linked::{Binding, How, Linked, Module, Origin, Provider};
use crate::program;

/// No process has more modules or namespaces than this; glibc itself stops at 16 namespaces.
const MOST_MODULES: usize = 8192;
const MOST_NAMESPACES: usize = 64;

/// The program that Wine runs in the process: Wine's own part is an ELF file, as is that of all
/// processes.
fn windows_program(maps: &[Mapping]) -> Option<String> {
    let names = || maps.iter().filter_map(|one| one.name.rsplit('/').next());
    names().find(|name| *name == "ntdll.so")?;
    let is_program = |name: &&str| name.to_ascii_lowercase().ends_with(".exe");
    names().find(is_program).map(str::to_owned)
}

/// Looks at the process without stopping it.
pub fn examine(pid: Pid) -> Result<Examined> {
    let identity = Identity::read(pid)?;
    identity.require_memory()?;
    let memory = ProcessMemory::of(identity.key.pid);
    memory.hold();
    let pid = face(identity.key.pid);
    let maps = mappings::read_names(pid)?;
    if let Some(program) = windows_program(&maps) {
        bail!(
            "process {pid} runs {}, a program for Windows, in Wine. Its modules and their calls \
             are not those of ELF files, and can not be checked; `loam stats {pid}` says whether \
             Loam's heap is in it",
            plain::line(&program)
        );
    }
    let auxiliary = Auxiliary::read(pid)?;
    let executable = identity.executable.clone().unwrap_or_default();
    let program = open_program(pid)?;
    if !program.image.is_64 {
        bail!("process {pid} is a 32-bit program; only 64-bit ones can be checked");
    }
    let is_static = program.image.interpreter.is_none() && !program.image.is_loader();
    let mut loaded = listed(&memory, &auxiliary, &maps)?;
    if loaded.is_empty() {
        // A static program has only itself.
        let name = executable.display().to_string();
        let first = maps.iter().find(|m| m.inode != 0 && m.name == name);
        loaded.extend(first.map(|first| alone(first, &program)));
    }
    let mut linked = modules(pid, &loaded, &program);
    let preloads = preloads(pid);
    mark_origins(&mut linked, &preloads);
    bind(&mut linked, &memory, &loaded, &maps)?;
    let raised = auxiliary
        .value(AT_SECURE)
        .filter(|secure| *secure != 0)
        .map(|_| "runs with raised privileges (AT_SECURE is set)".to_owned());
    let preloads = preloads
        .into_iter()
        .map(|entry| {
            let failure = failure(pid, &entry, &linked, &program);
            Preload {
                entry,
                failure: failure.filter(|_| raised.is_none() && !is_static),
            }
        })
        .collect();
    // In a stripped static program, only the counters show the heap.
    let has_counters = locate::find(pid, &maps).is_ok_and(|found| found.is_some());
    memory.confirm(identity.key)?;
    Ok(Examined {
        pid: Some(pid),
        title: format!("{} (process {pid})", identity.name),
        program: executable,
        linked,
        is_static,
        raised,
        preloads,
        missing: Vec::new(),
        has_counters,
    })
}

/// A module in the process: its entry in the dynamic linker's list, its path, and its first
/// mapping.
type Loaded = (Entry, String, Mapping);

/// The modules of the dynamic linker's list; none in a static program.
fn listed(
    memory: &impl Memory,
    auxiliary: &Auxiliary,
    maps: &[Mapping],
) -> Result<Vec<Loaded>, ReadError> {
    let listed = match link_maps(memory, auxiliary) {
        Ok(listed) => listed,
        // A static program has no list, and a program that was stopped before its loader ran has
        // none yet.
        Err(ReadError::Unmapped { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut loaded = Vec::new();
    for entry in listed {
        let mapping = maps.iter().find(|mapping| mapping.contains(entry.dynamic));
        // The kernel's own page of functions has no file.
        if let Some(first) = mapping.and_then(|mapping| first_of(maps, mapping)) {
            let path = PathBuf::from(&first.name).display().to_string();
            loaded.push((entry, path, first.clone()));
        }
    }
    Ok(loaded)
}

/// The single module of a static program.
fn alone(first: &Mapping, program: &ObjectFile) -> Loaded {
    let entry = Entry {
        bias: first.start.wrapping_sub(program.base),
        dynamic: 0,
        namespace: 0,
    };
    (entry, first.name.clone(), first.clone())
}

/// The modules with the contents of their files. Which of them were preloaded and which are needed
/// is determined later.
fn modules(pid: Pid, loaded: &[Loaded], program: &ObjectFile) -> Linked {
    let mut linked = Linked::default();
    for (place, (entry, path, first)) in loaded.iter().enumerate() {
        let file = match place {
            0 => Some(program.clone()),
            _ => locate::open(pid, first).and_then(|file| ObjectFile::of_file(file).ok()),
        };
        let is_loader = file.as_ref().is_some_and(|file| file.image.is_loader());
        let origin = if place == 0 {
            Origin::Program
        } else {
            Origin::Opened
        };
        linked.modules.push(Module {
            path: path.clone(),
            file,
            namespace: entry.namespace,
            origin,
            is_loader,
        });
    }
    linked
}

/// The libraries that should be preloaded, according to the process's environment and its system.
fn preloads(pid: Pid) -> Vec<String> {
    let environment = environment(pid);
    program::split(environment.as_deref().unwrap_or_default())
        .chain(program::split(
            &fs::read(format!("/proc/{pid}/root/etc/ld.so.preload")).unwrap_or_default(),
        ))
        .collect()
}

fn open_program(pid: Pid) -> Result<ObjectFile> {
    let path = PathBuf::from(format!("/proc/{pid}/exe"));
    step_to_file(&path);
    let file =
        fs::File::open(&path).map_err(|error| ProcessError::of_io(pid, "the program", &error))?;
    ObjectFile::of_file(file)
        .map_err(|error| anyhow!("the program of process {pid} can not be checked: {error}"))
}

/// The mapping of the file's first byte. It identifies the module among several copies of the same
/// file.
fn first_of<'a>(maps: &'a [Mapping], of: &Mapping) -> Option<&'a Mapping> {
    let is_same = |m: &&Mapping| m.inode == of.inode && m.device == of.device && m.inode != 0;
    maps.iter()
        .filter(is_same)
        .rfind(|m| m.offset == 0 && m.start <= of.start)
}

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_SECURE: u64 = 23;

/// The data that the kernel gave the process at its start.
struct Auxiliary(Vec<(u64, u64)>);

impl Auxiliary {
    fn read(pid: Pid) -> Result<Auxiliary, ProcessError> {
        step(Doing::Process(pid));
        let bytes = fs::read(format!("/proc/{pid}/auxv"))
            .map_err(|error| ProcessError::of_io(pid, "the start", &error))?;
        let pair = |bytes: &[u8]| Some((u64_at(bytes, 0)?, u64_at(bytes, 8)?));
        Ok(Auxiliary(bytes.chunks_exact(16).filter_map(pair).collect()))
    }

    fn value(&self, key: u64) -> Option<u64> {
        self.0
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value)
    }
}

/// An entry of the dynamic linker's list.
#[derive(Debug, Clone, Copy)]
struct Entry {
    bias: u64,
    dynamic: u64,
    namespace: usize,
}

fn link_maps(memory: &impl Memory, auxiliary: &Auxiliary) -> Result<Vec<Entry>, ReadError> {
    let nothing = ReadError::Unmapped {
        address: 0,
        length: 8,
    };
    let headers = auxiliary.value(AT_PHDR).ok_or_else(|| nothing.clone())?;
    let count = auxiliary.value(AT_PHNUM).unwrap_or(0).min(256) as usize;
    const HEADER: usize = 56;
    let bytes = memory.bytes(headers, count * HEADER)?;
    let (mut bias, mut dynamic) = (0, None);
    for header in bytes.chunks_exact(HEADER) {
        let kind = elf::ProgramType(u64_at(header, 0).unwrap_or(0) as u32);
        let address = u64_at(header, 16).unwrap_or(0);
        match kind {
            elf::PT_PHDR => bias = headers.wrapping_sub(address),
            elf::PT_DYNAMIC => dynamic = Some((address, u64_at(header, 40).unwrap_or(0))),
            _ => {}
        }
    }
    let (address, size) = dynamic.ok_or_else(|| nothing.clone())?;
    let table = memory.bytes(bias.wrapping_add(address), size.min(1 << 16) as usize)?;
    let debug = table
        .chunks_exact(16)
        .find(|entry| u64_at(entry, 0) == Some(elf::DT_DEBUG.0 as u64))
        .and_then(|entry| u64_at(entry, 8))
        .filter(|debug| *debug != 0)
        .ok_or(nothing)?;
    walk(memory, debug)
}

/// Follows `struct r_debug` and `struct link_map` of <link.h>. Version 2 of the former points to
/// the next one.
fn walk(memory: &impl Memory, debug: u64) -> Result<Vec<Entry>, ReadError> {
    let mut found = Vec::new();
    let mut debug = debug;
    for namespace in 0..MOST_NAMESPACES {
        let head = memory.bytes(debug, 40)?;
        let version = u64_at(&head, 0).unwrap_or(0) as u32;
        let mut map = u64_at(&head, 8).unwrap_or(0);
        while map != 0 && found.len() < MOST_MODULES {
            let bytes = memory.bytes(map, 32)?;
            let word = |at: usize| u64_at(&bytes, at).unwrap_or(0);
            found.push(Entry {
                bias: word(0),
                dynamic: word(16),
                namespace,
            });
            map = word(24);
        }
        debug = match version {
            2.. => memory
                .bytes(debug + 40, 8)
                .ok()
                .and_then(|bytes| u64_at(&bytes, 0))
                .unwrap_or(0),
            _ => 0,
        };
        if debug == 0 {
            break;
        }
    }
    Ok(found)
}

/// Marks the modules that were preloaded, and those that other modules need; the rest was opened.
fn mark_origins(linked: &mut Linked, preloads: &[String]) {
    let mut needed: Vec<(usize, String)> = Vec::new();
    for module in &linked.modules {
        if let Some(file) = &module.file {
            // A library that an opened one needs was opened with it. For a search this makes no
            // difference.
            needed.extend(
                file.image
                    .needed
                    .iter()
                    .map(|name| (module.namespace, name.clone())),
            );
        }
    }
    for place in 1..linked.modules.len() {
        let module = &linked.modules[place];
        let soname = module
            .file
            .as_ref()
            .and_then(|file| file.image.soname.clone());
        let is_named = |name: &str| {
            name == module.path || name == module.name() || soname.as_deref() == Some(name)
        };
        let is_needed = needed
            .iter()
            .any(|(namespace, name)| *namespace == module.namespace && is_named(name));
        let origin = if module.namespace == 0 && preloads.iter().any(|entry| is_named(entry)) {
            Origin::Preloaded
        } else if is_needed || module.is_loader {
            Origin::Linked
        } else {
            Origin::Opened
        };
        linked.modules[place].origin = origin;
    }
}

fn bind(
    linked: &mut Linked,
    memory: &impl Memory,
    loaded: &[Loaded],
    maps: &[Mapping],
) -> Result<(), ReadError> {
    for module in 0..linked.modules.len() {
        let references = linked.modules[module]
            .file
            .as_ref()
            .map(|file| file.references.clone());
        for reference in references.unwrap_or_default() {
            let address = loaded[module].0.bias.wrapping_add(reference.slot);
            let word = match memory.bytes(address, 8) {
                Ok(bytes) => u64_at(&bytes, 0).unwrap_or(0),
                Err(ReadError::Unmapped { .. }) => continue,
                Err(error) => return Err(error),
            };
            if word == 0 {
                continue; // Weak, and nobody has it.
            }
            let home = home_of(word, loaded, maps);
            // An address in the module that is not the definition's belongs to a linkage table.
            let is_definition = |home: usize| {
                let bias = loaded[home].0.bias;
                let file = linked.modules[home].file.as_ref();
                file.is_some_and(|file| {
                    file.exports.iter().any(|export| {
                        export.function == reference.function
                            && bias.wrapping_add(export.address) == word
                    })
                })
            };
            let (provider, how) = match home {
                Some(home) if is_definition(home) => (Provider::Module(home), How::Read),
                Some(home) => match linked.search(reference.function, home) {
                    Some(found) => (Provider::Module(found), How::Searched),
                    None => continue,
                },
                None => (Provider::Elsewhere(word), How::Read),
            };
            linked.add(Binding {
                module,
                function: reference.function,
                provider,
                how,
            });
        }
    }
    Ok(())
}

/// The module that has a mapping with the address.
fn home_of(address: u64, loaded: &[Loaded], maps: &[Mapping]) -> Option<usize> {
    let mapping = maps.iter().find(|mapping| mapping.contains(address))?;
    let first = first_of(maps, mapping)?;
    loaded
        .iter()
        .position(|(_, _, known)| known.start == first.start)
}

/// The value of `LD_PRELOAD` at the program's start.
fn environment(pid: Pid) -> Option<Vec<u8>> {
    step(Doing::Process(pid));
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = bytes.split(|byte| *byte == 0);
    variables
        .find_map(|variable| variable.strip_prefix(b"LD_PRELOAD="))
        .map(<[u8]>::to_vec)
}

/// The reason why an entry of `LD_PRELOAD` is not among the modules.
fn failure(pid: Pid, entry: &str, linked: &Linked, program: &ObjectFile) -> Option<Failure> {
    let path = PathBuf::from(format!("/proc/{pid}/root{entry}"));
    step_to_file(&path);
    let target = path.canonicalize().ok();
    let is_loaded = linked.modules.iter().any(|module| {
        let known = module
            .path
            .strip_suffix(" (deleted)")
            .unwrap_or(&module.path);
        let soname = module
            .file
            .as_ref()
            .and_then(|file| file.image.soname.as_deref());
        let is_target = target.is_some()
            && PathBuf::from(format!("/proc/{pid}/root{known}"))
                .canonicalize()
                .ok()
                == target;
        known == entry
            || is_target
            || (!entry.contains('/') && (soname == Some(entry) || module.name() == entry))
    });
    if is_loaded {
        return None;
    }
    let unknown = Failure {
        what: "is not in the process, for a reason that the file does not show".to_owned(),
        remedy: "start the program again and read what the dynamic linker says on standard error"
            .to_owned(),
    };
    if !entry.starts_with('/') {
        return Some(Failure {
            what: "is not in the process: the dynamic linker did not find it from where the \
                   program started"
                .to_owned(),
            remedy: "name it by its full path".to_owned(),
        });
    }
    let library = ObjectFile::read(&path);
    Some(program::obstacle(library.as_ref(), program).unwrap_or(unknown))
}
