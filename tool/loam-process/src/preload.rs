//! Which library is preloaded, and how `LD_PRELOAD` is written.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::layout::{Layout, PartError, LIBRARY_NAME};
pub use crate::plain_path::{is_unquotable, quotable, LinkError};

/// Names the heap, so that `--library` need not be passed each time.
pub const LIBRARY_VARIABLE: &str = "LOAM_LIBRARY";

/// The heap to preload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Absolute path.
    pub path: PathBuf,
}

/// Why there is no heap to preload.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// The named library does not exist, or can not be read.
    #[error("the heap {path} (from {from}) can not be read: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What named it.
        from: &'static str,
        /// The system's words.
        reason: String,
    },
    /// The heap was not named, and is in none of the places.
    #[error("{0}, or name one with --library PATH or {LIBRARY_VARIABLE}")]
    Absent(#[from] PartError),
    /// `LD_PRELOAD` has no way to quote, and no link could be made.
    #[error(transparent)]
    Unquotable(#[from] LinkError),
}

/// Finds the heap: the one that the caller names, then the one that the environment names, then the
/// one beside this executable.
pub fn find_library(named: Option<&Path>, layout: &Layout) -> Result<Library, LibraryError> {
    let from_environment = env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty());
    let path = if let Some(path) = named {
        readable(path, "--library")?
    } else if let Some(path) = from_environment {
        readable(Path::new(&path), LIBRARY_VARIABLE)?
    } else {
        readable(&layout.find(LIBRARY_NAME)?, "beside this executable")?
    };
    Ok(Library {
        path: quotable(path)?,
    })
}

fn readable(path: &Path, from: &'static str) -> Result<PathBuf, LibraryError> {
    let unreadable = |reason: String| LibraryError::Unreadable {
        path: path.display().to_string(),
        from,
        reason,
    };
    let meta = path
        .metadata()
        .map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() {
        return Err(unreadable("not a regular file".to_owned()));
    }
    std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    // The path is absolute, because the program may change its folder before it starts others.
    // Links are kept, so that the path in /proc/PID/maps and in messages is, if possible, the one
    // that the user knows.
    std::path::absolute(path).map_err(|error| unreadable(error.to_string()))
}

/// The value of `LD_PRELOAD`: the heap first, because the first definition of `malloc` wins, and
/// then the earlier value.
pub fn with_ours_first(library: &Path, existing: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let existing = existing.unwrap_or_default();
    let others = existing
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'))
        .filter(|entry| !entry.is_empty() && *entry != library.as_os_str().as_bytes());
    for entry in others {
        value.push(":");
        value.push(OsStr::from_bytes(entry));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_comes_first_and_the_others_stay() {
        let ours = Path::new("/b/libloam.so");
        assert_eq!(with_ours_first(ours, None), "/b/libloam.so");
        let both = with_ours_first(ours, Some("/x/libfake.so /y/other.so".into()));
        assert_eq!(both, "/b/libloam.so:/x/libfake.so:/y/other.so");
    }

    #[test]
    fn our_library_is_not_named_twice() {
        let ours = Path::new("/b/libloam.so");
        assert_eq!(
            with_ours_first(ours, Some("/x.so:/b/libloam.so".into())),
            "/b/libloam.so:/x.so"
        );
    }

    #[test]
    fn a_named_heap_that_is_missing_says_who_named_it() {
        let layout = Layout::of_executables([]);
        let error = find_library(Some(Path::new("/nowhere/l.so")), &layout)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/nowhere/l.so") && error.contains("--library"),
            "{error}"
        );
    }
}
