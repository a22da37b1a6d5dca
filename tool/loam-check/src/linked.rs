//! The modules of a program, in the order in which the dynamic linker searches them, and the
//! definition to which each reference to a function of the family is bound.
//!
//! Each namespace has its own search order. Number 0 is the program's namespace; `dlmopen` makes
//! further ones.

use std::path::Path;

use crate::family::Function;
use crate::file::ObjectFile;

/// How a module was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It is the program.
    Program,
    /// It was preloaded by `LD_PRELOAD` or `/etc/ld.so.preload`.
    Preloaded,
    /// A module before it needs it.
    Linked,
    /// `dlopen` loaded it while the program ran.
    Opened,
}

impl Origin {
    /// The word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Origin::Program => "program",
            Origin::Preloaded => "preloaded",
            Origin::Linked => "linked",
            Origin::Opened => "opened",
        }
    }
}

/// One ELF file in the program.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its path, as the dynamic linker knows it.
    pub path: String,
    /// Its contents; none if the file could not be read.
    pub file: Option<ObjectFile>,
    /// The number of its search order.
    pub namespace: usize,
    /// How it was loaded.
    pub origin: Origin,
    /// Whether it is the dynamic linker.
    pub is_loader: bool,
}

impl Module {
    /// The file name without its folder.
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        let name = Path::new(path).file_name().and_then(|name| name.to_str());
        name.unwrap_or(path)
    }

    /// Whether it is the heap or has it inside.
    pub fn is_loam(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_loam)
    }

    /// Whether it belongs to the system: the dynamic linker or the C library.
    pub fn is_system(&self) -> bool {
        self.is_loader || self.file.as_ref().is_some_and(ObjectFile::is_c_library)
    }

    /// Whether it offers the function.
    pub fn exports(&self, function: Function) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| file.export(function).is_some())
    }
}

/// The definition that a reference is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// A module's definition.
    Module(usize),
    /// Code that belongs to no module: made at run time, or hidden.
    Elsewhere(u64),
}

/// How it is known to which definition a reference is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Read from the process's own tables.
    Read,
    /// It follows from the dynamic linker's rules: nothing has run, or the word is bound at the
    /// first call.
    Searched,
}

/// One module's use of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The module that uses the function.
    pub module: usize,
    /// The function.
    pub function: Function,
    /// The definition that serves the use.
    pub provider: Provider,
    /// How the provider is known.
    pub how: How,
}

/// Modules with their bindings.
#[derive(Debug, Clone, Default)]
pub struct Linked {
    /// The modules in search order, one namespace after the other.
    pub modules: Vec<Module>,
    /// The bindings. A module has one for each function and provider: several words may refer to
    /// the same function.
    pub bindings: Vec<Binding>,
}

impl Linked {
    /// The module with the definition that the dynamic linker finds for a reference of module
    /// `from`.
    pub fn search(&self, function: Function, from: usize) -> Option<usize> {
        let module = self.modules.get(from)?;
        let own = module.file.as_ref().and_then(|file| {
            let export = file.export(function)?;
            Some(export.is_protected || file.is_symbolic)
        });
        if own == Some(true) {
            return Some(from);
        }
        self.first(function, module.namespace)
    }

    /// The first definition in a namespace.
    pub fn first(&self, function: Function, namespace: usize) -> Option<usize> {
        self.modules
            .iter()
            .position(|module| module.namespace == namespace && module.exports(function))
    }

    /// Binds every reference by the search order.
    pub fn bind(&mut self) {
        for module in 0..self.modules.len() {
            let references = self.references(module);
            for function in references {
                if let Some(provider) = self.search(function, module) {
                    self.add(Binding {
                        module,
                        function,
                        provider: Provider::Module(provider),
                        how: How::Searched,
                    });
                }
            }
        }
    }

    /// Adds a binding, unless it is known already.
    pub fn add(&mut self, binding: Binding) {
        let is_same = |known: &Binding| {
            Binding {
                how: binding.how,
                ..*known
            } == binding
        };
        if !self.bindings.iter().any(is_same) {
            self.bindings.push(binding);
        }
    }

    /// The functions of the family that a module refers to, each once.
    pub fn references(&self, module: usize) -> Vec<Function> {
        let file = self
            .modules
            .get(module)
            .and_then(|module| module.file.as_ref());
        let mut functions: Vec<Function> = file
            .map(|file| {
                file.references
                    .iter()
                    .map(|reference| reference.function)
                    .collect()
            })
            .unwrap_or_default();
        functions.sort_unstable();
        functions.dedup();
        functions
    }

    /// A provider's name for people.
    pub fn provider_name(&self, provider: Provider) -> String {
        match provider {
            Provider::Module(module) => self.modules[module].name().to_owned(),
            Provider::Elsewhere(address) => format!("code in no module, at {address:#x}"),
        }
    }

    /// Whether the provider is the heap.
    pub fn is_loam(&self, provider: Provider) -> bool {
        matches!(provider, Provider::Module(module) if self.modules[module].is_loam())
    }
}
