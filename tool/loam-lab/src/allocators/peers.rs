//! Peers that were built from source: `build/peers/NAME.so`, described by `NAME.json` beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The side file, which the build of the peers writes. Unknown keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SideFile {
    /// The allocator's name. The name of the file takes precedence.
    pub name: String,
    /// Version of the source.
    pub version: String,
    /// The source package.
    pub source: String,
    /// The shared object, if it is not the one beside this file.
    pub path: Option<PathBuf>,
    /// Settings that it needs.
    pub environment: BTreeMap<String, String>,
    /// `built` or `failed`.
    pub status: String,
    /// Why it failed, if it did.
    pub reason: Option<String>,
}

/// A peer as its folder shows it.
#[derive(Debug)]
pub enum Peer {
    /// There is a shared object.
    Built { path: PathBuf, side: SideFile },
    /// The build was tried and failed, or the side file is broken.
    Failed { reason: String },
    /// Nothing there.
    Absent,
}

/// Looks for a peer in the folders, first match wins.
pub fn find(name: &str, dirs: &[PathBuf]) -> Peer {
    for dir in dirs {
        let object = dir.join(format!("{name}.so"));
        let side_path = dir.join(format!("{name}.json"));
        let side = match read(&side_path) {
            Ok(side) => side,
            Err(reason) => return Peer::Failed { reason },
        };
        match side {
            Some(side) if side.status == "failed" => {
                let reason = side.reason.as_deref().unwrap_or("no reason given");
                return Peer::Failed {
                    reason: format!("its build failed: {reason}"),
                };
            }
            Some(side) => {
                // A path inside the side file may come from another machine, so the file beside it
                // takes precedence.
                let named = side.path.as_ref().map(|path| dir.join(path));
                let found = [Some(object), named]
                    .into_iter()
                    .flatten()
                    .find(|path| path.is_file());
                return match found {
                    Some(path) => Peer::Built { path, side },
                    None => Peer::Failed {
                        reason: format!("{} names a library that is gone", side_path.display()),
                    },
                };
            }
            None if object.is_file() => {
                return Peer::Built {
                    path: object,
                    side: SideFile::default(),
                };
            }
            None => {}
        }
    }
    Peer::Absent
}

fn read(path: &Path) -> Result<Option<SideFile>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Names of peers in the folders that the catalogue does not know. A new peer therefore needs no
/// code.
pub fn extra_names(dirs: &[PathBuf], is_known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names: Vec<String> = dirs
        .iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| {
            let path = entry.path();
            let is_side_file = path
                .extension()
                .is_some_and(|extension| extension == "json");
            let name = path.file_stem()?.to_str()?.to_owned();
            (is_side_file && !is_known(&name)).then_some(name)
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_built_failed_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_path_buf()];
        assert!(matches!(find("x", &dirs), Peer::Absent));

        fs::write(
            dir.path().join("x.json"),
            r#"{"status":"failed","reason":"no cmake"}"#,
        )
        .unwrap();
        assert!(matches!(find("x", &dirs), Peer::Failed { reason } if reason.contains("no cmake")));

        fs::write(
            dir.path().join("x.json"),
            r#"{"status":"built","version":"1","more":2}"#,
        )
        .unwrap();
        assert!(
            matches!(find("x", &dirs), Peer::Failed { .. }),
            "side file without library"
        );

        fs::write(dir.path().join("x.so"), "").unwrap();
        assert!(matches!(find("x", &dirs), Peer::Built { side, .. } if side.version == "1"));

        fs::write(dir.path().join("x.json"), "{").unwrap();
        assert!(matches!(find("x", &dirs), Peer::Failed { reason } if reason.contains("x.json")));
    }

    #[test]
    fn a_new_peer_is_listed_without_code() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("novel.json"), "{}").unwrap();
        fs::write(dir.path().join("known.json"), "{}").unwrap();
        assert_eq!(
            extra_names(&[dir.path().to_path_buf()], |n| n == "known"),
            ["novel"]
        );
    }
}
