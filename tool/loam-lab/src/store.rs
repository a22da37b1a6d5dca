//! The results file on disk. It is checked before anything is measured, and replaced as a whole
//! after each trial.
//!
//! A new version is written beside the old one and renamed over it, so that the file is complete at
//! every moment: a crash, a full disk or a power failure costs one trial at most. During a run the
//! lab holds a lock on the file (`flock`), so that two runs can not replace each other's trials.
//! The kernel releases the lock when the process ends.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use thiserror::Error;

use loam_format::results::{Results, Unfit, FORMAT, VERSION};

/// Why a results file can not be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It can not be written.
    #[error("{path} can not be written: {source}{}", hint(source))]
    Unwritable {
        /// The file.
        path: String,
        /// The system's message.
        source: io::Error,
    },
    /// The name belongs to something other than a file.
    #[error("{path} exists and is {what}; choose another name")]
    Foreign {
        /// The file.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// Another run holds the file.
    #[error(
        "{path} is being written by another `loam lab`; wait for its end, or name another file \
         with --json"
    )]
    InUse {
        /// The file.
        path: String,
    },
    /// It can not be read.
    #[error("{path} can not be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's message.
        source: io::Error,
    },
    /// It is not a results file.
    #[error("{path} is no results file of `loam lab`: {reason}")]
    NotResults {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file comes from a newer version.
    #[error(
        "{path} has format version {found}; this loam understands up to {VERSION}: use a newer loam"
    )]
    TooNew {
        /// The file.
        path: String,
        /// Its version.
        found: u64,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room, or name another place"
        }
        io::ErrorKind::NotFound => "; the folder does not exist",
        _ => "",
    }
}

/// Where results or a report go.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// The locked file as it is now; none before `lock()`.
    held: RefCell<Option<File>>,
}

impl Store {
    /// Claims a place. Fails now if it could not be written later. `is_ours` recognises, by its
    /// first bytes, a file that may be replaced.
    pub fn claim(path: &Path, is_ours: impl Fn(&[u8]) -> bool) -> Result<Store, StoreError> {
        // A symbolic link stays a link: its target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let store = Store {
            path,
            held: RefCell::new(None),
        };
        match fs::metadata(&store.path) {
            Ok(meta) if meta.is_dir() => return Err(store.foreign("a folder")),
            Ok(meta) if meta.is_file() => {
                let head = read_head(&store.path).map_err(|error| store.unwritable(error))?;
                if !head.is_empty() && !is_ours(&head) {
                    return Err(store.foreign("not something that `loam lab` wrote"));
                }
            }
            // A device or a pipe: only writing shows whether it accepts data.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(store.unwritable(error)),
        }
        // As large as an empty results file, so that a full disk is found now.
        store
            .try_out(&[b' '; 4096])
            .map_err(|error| store.unwritable(error))?;
        Ok(store)
    }

    /// Keeps other runs from this file until this run ends. A device or a pipe has no lock.
    pub fn lock(&self) -> Result<(), StoreError> {
        if !self.is_replaceable() {
            return Ok(());
        }
        let held = self.try_lock().map_err(|error| match error {
            Errno::WOULDBLOCK => StoreError::InUse {
                path: self.path.display().to_string(),
            },
            other => self.unwritable(other.into()),
        })?;
        *self.held.borrow_mut() = Some(held);
        Ok(())
    }

    fn try_lock(&self) -> Result<File, Errno> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&self.path)
                .map_err(errno)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // The run before may have replaced the file after this run opened it.
            if is_at(&file, &self.path).map_err(errno)? {
                return Ok(file);
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file.
    pub fn replace(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        self.try_replace(write)
            .map_err(|error| self.unwritable(error))
    }

    fn try_replace(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        if !self.is_replaceable() {
            let mut file = BufWriter::new(File::options().write(true).open(&self.path)?);
            write(&mut file)?;
            return file.flush();
        }
        let mut file = BufWriter::new(beside(&self.path)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // The data is written before the name: after a power failure the name must not refer to an
        // empty file.
        file.as_file().sync_all()?;
        let mut held = self.held.borrow_mut();
        if held.is_some() {
            // The new file is locked before it gets the name, so that no other run can lock it
            // first. No other process knows this file.
            flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        }
        let file = file.persist(&self.path).map_err(|error| error.error)?;
        if held.is_some() {
            *held = Some(file);
        }
        Ok(())
    }

    /// Writes a test piece beside the file and removes it again.
    fn try_out(&self, piece: &[u8]) -> io::Result<()> {
        if self.is_replaceable() {
            let mut file = beside(&self.path)?;
            file.write_all(piece)?;
            return file.as_file().sync_all();
        }
        let mut file = File::options().write(true).open(&self.path)?;
        // /dev/full refuses even this line; a pipe or terminal gets an empty line.
        file.write_all(b"\n")
    }

    fn is_replaceable(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |meta| meta.is_file())
    }

    fn unwritable(&self, source: io::Error) -> StoreError {
        StoreError::Unwritable {
            path: self.path.display().to_string(),
            source,
        }
    }

    fn foreign(&self, what: &'static str) -> StoreError {
        StoreError::Foreign {
            path: self.path.display().to_string(),
            what,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A run that ended before its first trial removes its file.
        if let Some(file) = self.held.get_mut() {
            if file.metadata().is_ok_and(|meta| meta.len() == 0) {
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

/// Whether the path leads to this file.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let here = place(file.metadata()?);
    Ok(fs::metadata(path).is_ok_and(|there| place(there) == here))
}

/// A file in the same folder, which is renamed over `path` when it is complete, and is removed if
/// that never happens.
pub fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".loam-lab-")
        // The mode of a newly created file; the default allows only the owner.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(dir.unwrap_or(Path::new(".")))
}

fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read;
    let mut head = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether these are the first bytes of a results file.
pub fn looks_like_results(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).contains(FORMAT)
}

/// Writes results.
pub fn save(results: &Results, store: &Store) -> Result<(), StoreError> {
    store.replace(|file| {
        // Indented, for readability; the workloads' own lines stay one line each.
        serde_json::to_writer_pretty(&mut *file, results)?;
        file.write_all(b"\n")
    })
}

/// Reads results.
pub fn load(path: &Path) -> Result<Results, StoreError> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| StoreError::Unreadable {
        path: shown.clone(),
        source,
    })?;
    Results::parse(&text).map_err(|unfit| match unfit {
        Unfit::NotResults(reason) => StoreError::NotResults {
            path: shown,
            reason,
        },
        Unfit::TooNew(found) => StoreError::TooNew { path: shown, found },
    })
}
