//! Who a recorded process is, and on what it runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::SystemTime;

use loam_format::trace::{Clock, Header, Module, Process};
use loam_lab::allocators::{discover, Allocator};
use loam_lab::machine;
use loam_process::code;
use loam_process::layout::Layout;
use loam_process::mappings;
use loam_process::rings::Image;

/// Beginnings of the names of variables that allocators read.
const VARIABLES: [&str; 8] = [
    "LOAM_",
    "MALLOC_",
    "MIMALLOC_",
    "TCMALLOC_",
    "JE_",
    "SNMALLOC_",
    "RP",
    "GLIBC_TUNABLES",
];
/// Ours, which say nothing of the allocator.
const NOT_THOSE: [&str; 2] = ["LOAM_RECORD", "LOAM_LIBRARY"];

/// Describes processes.
#[derive(Debug)]
pub struct Describer {
    layout: Layout,
    /// By the files that processes have their malloc from; the system's allocator has no file here.
    findings: RefCell<HashMap<Option<PathBuf>, Finding>>,
    command: u32,
    words: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Describer {
    /// With the command's process, its words, and its environment as far as allocators read it, for
    /// a command that ends before it could be looked at.
    pub fn new(
        layout: &Layout,
        command: u32,
        words: &[String],
        environment: BTreeMap<String, String>,
    ) -> Describer {
        Describer {
            layout: layout.clone(),
            findings: RefCell::default(),
            command,
            words: words.to_vec(),
            environment,
        }
    }

    /// The command's process.
    pub fn command(&self) -> u32 {
        self.command
    }

    /// What the process says of itself, and /proc says of it now. Of its allocator it has the
    /// file's name only.
    pub fn process(&self, image: &Image) -> Process {
        let folder = PathBuf::from(format!("/proc/{}", image.pid()));
        let mut process = Process {
            program: image.program().to_owned(),
            arguments: words(&fs::read(folder.join("cmdline")).unwrap_or_default()),
            allocator_settings: settings(&fs::read(folder.join("environ")).unwrap_or_default()),
            ..Process::default()
        };
        if process.arguments.is_empty() && image.pid() == self.command {
            process.arguments.clone_from(&self.words);
            process.allocator_settings.clone_from(&self.environment);
        }
        process.allocator = file_name(Path::new(image.allocator()));
        process
    }

    /// What is found out about the process's allocator.
    pub fn finding(&self, image: &Image) -> Finding {
        let file = Path::new(image.allocator());
        let name = file_name(file);
        let is_c_library = ["libc.so", "libc-2.", "libc.musl", "ld-musl"]
            .iter()
            .any(|begin| name.starts_with(begin));
        let file = (!is_c_library).then(|| file.to_path_buf());
        let mut findings = self.findings.borrow_mut();
        let begin = || Finding::begin(file.clone(), self.layout.clone());
        findings.entry(file.clone()).or_insert_with(begin).clone()
    }
}

/// An allocator's name and version. A thread of its own finds them out: to search for the
/// allocators of this machine and to ask the package manager takes a tenth of a second, in which
/// rings would fill.
#[derive(Debug, Clone)]
pub struct Finding {
    file: Option<PathBuf>,
    layout: Layout,
    found: Arc<OnceLock<Option<Allocator>>>,
}

impl Finding {
    fn begin(file: Option<PathBuf>, layout: Layout) -> Finding {
        let found = Arc::default();
        let finding = Finding {
            file,
            layout,
            found,
        };
        let finds = finding.clone();
        thread::spawn(move || {
            finds.wait();
        });
        finding
    }

    /// Whether `complete` need not wait.
    pub fn is_known(&self) -> bool {
        self.found.get().is_some()
    }

    fn wait(&self) -> Option<&Allocator> {
        let find = || match &self.file {
            None => discover::system(&self.layout),
            Some(file) => discover::of_file(file, &self.layout),
        };
        self.found.get_or_init(find).as_ref()
    }

    /// Waits for the allocator's name and version, and sets them. An allocator that nobody knows
    /// keeps its file's name.
    pub fn complete(&self, process: &mut Process) {
        if let Some(found) = self.wait() {
            process.allocator.clone_from(&found.name);
            process.allocator_version.clone_from(&found.version);
        }
    }
}

/// The words that a process was started with.
pub fn words_of(pid: i32) -> Vec<String> {
    words(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// Files that are mapped as code. The build id of each file is read once.
#[derive(Debug, Default)]
pub struct Modules {
    build_ids: HashMap<String, Option<String>>,
}

impl Modules {
    /// Those of a process.
    pub fn of(&mut self, pid: i32) -> Vec<Module> {
        let mappings = mappings::read_files(pid).unwrap_or_default();
        let files = mappings
            .iter()
            .filter(|mapping| mapping.executable && mapping.name.starts_with('/'));
        files
            .map(|mapping| {
                let known = self.build_ids.entry(mapping.name.clone());
                let read = || code::build_id(Path::new(&mapping.name));
                Module {
                    path: mapping.name.clone(),
                    build_id: known.or_insert_with(read).clone(),
                    start: mapping.start,
                    end: mapping.end,
                    offset: mapping.offset,
                    ..Module::default()
                }
            })
            .collect()
    }
}

/// What stands before everything.
pub fn header(command: &[String]) -> Header {
    let machine = machine::current();
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let setting = |path: &str| fs::read_to_string(path).ok();
    let huge_pages = ["enabled", "defrag", "shmem_enabled"]
        .iter()
        .filter_map(|name| {
            let text = setting(&format!("/sys/kernel/mm/transparent_hugepage/{name}"))?;
            Some(((*name).to_owned(), text.trim().to_owned()))
        });
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        is_allocators(&name).then(|| (name, value.to_string_lossy().into_owned()))
    });
    Header {
        tool: loam_format::VERSION.to_owned(),
        command: command.to_vec(),
        directory: std::env::current_dir()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
        started,
        host: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        architecture: machine.architecture.clone(),
        cpu: machine.cpu.clone(),
        cores: machine.cores as u32,
        memory_bytes: machine.memory_bytes,
        kernel: machine.kernel.clone(),
        page_size: machine.page_bytes,
        huge_pages: huge_pages.collect(),
        cgroup: cgroup(),
        environment: variables.collect(),
        stack_bytes: 0,
        sampled: String::new(),
        weighted: false,
        origin: None,
        clock: Clock {
            source: match machine.architecture.as_str() {
                "x86_64" => "tsc",
                _ => "cntvct_el0",
            }
            .to_owned(),
            ..Clock::default()
        },
    }
}

/// The limits of this process's control group, of version 2 of those.
fn cgroup() -> BTreeMap<String, String> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(path) = path else {
        return BTreeMap::new();
    };
    let folder = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let limits = ["memory.max", "memory.high", "memory.swap.max", "cpu.max"].iter();
    limits
        .filter_map(|name| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            Some(((*name).to_owned(), text.trim().to_owned()))
        })
        .collect()
}

fn is_allocators(name: &str) -> bool {
    VARIABLES.iter().any(|begin| name.starts_with(begin)) && !NOT_THOSE.contains(&name)
}

fn words(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    match bytes.is_empty() {
        true => Vec::new(),
        false => bytes.split(|byte| *byte == 0).map(word).collect(),
    }
}

fn settings(environment: &[u8]) -> BTreeMap<String, String> {
    let pairs = words(environment).into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        is_allocators(name).then(|| (name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_that_nobody_knows_keeps_its_name_and_is_looked_for_once() {
        let file = Some(PathBuf::from("/nowhere/libown.so"));
        let finding = Finding::begin(file, Layout::discover());
        let mut process = Process {
            allocator: "libown.so".to_owned(),
            ..Process::default()
        };
        finding.complete(&mut process);
        assert!(finding.is_known() && finding.clone().is_known());
        assert_eq!(
            (&process.allocator[..], process.allocator_version),
            ("libown.so", None)
        );
    }

    #[test]
    fn only_what_allocators_read_is_kept_of_an_environment() {
        let kept =
            settings(b"PATH=/bin\0MALLOC_ARENA_MAX=1\0LOAM_RECORD=/x\0LOAM_PURGE=on\0broken\0");
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["LOAM_PURGE", "MALLOC_ARENA_MAX"]);
        assert_eq!(words(b"a\0\0b\0"), ["a", "", "b"]);
        assert!(words(b"").is_empty());
    }
}
