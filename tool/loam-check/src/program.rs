//! A program that does not run. Its files are linked as the dynamic linker would link them, and
//! nothing is executed.
//!
//! Limits: neither the libraries that the program opens with `dlopen` nor the changes that a
//! wrapper makes to the environment are seen.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

use loam_process::elf::ImageError;
use loam_process::privilege::{self, Caller, Raised};
use loam_process::script;

use crate::examined::{Examined, Failure, Missing, Preload};
use crate::file::ObjectFile;
use crate::linked::{Linked, Module, Origin};
use crate::search::{Asker, Search};

/// How many scripts may name each other as interpreters: as many as the kernel follows.
const SCRIPT_DEPTH: usize = 4;

/// Links the program with the heap preloaded, and with the present `LD_PRELOAD`. Without a heap,
/// the program is linked as it is.
pub fn examine(program: &Path, heap: Option<&Path>) -> Result<Examined> {
    let (path, raised) = really_runs(program)?;
    let file = ObjectFile::read(&path)
        .with_context(|| format!("{} can not be checked", path.display()))?;
    let is_static = file.image.interpreter.is_none() && !file.image.is_loader();
    let mut examined = Examined {
        pid: None,
        title: program.display().to_string(),
        program: path.clone(),
        linked: Linked::default(),
        is_static,
        raised,
        preloads: Vec::new(),
        missing: Vec::new(),
        has_counters: false,
    };
    let mut closure = Closure::new(&path, file);
    if !is_static {
        for entry in preload_entries(heap) {
            let failure = match &examined.raised {
                Some(_) => None,
                None => closure.preload(&entry).err(),
            };
            examined.preloads.push(Preload { entry, failure });
        }
        closure.follow(&mut examined.missing);
    }
    examined.linked = closure.linked;
    examined.linked.bind();
    Ok(examined)
}

/// Whether the program loads the heap without a preload.
pub fn brings_loam(program: &Path) -> Result<bool> {
    Ok(examine(program, None)?.has_loam())
}

/// Follows scripts to the program that really runs, and finds out whether any step raises
/// privileges.
fn really_runs(program: &Path) -> Result<(PathBuf, Option<String>)> {
    let mut file = program.to_path_buf();
    let mut raised = None;
    for _ in 0..=SCRIPT_DEPTH {
        // If the file can not be read, the function that reads it next reports the error.
        if let Ok(Some(how)) = privilege::raised(&file, Caller::current()) {
            raised = Some(describe(how).to_owned());
        }
        match ObjectFile::read(&file) {
            Err(ImageError::NotElf) => {}
            _ => return Ok((file, raised)),
        }
        let interpreter = script::interpreter(&file)
            .with_context(|| format!("{} can not be loaded", file.display()))?;
        let words = interpreter.argument.unwrap_or_default();
        let named = script::program_after_env(words.split_whitespace());
        file = match named.filter(|_| script::is_env(&interpreter.path)) {
            Some(name) => which::which(name).with_context(|| {
                format!("{name}, which {} names, is not in PATH", file.display())
            })?,
            None => interpreter.path,
        };
    }
    Ok((file, raised))
}

fn describe(raised: Raised) -> &'static str {
    match raised {
        Raised::User => "is set-user-ID",
        Raised::Group => "is set-group-ID",
        Raised::Capabilities => "has file capabilities",
    }
}

/// The preloads: first the heap, as `loam run` places it, then those of the environment, then the
/// system's.
fn preload_entries(heap: Option<&Path>) -> Vec<String> {
    let mut entries: Vec<String> = heap.iter().map(|path| path.display().to_string()).collect();
    let environment = env::var_os("LD_PRELOAD").unwrap_or_default();
    let system = fs::read("/etc/ld.so.preload").unwrap_or_default();
    for entry in split(environment.as_bytes()).chain(split(&system)) {
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

/// The words of `LD_PRELOAD` and of `/etc/ld.so.preload`.
pub fn split(value: &[u8]) -> impl Iterator<Item = String> + '_ {
    value
        .split(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n'))
        .filter(|entry| !entry.is_empty())
        .map(|entry| OsStr::from_bytes(entry).to_string_lossy().into_owned())
}

/// The reason why a file can not be preloaded into that program.
pub fn obstacle(
    library: Result<&ObjectFile, &ImageError>,
    program: &ObjectFile,
) -> Option<Failure> {
    let failure = |what: String, remedy: &str| {
        Some(Failure {
            what,
            remedy: remedy.to_owned(),
        })
    };
    let library = match library {
        Ok(library) => library,
        Err(ImageError::Unreadable(error)) => return failure(
            format!("could not be opened ({error})"),
            "name a library that is there and that the program's user may read, by its full path",
        ),
        Err(error) => {
            return failure(
                format!("is no library ({error})"),
                "name a shared library in LD_PRELOAD",
            )
        }
    };
    if !library.suits(program) {
        let what = format!(
            "is for {}, and the program for {}",
            library.image.architecture(),
            program.image.architecture()
        );
        return failure(what, "build the library for the program's architecture");
    }
    match (library.is_for_musl(), program.is_for_musl()) {
        (Some(true), Some(false)) => failure(
            "is linked with musl, and the program with the GNU C library".to_owned(),
            "preload one that was built with the GNU C library",
        ),
        (Some(false), Some(true)) => failure(
            "is linked with the GNU C library, and the program with musl".to_owned(),
            "build it with musl (docs/portability.md says how)",
        ),
        _ => None,
    }
}

/// Modules in the order in which the dynamic linker adds them: the program, the preloads, then the
/// libraries that they need, breadth first, each file once.
struct Closure {
    linked: Linked,
    askers: Vec<Asker>,
    search: Search,
    /// Names of the files that were added.
    known: HashSet<String>,
    files: HashSet<(u64, u64)>,
}

impl Closure {
    fn new(path: &Path, file: ObjectFile) -> Closure {
        let mut closure = Closure {
            linked: Linked::default(),
            askers: Vec::new(),
            search: Search::for_loader(file.image.interpreter.as_deref()),
            known: HashSet::new(),
            files: HashSet::new(),
        };
        closure.push(path, file, Origin::Program, None);
        closure
    }

    fn program(&self) -> &ObjectFile {
        let file = self
            .linked
            .modules
            .first()
            .and_then(|module| module.file.as_ref());
        file.expect("the program comes first and was read")
    }

    fn push(&mut self, path: &Path, file: ObjectFile, origin: Origin, asker: Option<usize>) {
        self.known.extend(file.image.soname.clone());
        if let Ok(meta) = path.metadata() {
            if !self.files.insert((meta.dev(), meta.ino())) {
                return;
            }
        }
        let parent = asker.map(|asker| self.askers[asker].clone());
        self.askers.push(Asker::of(path, &file, parent.as_ref()));
        self.linked.modules.push(Module {
            path: path.display().to_string(),
            is_loader: file.image.is_loader(),
            file: Some(file),
            namespace: 0,
            origin,
        });
    }

    fn preload(&mut self, entry: &str) -> Result<(), Failure> {
        let (path, file) = if entry.contains('/') {
            (PathBuf::from(entry), ObjectFile::read(Path::new(entry)))
        } else {
            let found = self.search.find(entry, &self.askers[0], self.program());
            let Some((path, file)) = found else {
                return Err(Failure {
                    what: "is in none of the folders in which the dynamic linker looks".to_owned(),
                    remedy: "name it by its full path".to_owned(),
                });
            };
            (path, Ok(file))
        };
        if let Some(failure) = obstacle(file.as_ref(), self.program()) {
            return Err(failure);
        }
        if let Ok(file) = file {
            self.known.insert(entry.to_owned());
            self.push(&path, file, Origin::Preloaded, None);
        }
        Ok(())
    }

    fn follow(&mut self, missing: &mut Vec<Missing>) {
        let loader = self.program().image.interpreter.clone();
        let mut next = 0;
        while next < self.linked.modules.len() {
            let needed = self.linked.modules[next]
                .file
                .as_ref()
                .map(|file| file.image.needed.clone());
            for name in needed.unwrap_or_default() {
                if !self.known.insert(name.clone()) {
                    continue;
                }
                let found = match loader
                    .as_deref()
                    .filter(|loader| is_loaders_own(loader, &name))
                {
                    Some(loader) => ObjectFile::read(Path::new(loader))
                        .ok()
                        .map(|file| (PathBuf::from(loader), file)),
                    None => self.search.find(&name, &self.askers[next], self.program()),
                };
                match found {
                    Some((path, file)) => self.push(&path, file, Origin::Linked, Some(next)),
                    None => missing.push(Missing {
                        library: name,
                        asked_by: self.linked.modules[next].path.clone(),
                    }),
                }
            }
            next += 1;
        }
    }
}

/// Whether the loader itself has that name. musl is one file with many names.
fn is_loaders_own(loader: &str, name: &str) -> bool {
    const MUSL: [&str; 8] = [
        "c.", "pthread.", "rt.", "m.", "dl.", "util.", "xnet.", "c.musl-",
    ];
    if loader.contains("ld-musl") {
        let stem = name.strip_prefix("lib").unwrap_or_default();
        return name.starts_with("ld-musl") || MUSL.iter().any(|own| stem.starts_with(own));
    }
    Path::new(loader)
        .file_name()
        .is_some_and(|file| file == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_linked_in_the_loaders_order() {
        let examined = examine(&env::current_exe().unwrap(), None).unwrap();
        let modules = &examined.linked.modules;
        assert_eq!(modules[0].origin, Origin::Program);
        assert!(modules.iter().any(Module::is_system));
        assert!(examined.missing.is_empty(), "{:?}", examined.missing);
        let names: HashSet<&str> = modules.iter().map(Module::name).collect();
        assert_eq!(names.len(), modules.len(), "each file once");
        assert!(!examined.linked.bindings.is_empty());
    }

    #[test]
    fn musl_is_one_file_under_many_names() {
        assert!(is_loaders_own("/lib/ld-musl-x86_64.so.1", "libc.so"));
        assert!(is_loaders_own("/lib/ld-musl-x86_64.so.1", "libm.so.6"));
        assert!(!is_loaders_own("/lib/ld-musl-x86_64.so.1", "libcrypto.so"));
        assert!(is_loaders_own(
            "/lib64/ld-linux-x86-64.so.2",
            "ld-linux-x86-64.so.2"
        ));
        assert!(!is_loaders_own("/lib64/ld-linux-x86-64.so.2", "libc.so.6"));
    }

    #[test]
    fn a_preload_list_is_cut_at_colons_and_blanks() {
        let entries: Vec<String> = split(b"/a.so:b.so  c.so\n").collect();
        assert_eq!(entries, ["/a.so", "b.so", "c.so"]);
    }
}
