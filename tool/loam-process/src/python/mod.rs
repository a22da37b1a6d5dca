//! The Python functions of a running CPython, 3.11 to 3.14, that nobody prepared.
//!
//! ```text
//! runtime -> interpreters -> threads -> frame -> frame -> ...   in the process's memory
//!                                         |
//!                                         code: names, lines, instructions
//! ```
//!
//! **The moment.** Python frames are overwritten by the next call. So they are never read later:
//! programs in the kernel copy the chain of the thread at the moment at which they copy its stack
//! (`calls`). What is read later are codes, which live as long as their functions.
//!
//! **The place.** One frame of C may execute many Python frames. The stack of C says where they
//! end (`placed`), and a chain that does not fit it is not believed. So a name is of the right
//! function at the right place, or there is none.

pub mod calls;
pub mod code;
pub mod functions;
pub mod layout;
pub mod placed;

use loam_format::bytes::{u32_at, u64_at};
use loam_format::memory::Memory;

use crate::mappings::Mapping;
use crate::named_places::NamedPlaces;
use crate::process::Pid;
use layout::Layout;

/// The path of the module in which Python's functions lie: no file has it.
pub const PATH: &str = "//python";

/// The most interpreters and threads that are followed.
const MOST_INTERPRETERS: usize = 256;
const MOST_THREADS: usize = 8_192;

/// A CPython in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interpreter {
    /// Where it keeps things.
    pub layout: Layout,
    runtime: u64,
    code_type: u64,
    text_type: u64,
    bytes_type: u64,
}

/// A thread of CPython.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    /// The number that the kernel gave it, in its own namespace.
    pub number: u32,
    /// Where CPython keeps what it knows of the thread.
    pub record: u64,
}

impl Interpreter {
    /// Finds it by the names that its file exports. None: there is none, or none of a version whose
    /// records are known.
    pub fn find(pid: Pid, mappings: &[Mapping], memory: &impl Memory) -> Option<Interpreter> {
        let mut files = mappings.iter().filter(|mapping| {
            let name = mapping.file_name().unwrap_or_default();
            mapping.executable && (name.starts_with("python") || name.starts_with("libpython"))
        });
        files.find_map(|mapping| {
            let places = NamedPlaces::exported(pid, mapping)?;
            let runtime = places.address("_PyRuntime")?;
            let version = memory.bytes(places.address("Py_Version")?, 4).ok()?;
            let version = u32_at(&version, 0)?;
            let table = memory.bytes(runtime, layout::TABLE).ok()?;
            Some(Interpreter {
                layout: match version >> 24 {
                    3 => Layout::of((version >> 16 & 0xff) as u8, &table)?,
                    _ => return None,
                },
                runtime,
                code_type: places.address("PyCode_Type")?,
                text_type: places.address("PyUnicode_Type")?,
                bytes_type: places.address("PyBytes_Type")?,
            })
        })
    }

    /// Where the list of the main interpreter's threads begins. The newest interpreter is the first
    /// of all.
    pub fn list_of_threads(&self, memory: &impl Memory) -> Option<u64> {
        let word = |address: u64| u64_at(&memory.bytes(address, 8).ok()?, 0);
        let mut at = word(self.runtime.checked_add(self.layout.interpreters)?)?;
        for _ in 0..MOST_INTERPRETERS {
            match word(at.checked_add(self.layout.next_interpreter)?)? {
                0 => return at.checked_add(self.layout.threads),
                next => at = next,
            }
        }
        None
    }

    /// Its threads at this moment, as far as they can be read.
    pub fn threads(&self, memory: &impl Memory) -> Vec<Thread> {
        let Layout {
            interpreters,
            next_interpreter,
            threads,
            next_thread,
            interpreter,
            number,
            ..
        } = self.layout;
        let word = |record: u64, offset: u64| {
            let bytes = memory.bytes(record.checked_add(offset)?, 8).ok()?;
            u64_at(&bytes, 0).filter(|value| *value != 0)
        };
        let mut found = Vec::new();
        let mut of = word(self.runtime, interpreters);
        for _ in 0..MOST_INTERPRETERS {
            let Some(current) = of else { break };
            let mut at = word(current, threads);
            while let Some(record) = at.filter(|_| found.len() < MOST_THREADS) {
                // A thread that ends while it is read may lead anywhere.
                if word(record, interpreter) != Some(current) {
                    break;
                }
                if let Some(number) = word(record, number).and_then(|one| u32::try_from(one).ok()) {
                    found.push(Thread { number, record });
                }
                at = word(record, next_thread);
            }
            of = word(current, next_interpreter);
        }
        found
    }
}
