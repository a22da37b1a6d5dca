//! What can be learned about programs from outside, without stopping or preparing them: about a
//! file before it is started, and about a process while it runs.
//!
//! ```text
//! a file      layout, parts, preload (which heap) -> elf, script, privilege (can it be preloaded?)
//! a process   choose (PID, NAME or PATTERN), largest -> process (who it is) -> mappings
//!                 -> residence (where memory is), allocator (what it allocates with)
//!                 -> remote (its bytes) -> glibc (its heap)
//!                 -> container (what it may use)
//! newer kernels  queries, for mappings and pagemap
//! stacks      code (files as unwinding needs them) -> unwind (copied stacks), symbols (names)
//!             jit (names of code that was made at run time), python (its functions)
//! growth      perf (the kernel's samples) -> sites: stacks under which the heap grows
//! probes      on an allocator's functions, for short times -> sites: stacks whose blocks stay
//! itself      ending: how this process is asked to end
//! ```
//!
//! A process may hold up any look at it. So looks are done `apart`, and no more often than their
//! `budget` allows. Nothing here prints.

// Unsafe code is allowed in `queries`, `perf::system`, `probes::system` and `trim::system` alone.
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod allocator;
pub mod apart;
pub mod budget;
pub mod choose;
pub mod code;
pub mod container;
pub mod elf;
pub mod ending;
pub mod gently;
pub mod glibc;
pub mod growth;
pub mod held_files;
pub mod jit;
pub mod largest;
pub mod layout;
pub mod mappings;
pub mod named_places;
pub mod pagemap;
pub mod parts;
pub mod perf;
pub mod plain_path;
pub mod preload;
pub mod privilege;
pub mod probes;
pub mod process;
pub mod python;
mod queries;
pub mod remote;
pub mod residence;
pub mod rings;
pub mod runtimes;
pub mod script;
pub mod settings;
pub mod sites;
pub mod stacks;
pub mod symbols;
#[cfg(target_arch = "x86_64")]
pub mod trim;
pub mod untrusted;
pub mod unwind;
