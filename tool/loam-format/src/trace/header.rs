//! The parts of a trace in JSON: the header, the processes and their ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was recorded, on which machine, and with which tool. It is the first chunk of a trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the tool that wrote the trace.
    pub tool: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The directory in which the command was started.
    pub directory: String,
    /// The time of the start, RFC 3339.
    pub started: String,
    /// The machine's own name; empty: not recorded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The machine's name for its processor architecture (`x86_64`, `aarch64`).
    pub architecture: String,
    /// The processor.
    pub cpu: String,
    /// Processors that the program may use.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The system and its version.
    pub kernel: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Settings of transparent huge pages, by file name.
    pub huge_pages: BTreeMap<String, String>,
    /// Limits of the control group, by file name.
    pub cgroup: BTreeMap<String, String>,
    /// Environment variables that allocators read.
    pub environment: BTreeMap<String, String>,
    /// Average requested bytes between two blocks with a recorded stack; 0: no stacks. A block of
    /// `s` bytes was chosen with probability `1 - exp(-s / stack_bytes)`.
    #[serde(skip_serializing_if = "is_none")]
    pub stack_bytes: u64,
    /// What the blocks of a sampled trace are, in words; empty: all blocks that there were.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sampled: String,
    /// Whether stacks say how many blocks they stand for. Such a trace has version 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// The unit of times.
    pub clock: Clock,
    /// The recording that the trace was imported from, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The recording that a trace was imported from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// Its format and version, in words.
    pub format: String,
    /// Its file.
    pub file: String,
    /// The data of the program that it lacks, as parts of a list. A replay of such a trace can not
    /// be checked.
    pub lost: Vec<String>,
}

fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

/// The unit of times, and their source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Nanoseconds of a unit of time in the file.
    pub unit_ns: u64,
    /// The clock of the events (`tsc`, `cntvct_el0`, `CLOCK_MONOTONIC`).
    pub source: String,
    /// Its ticks per second; 0 if it does not tick.
    pub ticks_per_second: u64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            unit_ns: 1_024,
            source: "CLOCK_MONOTONIC".into(),
            ticks_per_second: 0,
        }
    }
}

/// How a stream began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The command was started.
    #[default]
    Start,
    /// Its parent forked. The process began with its parent's blocks.
    Fork,
    /// A process became another program.
    Exec,
    /// Recording began while the process ran.
    Attach,
}

/// A stream, which is one process image. It is written again when more is known; the last version
/// counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number in the system.
    pub pid: u32,
    /// The stream that forked, or that this one replaced.
    pub parent: Option<u32>,
    /// How it began.
    pub how: How,
    /// Nanoseconds since the recording began.
    pub at: u64,
    /// The program's path.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The allocator's label in `loam allocators`, or its file.
    pub allocator: String,
    /// Its version, where it is known.
    pub allocator_version: Option<String>,
    /// The settings that it was given.
    pub allocator_settings: BTreeMap<String, String>,
    /// Files that are mapped as code. Frames refer to them by index. The list only grows.
    pub modules: Vec<Module>,
    /// The types of sampled blocks that lived at the end, by stack, where they were looked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Stay>,
}

/// Blocks of one type under one stack, which lived at the end. Estimates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stay {
    /// The stack's innermost frame.
    pub frame: Option<u64>,
    /// Whether frames further out are missing.
    pub cut: bool,
    /// The type, or in parentheses what the bytes look like.
    pub kind: String,
    /// Blocks.
    pub blocks: f64,
    /// Bytes.
    pub bytes: f64,
    /// Twice the standard error of the bytes.
    pub error: f64,
}

/// A mapped file of code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// The linker's build-id, in hexadecimal.
    pub build_id: Option<String>,
    /// Of a file without a build id: the CRC-32 of its bytes, in hexadecimal, and their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The address at which it begins.
    pub start: u64,
    /// The address at which it ends.
    pub end: u64,
    /// The offset in the file of the byte at `start`.
    pub offset: u64,
    /// Functions at addresses of frames, if the recording named them: an imported one, those in
    /// files that nobody finds later, those whose code was made at run time (the module `//jit`).
    /// They are in ascending order of addresses. If one address has several functions, the
    /// innermost inlined one comes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Named>,
}

/// The function at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    /// The address, as in frames.
    pub address: u64,
    /// The function's name.
    pub name: String,
    /// The source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in the source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A moment that the program marked with a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// Number of events of the stream before it.
    pub event: u64,
    /// The thread that set the mark.
    pub thread: u32,
    /// Its name.
    pub name: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The process became another program.
    Exec,
    /// Recording stopped before the process ended.
    Running,
    /// The end was not recorded.
    #[default]
    Unknown,
}

/// The end of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// How the process ended.
    pub ended: Ended,
    /// Nanoseconds since the recording began.
    pub at: u64,
    /// Events written.
    pub events: u64,
    /// Events that were not recorded.
    pub dropped: u64,
    /// Why the process ended or why recording stopped early, in words.
    pub reason: Option<String>,
}
