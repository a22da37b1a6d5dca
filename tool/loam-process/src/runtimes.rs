//! The run-time system of a language that a process contains, by its files. Such a system has a
//! heap of its own, in private mappings beside malloc's.

use std::path::Path;

use crate::elf::Image;
use crate::mappings::Mapping;
use crate::process::{face, Pid};

/// A run-time system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime {
    /// The beginnings of its files' names.
    files: &'static [&'static str],
    /// Its name in a sentence.
    pub name: &'static str,
    /// The name of its private memory in a table.
    pub heap: &'static str,
    /// When its heap gets smaller. Until then garbage looks like a leak.
    pub garbage: Garbage,
    /// Who can tell what its heap holds.
    pub next_step: &'static str,
}

/// When a run-time frees what nobody uses any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Garbage {
    /// At once, by counts of references: what grows is held.
    AtOnce,
    /// When its heap has grown by a share of what it holds: it levels off soon.
    BySize,
    /// When a part of the machine's memory is full: it may grow for hours and hold nothing.
    ByRoom,
}

/// Known run-time systems. A program may contain several: the first one counts.
const RUNTIMES: [Runtime; 8] = [
    Runtime {
        files: &["libjvm.so"],
        name: "the Java virtual machine",
        heap: "the Java virtual machine's own heap",
        garbage: Garbage::ByRoom,
        next_step: "`jcmd PID GC.heap_info` and `jcmd PID GC.class_histogram` say what it holds; \
                    -Xmx bounds it",
    },
    Runtime {
        files: &["libcoreclr.so", "libclrjit.so"],
        name: ".NET",
        heap: ".NET's own heap",
        garbage: Garbage::ByRoom,
        next_step: "`dotnet-counters` and `dotnet-gcdump collect -p PID` say what it holds; \
                    DOTNET_GCHeapHardLimit bounds it",
    },
    Runtime {
        files: &[
            "node",
            "libnode.so",
            "deno",
            "electron",
            "chrome",
            "libv8.so",
        ],
        name: "V8",
        heap: "V8's own heap (JavaScript)",
        garbage: Garbage::BySize,
        next_step: "take two heap snapshots and compare them (`node \
                    --heapsnapshot-signal=SIGUSR2`, or the inspector); --max-old-space-size bounds \
                    it",
    },
    Runtime {
        files: &["python3", "python2", "python", "libpython"],
        name: "Python",
        heap: "Python's own pools of small objects",
        garbage: Garbage::AtOnce,
        next_step: "tracemalloc (`python3 -X tracemalloc`) or memray says which lines allocate \
                    what grows; PYTHONMALLOC=malloc puts these objects into malloc's heap, where \
                    sizes are seen",
    },
    Runtime {
        files: &["libruby", "ruby"],
        name: "Ruby",
        heap: "Ruby's own pages of objects",
        garbage: Garbage::BySize,
        next_step: "ObjectSpace.trace_object_allocations and ObjectSpace.dump_all say what it \
                    holds",
    },
    Runtime {
        files: &["beam.smp", "beam"],
        name: "Erlang",
        heap: "Erlang's own carriers",
        garbage: Garbage::BySize,
        next_step: "erlang:memory() and recon_alloc say which of its allocators holds it",
    },
    Runtime {
        files: &["php", "libphp"],
        name: "PHP",
        heap: "PHP's own heap",
        garbage: Garbage::AtOnce,
        next_step: "memory_get_usage() along the script says where it grows; memory_limit bounds \
                    it",
    },
    GO,
];

/// A program of Go has no file of its own: the place of its heap says so, or its image.
const GO: Runtime = Runtime {
    files: &[],
    name: "Go",
    heap: "Go's own heap",
    garbage: Garbage::BySize,
    next_step: "`go tool pprof` of its heap profile (net/http/pprof) says what it holds; \
                GOMEMLIMIT bounds it",
};

/// Go's heap begins at this address on 64-bit machines, until Go 1.25. Later it has any place.
const GO_HEAP: u64 = 0xc0_0000_0000;

/// The run-time system of a process with these mappings.
pub fn of_process(pid: Pid, mappings: &[Mapping]) -> Option<Runtime> {
    let is_go = || Image::is_of_go(Path::new(&format!("/proc/{}/exe", face(pid))));
    of(mappings).or_else(|| is_go().then_some(GO))
}

/// The run-time system in these mappings.
pub fn of(mappings: &[Mapping]) -> Option<Runtime> {
    let code = || {
        let code = mappings.iter().filter(|mapping| mapping.executable);
        code.filter_map(Mapping::file_name)
    };
    // `python3` is a name, and so is `python3.11`; `nodeinfo` is another program.
    let is_it = |file: &str, start: &&str| {
        file.strip_prefix(*start)
            .is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_ascii_alphabetic()))
    };
    let known = RUNTIMES
        .iter()
        .find(|runtime| code().any(|file| runtime.files.iter().any(|start| is_it(file, start))));
    let is_go = || {
        let at = |mapping: &Mapping| mapping.start == GO_HEAP && mapping.inode == 0;
        let named = |mapping: &Mapping| mapping.name.starts_with("[anon: Go");
        mappings.iter().any(|mapping| at(mapping) || named(mapping))
    };
    known.copied().or_else(|| is_go().then_some(GO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> Option<&'static str> {
        let mappings: Vec<Mapping> = files
            .iter()
            .map(|file| Mapping {
                name: (*file).to_owned(),
                executable: true,
                ..Mapping::default()
            })
            .collect();
        of(&mappings).map(|runtime| runtime.name)
    }

    #[test]
    fn a_run_time_is_known_by_its_files() {
        assert_eq!(found(&["/usr/bin/python3.11"]), Some("Python"));
        assert_eq!(
            found(&["/usr/sbin/x", "/lib/libpython3.12.so.1.0"]),
            Some("Python")
        );
        assert_eq!(found(&["/opt/node"]), Some("V8"));
        let java = ["/usr/bin/java", "/lib/server/libjvm.so"];
        assert_eq!(found(&java), Some("the Java virtual machine"));
        for other in ["/usr/bin/nodeinfo", "/usr/bin/pythonista", "/bin/cat"] {
            assert_eq!(found(&[other]), None, "{other}");
        }
    }

    #[test]
    fn go_is_known_by_the_place_of_its_heap() {
        let heap = Mapping {
            start: GO_HEAP,
            end: GO_HEAP + (4 << 20),
            ..Mapping::default()
        };
        assert_eq!(of(&[heap]).map(|runtime| runtime.name), Some("Go"));
    }
}
