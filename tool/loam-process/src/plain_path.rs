//! Makes paths that `LD_PRELOAD` can hold, for libraries whose own path it can not hold.
//!
//! Blanks and colons end an entry of `LD_PRELOAD`, and `$ORIGIN`, `$LIB` and `${PLATFORM}` are
//! replaced. There is no way to quote them. So a library below such a folder gets a link in a
//! folder of this user:
//!
//! ```text
//! /tmp/loam-UID/HASH-OF-THE-PATH/libloam.so -> /a path/with blanks/libloam.so
//! ```
//!
//! A link is used only if the folder belongs to this user and no other user may write to it,
//! because the target of the link is preloaded. Programs that another user starts may follow the
//! link.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a path could not be made plain.
#[derive(Debug, Error)]
#[error(
    "the path {} contains a blank, a colon or a $, which the dynamic linker does not take in \
     LD_PRELOAD, and no link to it could be made in {}: {reason}; copy the file to a plain path",
    path.display(),
    folder.display()
)]
pub struct LinkError {
    path: PathBuf,
    folder: PathBuf,
    reason: String,
}

/// Whether `LD_PRELOAD` would cut the path in two, or replace `$ORIGIN`, `$LIB` or `${PLATFORM}` in
/// it.
pub fn is_unquotable(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().any(|byte| matches!(byte, b' ' | b':' | b'$'))
}

/// The path itself, or the path of a link to it.
pub fn quotable(path: PathBuf) -> Result<PathBuf, LinkError> {
    if !is_unquotable(&path) {
        return Ok(path);
    }
    let user = rustix::process::geteuid().as_raw();
    link_in(
        &std::env::temp_dir().join(format!("loam-{user}")),
        &path,
        user,
    )
}

fn link_in(folder: &Path, path: &Path, user: u32) -> Result<PathBuf, LinkError> {
    let error = |reason: String| LinkError {
        path: path.to_owned(),
        folder: folder.to_owned(),
        reason,
    };
    if is_unquotable(folder) {
        return Err(error("that path has such characters too".to_owned()));
    }
    let mut hash = DefaultHasher::new();
    path.hash(&mut hash);
    let inner = folder.join(format!("{:016x}", hash.finish()));
    for folder in [folder, &inner] {
        own(folder, user).map_err(error)?;
    }
    let link = inner.join(path.file_name().unwrap_or_default());
    if is_unquotable(&link) {
        return Err(error("the file's own name has such characters".to_owned()));
    }
    if fs::read_link(&link).is_ok_and(|target| target == path) {
        return Ok(link);
    }
    // The link is made beside its place and renamed, because another process may make the same one.
    let made = inner.join(format!(".{}", std::process::id()));
    let made_it = symlink(path, &made).and_then(|()| fs::rename(&made, &link));
    made_it.map_err(|reason| error(reason.to_string()))?;
    Ok(link)
}

/// Makes a folder. If it exists, checks that only the user may write to it.
pub fn own(folder: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o711).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.to_string()),
        _ => {}
    }
    let meta = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !meta.is_dir() || meta.uid() != user || meta.mode() & 0o022 != 0 {
        return Err(format!(
            "{} is not a folder that you alone may write to",
            folder.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_plain_path_stays_as_it_is() {
        let path = PathBuf::from("/usr/lib/libloam.so");
        assert_eq!(quotable(path.clone()).unwrap(), path);
    }

    #[test]
    fn a_path_that_ld_preload_would_change_gets_a_plain_link() {
        let user = rustix::process::geteuid().as_raw();
        for name in ["with blank", "a:b", "$ORIGIN", "${LIB}", "price$"] {
            let dir = tempfile::tempdir().unwrap();
            let library = dir.path().join(name).join("libloam.so");
            fs::create_dir(library.parent().unwrap()).unwrap();
            fs::write(&library, b"x").unwrap();
            let folder = dir.path().join("links");
            let link = link_in(&folder, &library, user).unwrap();
            assert!(!is_unquotable(&link), "{link:?}");
            assert_eq!(fs::read(&link).unwrap(), b"x");
            assert_eq!(link_in(&folder, &library, user).unwrap(), link);
        }
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_replaced() {
        let user = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("a b.d/libloam.so");
        let folder = dir.path().join("links");
        let link = link_in(&folder, &library, user).unwrap();
        fs::remove_file(&link).unwrap();
        symlink("/etc/passwd", &link).unwrap();
        assert_eq!(link_in(&folder, &library, user).unwrap(), link);
        assert_eq!(fs::read_link(&link).unwrap(), library);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let user = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().unwrap();
        let library = Path::new("/a b/libloam.so");
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let error = link_in(&open, library, user).unwrap_err().to_string();
        assert!(
            error.contains("LD_PRELOAD") && error.contains("you alone"),
            "{error}"
        );
        let linked = dir.path().join("linked");
        symlink("/tmp", &linked).unwrap();
        assert!(link_in(&linked, library, user).is_err());
        assert!(link_in(&dir.path().join("of another"), library, user + 1).is_err());
    }
}
