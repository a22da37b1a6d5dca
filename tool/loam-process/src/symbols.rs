//! Names for places in files of code: functions, demangled, with the source's lines if the file or
//! its separate debug file has them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use addr2line::{demangle_auto, Loader};
use loam_format::trace::Module;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::code::{self, Same};
use crate::jit;
use crate::process::Pid;
use crate::untrusted::{self, Pieces};

/// Where a distribution puts separate debug files.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// A function at a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name, demangled.
    pub name: String,
    /// The source's file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

/// What a file says about its addresses.
struct Names {
    lines: Loader,
    /// Functions by their first address: the length and the name of each.
    functions: BTreeMap<u64, (u64, String)>,
}

/// Reads names, once for each file.
#[derive(Default)]
pub struct Symbols {
    files: HashMap<PathBuf, Vec<Names>>,
    /// The process whose files are meant.
    process: Option<Pid>,
    /// Where it tells the names of code that it made, and these, once they were wanted.
    source: Option<jit::Source>,
    made: Option<jit::Names>,
    other: Vec<String>,
    unsure: Vec<String>,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

impl Symbols {
    /// Names in the files of a process that lives: as it sees them, in a container too, and also of
    /// files that were deleted or replaced since it mapped them; and of the code that it made.
    pub fn of_process(pid: Pid) -> Symbols {
        Symbols {
            process: Some(pid),
            source: jit::Source::of(pid),
            ..Symbols::default()
        }
    }

    /// The functions at an address of a module's file, the innermost inlined one first; none if
    /// they are not known here.
    pub fn at(&mut self, module: &Module, address: u64) -> Vec<Function> {
        if module.path == jit::PATH {
            return self.of_made_code(address);
        }
        if !code::has_file(&module.path) {
            return Vec::new();
        }
        let path = PathBuf::from(&module.path);
        if !self.files.contains_key(&path) {
            let files = self.load(module);
            self.files.insert(path.clone(), files);
        }
        let mut files = self.files[&path].iter();
        files
            .find_map(|names| names.by_lines(address).or_else(|| names.by_symbol(address)))
            .unwrap_or_default()
    }

    /// What a reader of the names should know of these files, in sentences.
    pub fn doubts(&self) -> Vec<String> {
        let others = self.other.iter().map(|path| {
            format!(
                "{path} is not the file that was recorded (its build id or its checksum differs): \
                 its functions stay without names"
            )
        });
        let mut doubts: Vec<String> = others.collect();
        if let Some((first, rest)) = self.unsure.split_first() {
            let more = match rest.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            doubts.push(format!(
                "the recording does not say which files {first}{more} were: names are those of the \
                 files that are here now"
            ));
        }
        doubts
    }

    fn of_made_code(&mut self, address: u64) -> Vec<Function> {
        let read = || self.source.as_ref().map(jit::Source::names);
        let made = self.made.get_or_insert_with(|| read().unwrap_or_default());
        let found = made.at(address).map(|name| Function {
            name,
            ..Function::default()
        });
        found.into_iter().collect()
    }

    fn load(&mut self, module: &Module) -> Vec<Names> {
        let mut paths = Vec::new();
        if let Some((begin, rest)) = module
            .build_id
            .as_ref()
            .and_then(|id| id.split_at_checked(2))
        {
            paths.push(
                Path::new(DEBUG_FILES)
                    .join(begin)
                    .join(format!("{rest}.debug")),
            );
        }
        if let Some(pid) = self.process {
            paths.extend(code::as_mapped(pid, &module.path, module.start, module.end));
            return paths.iter().filter_map(|path| Names::read(path)).collect();
        }
        match Same::of(module) {
            Some(Same::No) => self.other.push(module.path.clone()),
            Some(same) => {
                // An imported recording names files only.
                if same == Same::Unsaid {
                    self.unsure.push(module.path.clone());
                }
                paths.push(module.path.clone().into());
            }
            None => {}
        }
        paths.iter().filter_map(|path| Names::read(path)).collect()
    }
}

impl Names {
    fn read(path: &Path) -> Option<Names> {
        let cache = Pieces::of(untrusted::open(path).ok()?);
        let lines = Loader::new(path).ok()?;
        let file = object::File::parse(&cache).ok()?;
        let functions = file
            .dynamic_symbols()
            .chain(file.symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
            .filter_map(|symbol| {
                Some((
                    symbol.address(),
                    (symbol.size(), symbol.name().ok()?.to_owned()),
                ))
            });
        Some(Names {
            lines,
            functions: functions.collect(),
        })
    }

    fn by_lines(&self, address: u64) -> Option<Vec<Function>> {
        let mut frames = self.lines.find_frames(address).ok()?;
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let location = frame.location;
            found.push(Function {
                name: frame.function?.demangle().ok()?.into_owned(),
                file: location.as_ref().and_then(|at| at.file).map(str::to_owned),
                line: location.and_then(|at| at.line),
            });
        }
        (!found.is_empty()).then_some(found)
    }

    /// A stripped file names only its exports. Code after an exported function, and not in it, has
    /// no name here.
    fn by_symbol(&self, address: u64) -> Option<Vec<Function>> {
        let (begin, (bytes, name)) = self.functions.range(..=address).next_back()?;
        if address - begin >= *bytes {
            return None;
        }
        // A version after the name comes from the dynamic linker.
        let name = name.split('@').next().unwrap_or(name);
        Some(vec![Function {
            name: demangle_auto(name.into(), None).into_owned(),
            ..Function::default()
        }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Checksums, Code};

    #[test]
    fn what_a_stripped_file_does_not_export_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.c");
        let text = "int sell(int a) { return a * 3; }\n\
            __attribute__((noinline, used)) static int count(int a) { return a * 5; }\n";
        std::fs::write(&source, text).unwrap();
        let library = dir.path().join("a.so");
        let done = std::process::Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-s", "-Wl,--build-id", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(done.success());
        let code = Code::read(&library).unwrap();
        let module = Module {
            path: library.to_str().unwrap().into(),
            build_id: code.build_id.clone(),
            ..Module::default()
        };
        let mut symbols = Symbols::default();
        let all: Vec<Vec<Function>> = code
            .text
            .unwrap()
            .map(|at| symbols.at(&module, at))
            .collect();
        let named = all.iter().position(|found| !found.is_empty()).unwrap();
        assert_eq!(all[named][0].name, "sell");
        // The other function comes after it.
        let behind = all[named..].iter().position(Vec::is_empty).unwrap();
        assert!(all[named + behind..].iter().all(Vec::is_empty));
        assert!(all.len() > named + behind);
    }

    #[test]
    fn names_are_demangled_and_another_file_of_that_name_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.cpp");
        std::fs::write(
            &source,
            "namespace shop { int sell(int a) { return a * 3; } }\n\
             // As rustc names them: in its old way and in its new one.\n\
             int held(int a) __asm__(\"_ZN5trade4held17h0123456789abcdefE\");\n\
             int kept(int a) __asm__(\"_RNvCs4fqI2P2rA04_5trade4kept\");\n\
             int held(int a) { return a * 5; }\n\
             int kept(int a) { return a * 7; }\n",
        )
        .unwrap();
        let library = dir.path().join("a.so");
        let done = std::process::Command::new("c++")
            .args(["-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(done.success());
        let code = Code::read(&library).unwrap();
        let mut module = Module {
            path: library.to_str().unwrap().into(),
            build_id: code.build_id.clone(),
            ..Module::default()
        };
        let text = code.text.unwrap();
        let names = |module: &Module| {
            let mut symbols = Symbols::default();
            let all: Vec<String> = text
                .clone()
                .flat_map(|at| symbols.at(module, at))
                .map(|function| function.name)
                .collect();
            let (others, unsure) = (symbols.other.len(), symbols.unsure.len());
            (all, others, unsure)
        };
        let (known, others, unsure) = names(&module);
        for name in ["shop::sell(int)", "trade::held", "trade::kept"] {
            assert!(known.contains(&name.to_owned()), "{name}: {known:?}");
        }
        assert_eq!((others, unsure), (0, 0));
        module.build_id = Some("00".into());
        assert_eq!(names(&module), (vec![], 1, 0));
        module.build_id = None;
        assert_eq!(names(&module), (known, 0, 1));
    }

    #[test]
    fn a_file_without_a_build_id_is_told_from_the_one_that_replaced_it() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("a.so");
        let compile = |name: &str| {
            let source = dir.path().join("a.c");
            let text = format!("int {name}(int a) {{ return a * 3; }}\n");
            std::fs::write(&source, text).unwrap();
            let done = std::process::Command::new("cc")
                .args(["-O1", "-shared", "-fPIC", "-Wl,--build-id=none", "-o"])
                .args([&library, &source])
                .status();
            assert!(done.unwrap().success());
            Code::read(&library).unwrap()
        };
        let code = compile("sell");
        let module = Module {
            path: library.to_str().unwrap().into(),
            checksum: Checksums::default()
                .of(0, library.to_str().unwrap())
                .and_then(|checksum| checksum.wait()),
            ..Module::default()
        };
        assert!(code.build_id.is_none() && module.checksum.is_some());
        let text = code.text.unwrap();
        let names = || {
            let mut symbols = Symbols::default();
            let all = text.clone().flat_map(|at| symbols.at(&module, at));
            let all: Vec<String> = all.map(|function| function.name).collect();
            (all, symbols.other)
        };
        assert!(names().0.contains(&"sell".to_owned()));
        // As long as before.
        compile("gift");
        assert_eq!(names(), (vec![], vec![module.path.clone()]));
    }
}
