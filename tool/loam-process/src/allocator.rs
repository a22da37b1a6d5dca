//! Names the allocator of a running program, by the libraries that are mapped into it.

use std::path::Path;

use crate::elf::{Image, OwnMalloc};
use crate::glibc;
use crate::layout::RECORDER_NAME;
use crate::mappings::Mapping;
use crate::process::Pid;

/// An allocator, as far as the mappings show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocator {
    /// Its common name.
    pub name: String,
    /// The file that contains it.
    pub file: String,
}

/// The file of an allocator that the program's own file contains.
const COMPILED_IN: &str = "compiled in";
/// The C library for which nothing of Loam is built.
const MUSL: &str = "musl's malloc";

/// The name for a program's own allocator that is not known.
const OWN: &str = "a malloc of its own";

impl Allocator {
    /// Whether a preloaded library comes before it.
    pub fn can_be_preceded(&self) -> bool {
        self.file != COMPILED_IN && self.name != MUSL
    }

    /// The name in a narrow column.
    pub fn short(&self) -> &str {
        match self.name.as_str() {
            OWN => "its own",
            name => name.strip_suffix(C_LIBRARY).unwrap_or(name),
        }
    }
}

/// The endings of names of allocators that are called after their library.
const C_LIBRARY: &str = "'s malloc";

/// Beginnings of file names, most telling first: a library that replaces malloc counts before the C
/// library, which every program has.
const LIBRARIES: [(&str, &str); 12] = [
    ("libloam", LOAM),
    ("libjemalloc", "jemalloc"),
    ("libmimalloc", "mimalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libsnmalloc", "snmalloc"),
    ("librpmalloc", "rpmalloc"),
    ("libtbbmalloc", "oneTBB's malloc"),
    ("libhoard", "Hoard"),
    ("ld-musl", MUSL),
    ("libc.so.6", GLIBC),
    ("libc-2.", GLIBC),
    // As Debian installs it. It stands after glibc's, whose name begins in the same way.
    ("libc.so", MUSL),
];
/// This project's heap.
pub const LOAM: &str = "Loam";
/// The C library of most systems.
pub const GLIBC: &str = "glibc's malloc";

/// The allocator whose library is loaded, if one is.
pub fn by_library(mappings: &[Mapping]) -> Option<Allocator> {
    // A debugger or a linker may map a library's file as data, without allocating with it.
    let loaded = || mappings.iter().filter(|mapping| mapping.executable);
    let library = |(start, name): &(&str, &str)| {
        let mut files = loaded()
            .filter_map(Mapping::file_name)
            // The recorder has the names of an allocator's functions and is none.
            .filter(|file| !file.starts_with(RECORDER_NAME));
        // Who builds an allocator may call its file `jemalloc-5.3.1.so`.
        let bare = start.strip_prefix("lib").unwrap_or(start);
        let found = files
            .find(|file| file.starts_with(start) || file.starts_with(bare) && file.contains(".so"));
        found.map(|file| Allocator {
            name: (*name).to_owned(),
            file: file.to_owned(),
        })
    };
    LIBRARIES.iter().find_map(library)
}

/// The allocator of the process, if it can be told. A process that shows Loam's counters is on
/// Loam, whatever the name of the library's file is.
pub fn of_process(pid: Pid, mappings: &[Mapping], has_counters: bool) -> Option<Allocator> {
    let mapped = by_library(mappings);
    let is_c_library = mapped
        .as_ref()
        .is_none_or(|allocator| allocator.name.ends_with(C_LIBRARY));
    if !is_c_library {
        return mapped;
    }
    if has_counters {
        return Some(Allocator {
            name: LIBRARIES[0].1.to_owned(),
            file: "found by its counters".to_owned(),
        });
    }
    // An allocator that is compiled into the program comes before the C library's.
    let image = Image::read(Path::new(&format!(
        "/proc/{}/exe",
        super::process::face(pid)
    )))
    .ok();
    let inside = image.as_ref().and_then(|image| image.compiled_in);
    let own = image
        .as_ref()
        .is_some_and(|image| image.own_malloc != OwnMalloc::None);
    let file = COMPILED_IN.to_owned();
    match (inside, mapped) {
        (Some(name), _) => Some(Allocator {
            name: name.to_owned(),
            file,
        }),
        // The file of a static program names its C library. Go's programs have none.
        (None, None)
            if image.as_ref().is_some_and(|image| !image.is_go)
                && glibc::version(pid, mappings).is_some() =>
        {
            Some(Allocator {
                name: GLIBC.to_owned(),
                file,
            })
        }
        (None, None) if own => Some(Allocator {
            name: OWN.to_owned(),
            file,
        }),
        (None, mapped) => mapped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings;

    #[test]
    fn this_process_allocates_with_what_its_libraries_say() {
        let pid = std::process::id() as Pid;
        let found = of_process(pid, &mappings::read_names(pid).unwrap(), false);
        assert!(found.is_some(), "the test program has a C library");
    }

    #[test]
    fn a_replacement_counts_before_the_c_library() {
        let named = |name: &str| Mapping {
            name: name.to_owned(),
            executable: true,
            ..Mapping::default()
        };
        let mut mappings = [
            named("/lib/libc.so.6"),
            named("/x/libjemalloc.so.2 (deleted)"),
        ];
        let found = of_process(-1, &mappings, false).unwrap();
        assert_eq!(
            (found.name.as_str(), found.file.as_str()),
            ("jemalloc", "libjemalloc.so.2")
        );
        let own_build = [named("/lib/libc.so.6"), named("/x/jemalloc-5.3.1.so")];
        let found = of_process(-1, &own_build, false).unwrap();
        assert_eq!(found.name, "jemalloc");
        let program = [named("/lib/libc.so.6"), named("/x/jemalloc-bench")];
        let found = of_process(-1, &program, false).unwrap();
        assert_eq!(
            found.name, "glibc's malloc",
            "a program's name says nothing"
        );
        mappings[1].executable = false;
        let found = of_process(-1, &mappings, false).unwrap();
        assert_eq!(found.name, "glibc's malloc", "the other one is only read");
        assert_eq!(of_process(-1, &[named("/bin/x")], false), None);
        let renamed = of_process(-1, &[named("/lib/libc.so.6")], true).unwrap();
        assert_eq!(renamed.name, "Loam");
        let recorded = [named("/lib/libloam-record.so"), named("/lib/libc.so.6")];
        let found = of_process(-1, &recorded, false).unwrap();
        assert_eq!(found.name, "glibc's malloc", "the recorder is no allocator");
    }
}
