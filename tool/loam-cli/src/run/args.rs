//! `loam run`: its arguments, resolved into `RunOptions`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Run any program on the Loam heap.
///
/// The program's `malloc` family and `operator new` are replaced by preloading `libloam.so`;
/// nothing is rebuilt. Before the program starts its executable file is inspected, and programs
/// that can not take a preload are refused with the reason: static executables, those that run with
/// raised privileges, other architectures, and those that bring an allocator of their own. Input,
/// output, signals and the exit code are the program's own. Programs that it starts inherit the
/// heap.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The heap to preload; without it `LOAM_LIBRARY`, then the one that belongs to this `loam`
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// Another allocator instead: a NAME of `loam allocators`, or PATH, each with :VARIABLE=VALUE
    /// settings
    ///
    /// What it tells of itself is published as counters for `stats`, `top`, `export` and `doctor`;
    /// what it does not tell is not there. A thread asks it four times a second. jemalloc and
    /// tcmalloc tell most, mimalloc what it has committed, others nothing.
    #[arg(long, value_name = "NAME", conflicts_with = "library")]
    allocator: Option<String>,

    /// Start the program even where the preload can not take
    #[arg(long)]
    force: bool,

    /// Only say whether the program can run on the heap; start nothing (exit code 1 if it can not)
    #[arg(long, conflicts_with = "force")]
    check: bool,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// The resolved arguments of `run`.
#[derive(Debug)]
pub struct RunOptions {
    /// The heap that the caller named; none: the default one.
    pub library: Option<PathBuf>,
    /// The allocator to run on instead.
    pub allocator: Option<String>,
    /// Whether to start a program even if the preload can not work.
    pub force: bool,
    /// Whether to start nothing.
    pub check: bool,
    /// The program as the caller wrote it.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl RunArgs {
    /// Resolves the arguments, and separates the program from its own arguments.
    pub fn resolve(self) -> RunOptions {
        let mut command = self.command.into_iter();
        RunOptions {
            library: self.library,
            allocator: self.allocator,
            force: self.force,
            check: self.check,
            program: command.next().expect("clap requires a command"),
            arguments: command.collect(),
        }
    }
}
