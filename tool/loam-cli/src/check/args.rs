//! `loam check`: its arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use loam_process::process::Pid;

/// Say whether the replacement of malloc takes, in which modules, and what is unsafe.
///
/// For a running process, the dynamic linker's own tables are read: which module's malloc, free,
/// aligned functions and operator new and delete each loaded module really calls. The process is
/// not stopped. For a program, its files and those of its libraries are linked as the dynamic
/// linker would under `loam run`; nothing is executed, so what the program opens later can not be
/// seen: check the process then.
///
/// Exit code 0: every call goes to the heap. 1: something was found; each finding names its remedy.
/// 2: the program or process can not be examined.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The process's number, or a program: a path, or a name in PATH
    #[arg(value_name = "PROGRAM|PID")]
    target: OsString,

    /// The heap to preload into a program; without it `LOAM_LIBRARY`, then the one that belongs to
    /// this `loam`
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam check 1234             a running process, by its own tables
  loam check redis-server     a program, as `loam run` would start it
  loam check ./7              a program whose name is a number";

/// The target of a check.
#[derive(Debug, Clone)]
pub enum Target {
    /// A process.
    Process(Pid),
    /// A program as the caller wrote it.
    Program(OsString),
}

/// The resolved arguments of `check`.
#[derive(Debug)]
pub struct CheckOptions {
    /// The process or program to check.
    pub target: Target,
    /// The heap that the caller named; none: the default one.
    pub library: Option<PathBuf>,
    /// Whether to print JSON instead of text.
    pub json: bool,
}

impl CheckArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> CheckOptions {
        let number = self
            .target
            .to_str()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let pid = number
            .and_then(|text| text.parse::<Pid>().ok())
            .filter(|pid| *pid > 0);
        CheckOptions {
            target: pid.map_or(Target::Program(self.target), Target::Process),
            library: self.library,
            json: self.json,
        }
    }
}
