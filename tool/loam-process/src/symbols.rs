//! Names for places in files of code: functions, demangled, with the source's lines where the file or its separate
//! debug file has them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use addr2line::{demangle_auto, Loader};
use loam_format::trace::Module;

use crate::code::Code;

/// Where a distribution puts what was split off.
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

/// Reads names; each file once.
#[derive(Default)]
pub struct Symbols {
    loaders: HashMap<PathBuf, Vec<Loader>>,
    other: Vec<String>,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

impl Symbols {
    /// The functions at an address of a module's file, the innermost inlined one first; none: not known here.
    pub fn at(&mut self, module: &Module, address: u64) -> Vec<Function> {
        let path = PathBuf::from(&module.path);
        if !self.loaders.contains_key(&path) {
            let loaders = self.load(module);
            self.loaders.insert(path.clone(), loaders);
        }
        let mut loaders = self.loaders[&path].iter();
        loaders
            .find_map(|loader| by_lines(loader, address).or_else(|| by_symbol(loader, address)))
            .unwrap_or_default()
    }

    /// Files that are not those that were recorded, by their build ids.
    pub fn other_files(&self) -> &[String] {
        &self.other
    }

    fn load(&mut self, module: &Module) -> Vec<Loader> {
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
        let here = Code::read(Path::new(&module.path));
        match here {
            Some(code) if code.build_id == module.build_id => {
                paths.push(module.path.clone().into())
            }
            Some(_) => self.other.push(module.path.clone()),
            None => {}
        }
        paths.retain(|path| path.is_file());
        paths
            .iter()
            .filter_map(|path| Loader::new(path).ok())
            .collect()
    }
}

fn by_lines(loader: &Loader, address: u64) -> Option<Vec<Function>> {
    let mut frames = loader.find_frames(address).ok()?;
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

fn by_symbol(loader: &Loader, address: u64) -> Option<Vec<Function>> {
    let name = loader.find_symbol(address)?;
    // A version behind the name is the dynamic linker's.
    let name = name.split('@').next().unwrap_or(name);
    Some(vec![Function {
        name: demangle_auto(name.into(), None).into_owned(),
        ..Function::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_and_another_file_of_that_name_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.cpp");
        std::fs::write(
            &source,
            "namespace shop { int sell(int a) { return a * 3; } }\n",
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
            (all, symbols.other_files().len())
        };
        let (known, others) = names(&module);
        assert!(known.contains(&"shop::sell(int)".to_owned()) && others == 0);
        module.build_id = Some("00".into());
        assert_eq!(names(&module), (vec![], 1));
    }
}
