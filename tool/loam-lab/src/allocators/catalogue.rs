//! The allocators that have a name here. Each has one row; a new allocator needs only a new row.

/// Where an allocator comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The C library's own.
    System,
    /// The heap of this project.
    Loam,
    /// A distribution's package.
    Package {
        /// The Debian package.
        debian: &'static str,
        /// File names under which the library may be installed, best first.
        sonames: &'static [&'static str],
    },
    /// Built from a source package of a language registry into `build/peers`.
    Peer {
        /// The source package.
        source: &'static str,
    },
}

/// One allocator that has a name here.
#[derive(Debug)]
pub struct Known {
    /// What `--allocators` calls it.
    pub name: &'static str,
    /// Other names that are understood.
    pub aliases: &'static [&'static str],
    /// What people call it.
    pub title: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Settings that it needs to work as a preload.
    pub environment: &'static [(&'static str, &'static str)],
    /// Settings with which it trades speed for memory, as its own documentation advises.
    pub memory: &'static [(&'static str, &'static str)],
}

const JEMALLOC_MEMORY: &[(&str, &str)] = &[("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")];
const MIMALLOC_MEMORY: &[(&str, &str)] = &[("MIMALLOC_PURGE_DELAY", "0")];
const TCMALLOC_MEMORY: &[(&str, &str)] = &[("TCMALLOC_RELEASE_RATE", "10")];

/// All of them, in the order in which they are listed and measured.
pub const KNOWN: &[Known] = &[
    Known {
        name: "system",
        aliases: &["glibc", "libc", "default"],
        title: "the system's malloc",
        origin: Origin::System,
        environment: &[],
        memory: &[("MALLOC_ARENA_MAX", "2")],
    },
    Known {
        name: "loam",
        aliases: &["libloam"],
        title: "Loam",
        origin: Origin::Loam,
        environment: &[],
        memory: &[],
    },
    Known {
        name: "jemalloc",
        aliases: &["libjemalloc2"],
        title: "jemalloc",
        origin: Origin::Package {
            debian: "libjemalloc2",
            sonames: &["libjemalloc.so.2"],
        },
        environment: &[],
        memory: JEMALLOC_MEMORY,
    },
    Known {
        name: "mimalloc",
        aliases: &["libmimalloc2.0"],
        title: "mimalloc",
        origin: Origin::Package {
            debian: "libmimalloc2.0",
            sonames: &["libmimalloc.so.2.0", "libmimalloc.so.2", "libmimalloc.so.3"],
        },
        environment: &[],
        memory: MIMALLOC_MEMORY,
    },
    Known {
        name: "tcmalloc",
        aliases: &["gperftools", "libtcmalloc-minimal4"],
        title: "gperftools tcmalloc",
        origin: Origin::Package {
            debian: "libtcmalloc-minimal4",
            sonames: &["libtcmalloc_minimal.so.4"],
        },
        environment: &[],
        memory: TCMALLOC_MEMORY,
    },
    Known {
        name: "tbbmalloc",
        aliases: &["tbb", "libtbbmalloc2"],
        title: "oneTBB tbbmalloc",
        origin: Origin::Package {
            debian: "libtbbmalloc2",
            sonames: &["libtbbmalloc_proxy.so.2"],
        },
        environment: &[],
        memory: &[],
    },
    Known {
        name: "jemalloc-5.3.1",
        aliases: &[],
        title: "jemalloc 5.3.1",
        origin: Origin::Peer {
            source: "crate tikv-jemalloc-sys",
        },
        environment: &[],
        memory: JEMALLOC_MEMORY,
    },
    Known {
        name: "mimalloc3",
        aliases: &[],
        title: "mimalloc 3",
        origin: Origin::Peer {
            source: "crate libmimalloc-sys",
        },
        environment: &[],
        memory: MIMALLOC_MEMORY,
    },
    Known {
        name: "mimalloc2",
        aliases: &[],
        title: "mimalloc 2",
        origin: Origin::Peer {
            source: "crate libmimalloc-sys",
        },
        environment: &[],
        memory: MIMALLOC_MEMORY,
    },
    Known {
        name: "snmalloc",
        aliases: &[],
        title: "snmalloc",
        origin: Origin::Peer {
            source: "crate snmalloc-sys",
        },
        environment: &[],
        memory: &[],
    },
    Known {
        name: "tcmalloc-google",
        aliases: &[],
        title: "Google tcmalloc",
        origin: Origin::Peer {
            source: "crate libtcmalloc-sys",
        },
        // rseq serves either its per-CPU caches or the C library's own use, not both.
        environment: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
        memory: &[],
    },
    Known {
        name: "rpmalloc",
        aliases: &[],
        title: "rpmalloc",
        origin: Origin::Peer {
            source: "crate rpmalloc-sys",
        },
        environment: &[],
        memory: &[],
    },
];

/// The allocator of that name or alias.
pub fn find(name: &str) -> Option<&'static Known> {
    KNOWN
        .iter()
        .find(|known| known.name == name || known.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_or_alias_means_two_allocators() {
        let mut names: Vec<&str> = KNOWN
            .iter()
            .flat_map(|k| std::iter::once(k.name).chain(k.aliases.iter().copied()))
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn aliases_lead_to_the_name() {
        assert_eq!(find("glibc").unwrap().name, "system");
        assert!(find("gibc").is_none());
    }
}
