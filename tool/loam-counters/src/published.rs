//! Images that programs publish (`LOAM_PUBLISH`, `formats/counters.md`): finds the image of a
//! process, and removes images that no living process holds.
//!
//! A living process holds a lock on its image. Process numbers do not show whether a process lives:
//! one of another namespace of numbers looks dead from here. Only the caller's own folders are
//! swept.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};

use loam_process::apart::step_to_file;
use loam_process::process::Pid;

use crate::image;
use crate::{read_memory, Passes, Snapshot};

/// The counters that the process publishes at present, if it publishes any.
pub fn published(pid: Pid) -> Option<Snapshot> {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("loam"));
    let temporary = Path::new("/tmp").join(format!("loam-{owner}"));
    runtime.into_iter().chain([temporary]).find_map(|path| {
        let folder = open_folder(&path, owner)?;
        sweep_now_and_then(&folder, owner);
        // The image is opened by the folder's descriptor, because the path may change its meaning
        // meanwhile.
        let image = Path::new("/proc/self/fd")
            .join(folder.as_raw_fd().to_string())
            .join(format!("{pid}.image"));
        step_to_file(&image);
        // A file of another user could contain anything.
        let is_own = std::fs::symlink_metadata(&image)
            .is_ok_and(|meta| meta.uid() == owner && meta.is_file());
        is_own.then(|| from_image(&image, pid)).flatten()
    })
}

/// Opens the folder. A link is refused, and so is a folder of another user or one that other users
/// may enter.
fn open_folder(path: &Path, owner: u32) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&folder).ok()?;
    (found.st_uid == owner && found.st_mode & 0o077 == 0).then_some(folder)
}

/// A program writes five images a second. An image older than this was left behind.
const OLDEST_IMAGE: Duration = Duration::from_secs(5);

pub(super) fn from_image(path: &Path, pid: Pid) -> Option<Snapshot> {
    let image = image::open(path).ok()?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let age = now.saturating_sub(Duration::from_nanos(image.taken));
    if image.pid != pid || age > OLDEST_IMAGE {
        return None;
    }
    let mut snapshot = read_memory(&image, image.block, Passes::One).ok()?;
    snapshot
        .notes
        .push("read from the image that the program publishes".to_owned());
    Some(snapshot)
}

/// Time between two sweeps. Chosen: a view asks ten times a second for each process.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
static SWEPT: Mutex<Option<Instant>> = Mutex::new(None);

fn sweep_now_and_then(folder: &OwnedFd, owner: u32) {
    if rustix::process::geteuid().as_raw() != owner {
        return;
    }
    let Ok(mut swept) = SWEPT.lock() else { return };
    if swept.is_some_and(|at| at.elapsed() < SWEEP_EVERY) {
        return;
    }
    *swept = Some(Instant::now());
    sweep(folder);
}

/// Removes images that no living process holds.
pub(super) fn sweep(folder: &OwnedFd) {
    let Ok(names) = Dir::read_from(folder) else {
        return;
    };
    for name in names.flatten() {
        let name = name.file_name();
        if name.to_str().is_ok_and(is_image) {
            // An image that can not be removed stays; the next sweep tries again.
            let _ = remove_unless_held(folder, name);
        }
    }
}

/// `4711.image`, or `4711.image.new` while it is being written.
fn is_image(name: &str) -> bool {
    let number = name.strip_suffix(".new").unwrap_or(name);
    let number = number.strip_suffix(".image").unwrap_or("");
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn remove_unless_held(folder: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // The file may have been replaced since it was opened. The file that now has the name must then
    // stay.
    let (found, named) = (
        rustix::fs::fstat(&file)?,
        rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?,
    );
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if is_file && (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino) {
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}
