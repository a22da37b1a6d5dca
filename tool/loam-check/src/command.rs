//! A command as `execvp` takes it: which file it is, or why it can not be started.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use loam_format::plain;
use loam_process::{elf, script};

/// Why a command can not be started, as a shell distinguishes it.
#[derive(Debug, Error)]
pub enum CommandError {
    /// There is no such file, or what it needs is not there.
    #[error("{0}")]
    NotFound(String),
    /// It is there, and can not be executed.
    #[error("{0}")]
    NotExecutable(String),
}

/// Finds the command as `execvp` would.
pub fn resolve(program: &OsStr) -> Result<PathBuf, CommandError> {
    let not_found = |message: String| Err(CommandError::NotFound(message));
    let not_executable = |message: String| Err(CommandError::NotExecutable(message));
    let named = Path::new(program);
    let shown = plain::path(named);
    if program.is_empty() {
        return not_found("the command is an empty word".to_owned());
    }
    if let Ok(path) = which::which(program) {
        return match script::missing_interpreter(&path) {
            Some(message) => not_found(message),
            None => Ok(path),
        };
    }
    if !program.to_string_lossy().contains('/') {
        return not_found(format!("{shown}: command not found in PATH"));
    }
    match named.metadata() {
        Ok(meta) if meta.is_dir() => not_executable(format!("{shown}: is a folder")),
        Ok(_) => not_executable(format!("{shown}: not executable (see `chmod +x`)")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            not_found(format!("{shown}: no such file"))
        }
        Err(error) => not_executable(format!("{shown}: {error}")),
    }
}

/// The reason why the system did not start an existing program.
pub fn not_started(program: &Path, error: &io::Error) -> CommandError {
    let shown = plain::path(program);
    if error.kind() != io::ErrorKind::NotFound {
        return CommandError::NotExecutable(format!("{shown} could not be started: {error}"));
    }
    // The file exists, so its interpreter or loader must be missing.
    let image = elf::Image::read(program).ok();
    let loader = image.and_then(|image| image.interpreter);
    let loader = loader.filter(|path| !Path::new(path).exists());
    CommandError::NotFound(match loader {
        Some(path) => format!("{shown}: its dynamic linker {path} does not exist"),
        None => format!("{shown} could not be started: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_not_start_is_told_as_a_shell_tells_it() {
        assert!(resolve("sh".as_ref()).is_ok_and(|path| path.is_absolute()));
        let of = |program: &str| resolve(program.as_ref()).unwrap_err();
        let absent = of("no-such-command-anywhere");
        assert!(
            matches!(&absent, CommandError::NotFound(why) if why.ends_with("not found in PATH"))
        );
        assert!(matches!(of(""), CommandError::NotFound(_)));
        assert!(
            matches!(of("/no/such/file"), CommandError::NotFound(why) if why.contains("no such"))
        );
        assert!(matches!(of("/usr/"), CommandError::NotExecutable(why) if why.contains("folder")));
        assert!(matches!(of("/etc/passwd"), CommandError::NotExecutable(_)));
    }
}
