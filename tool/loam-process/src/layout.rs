//! The places of the heap, the tools and the workloads, in a build tree and when installed.
//!
//! In a build tree everything is under `build/`: `libloam.so`, `workloads/NAME`, `peers/NAME.so`,
//! and `loam` itself, which may be a link into cargo's folder. Installed, the library is in
//! `../lib` or `../lib/loam` seen from the executable, and the workloads in
//! `../lib/loam/workloads`. A tool of one file has its parts inside (`parts`), and takes no others.
//!
//! Only folders of the executable's own tree are searched, never the working directory or any other
//! ancestor. Files that are found here get preloaded into programs, so a `libloam.so` that was left
//! in `/tmp` must not count.

use std::env;
use std::path::{Path, PathBuf};

use thiserror::Error;

use loam_format::words;

use crate::parts::{Libc, Parts};

/// The file name of the heap.
pub const LIBRARY_NAME: &str = "libloam.so";
/// The file name of the library that tells another allocator's own figures; it lies beside the
/// heap.
pub const PEER_NAME: &str = "libpeer-counters.so";
/// The file name of the recorder, which lies beside the heap.
pub const RECORDER_NAME: &str = "libloam-record.so";
/// The file name of the replayer of traces, which is a program.
pub const REPLAYER_NAME: &str = "replay";

/// Why there is no part.
#[derive(Debug, Error)]
pub enum PartError {
    /// It is in none of the places.
    #[error("no {name} in {}; build it with `make build`", words::list(looked_at))]
    Absent {
        /// Its file name.
        name: &'static str,
        /// Folders.
        looked_at: Vec<String>,
    },
    /// It is not inside of this executable either.
    #[error(
        "this loam has no {name} for {libc}; take a package of docs/install.md, or `make build`"
    )]
    NotInside {
        /// Its file name.
        name: &'static str,
        /// For whose programs.
        libc: &'static str,
    },
    /// It is inside of this executable, and could not be unpacked.
    #[error(
        "{name} is inside of this loam, and could not be unpacked: {reason}; set TMPDIR to a \
         folder that you may write to, and whose files may be executed"
    )]
    NotUnpacked {
        /// Its file name.
        name: &'static str,
        /// The system's words.
        reason: String,
    },
}

/// The folders that belong to this executable, nearest first.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Folders that hold the executable, as invoked and as canonicalised.
    executable_dirs: Vec<PathBuf>,
    /// Whether this executable's own archive counts.
    is_running: bool,
    /// Whose programs the parts are for; none: this machine's.
    libc: Option<Libc>,
}

impl Layout {
    /// Finds the folders of the running executable.
    pub fn discover() -> Layout {
        let invoked = env::args_os()
            .next()
            .map(PathBuf::from)
            .and_then(resolve_invoked);
        let canonical = env::current_exe()
            .ok()
            .and_then(|path| path.canonicalize().ok());
        Layout {
            is_running: true,
            ..Layout::of_executables(invoked.into_iter().chain(canonical))
        }
    }

    /// The same, with parts for programs of a C library.
    pub fn for_libc(&self, libc: Libc) -> Layout {
        Layout {
            libc: Some(libc),
            ..self.clone()
        }
    }

    /// The layout around the given executables.
    pub fn of_executables(executables: impl IntoIterator<Item = PathBuf>) -> Layout {
        let mut executable_dirs: Vec<PathBuf> = Vec::new();
        for executable in executables {
            if let Some(dir) = executable.parent() {
                if !executable_dirs.iter().any(|known| known == dir) {
                    executable_dirs.push(dir.to_path_buf());
                }
            }
        }
        Layout {
            executable_dirs,
            is_running: false,
            libc: None,
        }
    }

    /// The path of a part: one of the `_NAME`s above. What is inside of this executable belongs to
    /// it, and comes first.
    pub fn find(&self, name: &'static str) -> Result<PathBuf, PartError> {
        if let Some(mut parts) = self.parts() {
            let libc = self.libc.unwrap_or_else(Libc::of_machine);
            let absent = || PartError::NotInside {
                name,
                libc: libc.name(),
            };
            let unpacked = parts.unpack(libc, name);
            let unpacked = unpacked.map_err(|error| PartError::NotUnpacked {
                name,
                reason: error.to_string(),
            })?;
            return unpacked.ok_or_else(absent);
        }
        let candidates = self.candidates(name);
        if let Some(found) = candidates.iter().find(|path| path.is_file()) {
            return Ok(found.clone());
        }
        let folders = candidates.iter().filter_map(|path| path.parent());
        Err(PartError::Absent {
            name,
            looked_at: folders.map(|dir| dir.display().to_string()).collect(),
        })
    }

    fn parts(&self) -> Option<Parts> {
        self.is_running.then(Parts::of_this_executable)?
    }

    /// Folders that may be the build folder: the executable's own folder, and the folder around
    /// cargo's.
    pub fn build_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        for dir in &self.executable_dirs {
            push_new(&mut dirs, dir.clone());
            // build/cargo/release/loam, or tool/target/release/loam with a plain `cargo build`.
            let Some(target) = dir.parent() else { continue };
            let Some(above) = target.parent() else {
                continue;
            };
            match target.file_name().and_then(|name| name.to_str()) {
                Some("cargo") => push_new(&mut dirs, above.to_path_buf()),
                Some("target") => {
                    if let Some(root) = above.parent() {
                        push_new(&mut dirs, root.join("build"));
                    }
                }
                _ => {}
            }
        }
        dirs
    }

    /// Places where a part may be, best first.
    fn candidates(&self, name: &str) -> Vec<PathBuf> {
        if name == REPLAYER_NAME {
            return self.replayer_candidates();
        }
        let mut candidates = Vec::new();
        for dir in &self.executable_dirs {
            push_new(&mut candidates, dir.join(name));
            if let Some(prefix) = dir.parent() {
                push_new(&mut candidates, prefix.join("lib").join(name));
                push_new(&mut candidates, prefix.join("lib/loam").join(name));
                let triplet = format!("lib/{}-linux-gnu", env::consts::ARCH);
                push_new(&mut candidates, prefix.join(triplet).join(name));
            }
        }
        for dir in self.build_dirs() {
            push_new(&mut candidates, dir.join(name));
        }
        candidates
    }

    /// Places where the workloads may be, best first.
    pub fn workload_dirs(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self
            .build_dirs()
            .into_iter()
            .map(|dir| dir.join("workloads"))
            .collect();
        for dir in &self.executable_dirs {
            if let Some(prefix) = dir.parent() {
                push_new(&mut dirs, prefix.join("lib/loam/workloads"));
            }
        }
        dirs
    }

    /// Places where the workloads for Windows may be, best first: `make windows` builds them.
    pub fn windows_workload_dirs(&self) -> Vec<PathBuf> {
        let dirs = self.build_dirs().into_iter();
        dirs.map(|dir| dir.join("windows/lab")).collect()
    }

    fn replayer_candidates(&self) -> Vec<PathBuf> {
        let mut candidates: Vec<PathBuf> = self
            .build_dirs()
            .into_iter()
            .map(|dir| dir.join("replayer/replay"))
            .collect();
        for dir in &self.executable_dirs {
            if let Some(prefix) = dir.parent() {
                push_new(&mut candidates, prefix.join("libexec/loam/replay"));
            }
        }
        candidates
    }

    /// Places where peers built from source may be, best first.
    pub fn peer_dirs(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self
            .build_dirs()
            .into_iter()
            .map(|dir| dir.join("peers"))
            .collect();
        for dir in &self.executable_dirs {
            if let Some(prefix) = dir.parent() {
                push_new(&mut dirs, prefix.join("lib/loam/peers"));
            }
        }
        dirs
    }

    /// The source tree that a build folder belongs to, if the executable runs from one.
    pub fn source_root(&self) -> Option<PathBuf> {
        self.build_dirs()
            .into_iter()
            .filter(|dir| dir.file_name().is_some_and(|name| name == "build"))
            .filter_map(|dir| dir.parent().map(Path::to_path_buf))
            .find(|root| root.join(".git").exists())
    }
}

/// The absolute path of `argv[0]`, with links kept: `build/loam` is a link, and the files beside
/// the link count.
fn resolve_invoked(argument: PathBuf) -> Option<PathBuf> {
    let path = if argument.components().count() > 1 || argument.is_absolute() {
        argument
    } else {
        which::which(&argument).ok()?
    };
    std::path::absolute(path).ok().filter(|path| path.exists())
}

fn push_new(paths: &mut Vec<PathBuf>, path: PathBuf) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_in_cargos_folder_finds_the_build_folder() {
        let layout = Layout::of_executables([PathBuf::from("/src/build/cargo/release/loam")]);
        assert!(layout.build_dirs().contains(&PathBuf::from("/src/build")));
        assert!(layout
            .candidates(LIBRARY_NAME)
            .contains(&PathBuf::from("/src/build/libloam.so")));
        assert!(layout
            .workload_dirs()
            .contains(&PathBuf::from("/src/build/workloads")));
    }

    #[test]
    fn an_installed_binary_looks_in_its_prefix_and_nowhere_else() {
        let layout = Layout::of_executables([PathBuf::from("/usr/bin/loam")]);
        let candidates = layout.candidates(LIBRARY_NAME);
        assert!(candidates.contains(&PathBuf::from("/usr/lib/libloam.so")));
        assert!(candidates.contains(&PathBuf::from("/usr/lib/loam/libloam.so")));
        assert!(candidates.iter().all(|path| path.starts_with("/usr")));
    }

    #[test]
    fn a_folder_is_named_once() {
        let twice = [PathBuf::from("/b/loam"), PathBuf::from("/b/loam")];
        assert_eq!(
            Layout::of_executables(twice).build_dirs(),
            vec![PathBuf::from("/b")]
        );
    }
}
