//! `loam run`: starts a program with the heap preloaded, and reports beforehand if that can not
//! work.
//!
//! ```text
//! find libloam.so (or another allocator: `peer`) -> resolve COMMAND in PATH
//!                 -> inspect its file (for a script, its interpreter's)
//!                 -> refuse, or warn -> LD_PRELOAD=libloam.so[:what was there] exec COMMAND
//! ```
//!
//! The loader ignores a preload that it can not use, and starts the program all the same, at best
//! with a line on standard error. The user would then believe that the program runs on the heap.
//! That is why the file is read first. `exec` replaces this process, so nothing in between could
//! alter signals, standard input or the exit code.

pub mod args;
mod peer;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use loam_check::command::{self, CommandError};
use loam_check::obstacles::{self, Obstacle, Severity};
use loam_process::layout::Layout;
use loam_process::{elf, preload};

use crate::exit::{Coded, Exit};
use crate::output;
use args::RunOptions;

/// Runs the verb. It returns only if the program was not started.
pub fn run(options: RunOptions, layout: &Layout) -> Result<Exit> {
    if let Some(name) = &options.allocator {
        return peer::run(&options, name, layout);
    }
    let program = resolve_command(&options.program)?;
    let layout = layout_for(layout, &program, &options.arguments)?;
    let library = preload::find_library(options.library.as_deref(), &layout)?;
    if options.check {
        let heap = image_of(&library.path)?;
        let obstacles = obstacles::examine(&program, &options.arguments, &heap)?;
        return check(&program, &library.path, &obstacles);
    }
    require_preloadable(
        &program,
        &options.arguments,
        &library.path,
        options.force,
        "run on the heap",
        "loam run",
    )?;
    let preload = preload::with_ours_first(&library.path, std::env::var_os("LD_PRELOAD"));
    Err(exec(&program, &options, &[("LD_PRELOAD".into(), preload)]))
}

/// The layout with the parts that fit the program's C library.
pub fn layout_for(layout: &Layout, program: &Path, arguments: &[OsString]) -> Result<Layout> {
    Ok(layout.for_libc(obstacles::libc_of(program, arguments)?))
}

fn image_of(library: &Path) -> Result<elf::Image> {
    elf::Image::read(library).with_context(|| format!("{} can not be preloaded", library.display()))
}

/// Whether a library can be preloaded into a program. If it can not, this is an error unless
/// `force` is set: `deed` names what the program can not do then, and `verb` the user's command. If
/// the preload may work only in part, there is a warning.
pub fn require_preloadable(
    program: &Path,
    arguments: &[OsString],
    library: &Path,
    force: bool,
    deed: &str,
    verb: &str,
) -> Result<()> {
    let obstacles = obstacles::examine(program, arguments, &image_of(library)?)?;
    if is_refused(&obstacles) && !force {
        bail!(refusal(program, &obstacles, deed, verb));
    }
    for obstacle in &obstacles {
        output::print_warning(&obstacle.sentence());
    }
    Ok(())
}

fn is_refused(obstacles: &[Obstacle]) -> bool {
    obstacles
        .iter()
        .any(|obstacle| obstacle.severity == Severity::Refuse)
}

fn check(program: &Path, library: &Path, obstacles: &[Obstacle]) -> Result<Exit> {
    let refused = is_refused(obstacles);
    let (shown, heap) = (output::path(program), output::path(library));
    let mut text = String::new();
    if obstacles.is_empty() {
        text += &format!("{shown} can run on {heap}\n");
    } else if refused {
        text += &format!("{shown} can not run on {heap}:\n");
    } else {
        text += &format!("{shown} can run on {heap}, but:\n");
    }
    for obstacle in obstacles {
        text += &format!("  {}\n", obstacle.sentence());
    }
    output::write_stdout(&text)?;
    Ok(if refused { Exit::Finding } else { Exit::Done })
}

fn refusal(program: &Path, obstacles: &[Obstacle], deed: &str, verb: &str) -> String {
    let mut message = format!(
        "{} was not started: it can not {deed}.",
        output::path(program)
    );
    for obstacle in obstacles
        .iter()
        .filter(|obstacle| obstacle.severity == Severity::Refuse)
    {
        message += &format!("\n  {}", obstacle.sentence());
    }
    message +=
        &format!("\n  (`{verb} --force` starts it all the same, on the allocator that it has.)");
    message
}

/// Finds the command as `execvp` would. The errors have the shell's exit codes.
pub fn resolve_command(program: &OsStr) -> Result<PathBuf> {
    Ok(command::resolve(program).map_err(coded)?)
}

/// The reason why the system did not start an existing program.
pub fn not_started(program: &Path, error: &std::io::Error) -> anyhow::Error {
    coded(command::not_started(program, error)).into()
}

fn coded(error: CommandError) -> Coded {
    let exit = match error {
        CommandError::NotFound(_) => Exit::NotFound,
        CommandError::NotExecutable(_) => Exit::NotExecutable,
    };
    Coded {
        exit,
        message: error.to_string(),
    }
}

fn exec(
    program: &Path,
    options: &RunOptions,
    environment: &[(OsString, OsString)],
) -> anyhow::Error {
    let error = Command::new(program)
        // The program gets the name that the caller wrote, because multi-call binaries choose their
        // function by it.
        .arg0(&options.program)
        .args(&options.arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .exec();
    not_started(program, &error)
}
