//! A recording's folder: the drainer's page, and the files of the processes that find the folder in
//! their environment.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use loam_format::bytes::u64_at;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::process::{Files, Pid, Stat};

use super::layout::{session as page, CONTROL_BYTES, MAGIC, VERSION};
use super::{Image, ImageError};

/// Names the folder in the environment of recorded processes.
pub const SESSION_VARIABLE: &str = "LOAM_RECORD";

const FILE_NAME: &str = "session";

/// A recording's folder.
#[derive(Debug)]
pub struct Session {
    folder: PathBuf,
    file: File,
    known: BTreeSet<String>,
}

impl Session {
    /// Begins a recording in an empty folder; this process drains it.
    /// A stack is copied for each `stack_bytes` requested bytes, on average; 0: no stack is copied.
    pub fn begin(folder: &Path, drops_when_full: bool, stack_bytes: u64) -> io::Result<Session> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.join(FILE_NAME))?;
        // The system gives the lock back when this process ends. It means the same in every
        // namespace.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let own = Pid::try_from(std::process::id()).map_err(io::Error::other)?;
        let start = Stat::read(own).map_err(io::Error::other)?.started;
        let mut bytes = vec![0; CONTROL_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&std::process::id().to_le_bytes());
        bytes[16..24].copy_from_slice(&start.to_le_bytes());
        bytes[36..40].copy_from_slice(&u32::from(drops_when_full).to_le_bytes());
        bytes[page::STACK_BYTES..][..8].copy_from_slice(&stack_bytes.to_le_bytes());
        file.write_all_at(&bytes, 0)?;
        let session = Session {
            folder: folder.to_path_buf(),
            file,
            known: BTreeSet::new(),
        };
        session.beat()?;
        Ok(session)
    }

    /// Tells the recorded processes that this process drains the rings.
    pub fn beat(&self) -> io::Result<()> {
        self.file
            .write_all_at(&super::now().to_le_bytes(), page::HEARTBEAT)
    }

    /// Tells them that recording has ended: they go on without it.
    pub fn end(&self) -> io::Result<()> {
        self.file.write_all_at(&1_u32.to_le_bytes(), page::IS_OVER)
    }

    /// The images whose files were not known yet, in the order in which the files were made, and
    /// what could not be opened. Names tell no order: one occurs again once its file is removed.
    pub fn new_images(&mut self) -> io::Result<(Vec<Image>, Vec<ImageError>)> {
        let (mut images, mut errors) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| is_of_image(name)) else {
                continue;
            };
            if self.known.contains(name) {
                continue;
            }
            match Image::open(&self.folder.join(name)) {
                Ok(Some(image)) => images.push(image),
                Ok(None) => continue,
                Err(error) => errors.push(error),
            }
            self.known.insert(name.to_owned());
        }
        images.sort_by_key(|image| image.moment().1);
        Ok((images, errors))
    }

    /// Removes a drained file.
    pub fn remove(&mut self, path: &Path) {
        // It may be removed already. Its name may occur again: the program that the process becomes
        // by exec counts from 0 again.
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(super::maps_of(path));
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            self.known.remove(name);
        }
    }

    /// Whether there is a process of the recording that has no file yet: its environment names the
    /// folder, and it has loaded the recorder. The list is read twice, because a process that forks
    /// and ends during the read may leave a child that is not yet in the list.
    pub fn has_others(&self) -> bool {
        self.finds_others() || self.finds_others()
    }

    fn finds_others(&self) -> bool {
        let mut wanted = SESSION_VARIABLE.as_bytes().to_vec();
        wanted.push(b'=');
        wanted.extend_from_slice(self.folder.as_os_str().as_bytes());
        let Ok(entries) = fs::read_dir("/proc") else {
            return false;
        };
        let own = std::process::id().to_string();
        let mut folders = entries
            .flatten()
            .filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit))
            .filter(|entry| entry.file_name() != own.as_str())
            .map(|entry| entry.path());
        folders.any(|folder| {
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == wanted)
                && has_loaded(&folder)
                && self.lets_in(&folder)
        })
    }

    /// Whether a process may make a file in the folder. Another user's may not, and may pretend
    /// anything.
    fn lets_in(&self, process: &Path) -> bool {
        let pid = process.file_name().and_then(|name| name.to_str());
        let pid: Option<Pid> = pid.and_then(|name| name.parse().ok());
        let glance = pid.and_then(|pid| Files::open(pid).ok()?.read().ok());
        let owner = fs::metadata(&self.folder).map(|folder| folder.uid());
        glance.is_some_and(|one| one.user == 0 || owner.is_ok_and(|owner| owner == one.user))
    }

    /// Whether a process has become a program that is not part of the recording, and will not be:
    /// its environment does not name the folder, and the recorder is not loaded; or it is another
    /// user's. None: the program is not complete yet.
    pub fn is_left_by(&self, pid: Pid) -> Option<bool> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
        let environment = read("environ");
        let path = self.folder.as_os_str().as_bytes();
        let maps = read("maps");
        if read("cmdline").is_empty() || maps.is_empty() {
            return None;
        }
        // One that has only changed its user and its name keeps its rings.
        let has_rings = contains(&maps, path);
        let has_nothing = !contains(&environment, path) && !has_loaded(&folder);
        Some(!has_rings && (has_nothing || !self.lets_in(&folder)))
    }
}

/// By its name, which a recorder that is a file in memory has too.
fn has_loaded(process: &Path) -> bool {
    let name = crate::layout::RECORDER_NAME.as_bytes();
    fs::read(process.join("maps")).is_ok_and(|maps| contains(&maps, name))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|one| one == part)
}

/// Removes the remains of recordings in `parent` whose drainer was killed: folders with that
/// prefix, by their page. All users may write there, so only this user's folders are looked at;
/// root looks at all.
pub fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    let ours = |name: &std::ffi::OsStr| name.as_bytes().starts_with(prefix.as_bytes());
    for entry in entries.flatten().filter(|entry| ours(&entry.file_name())) {
        let me = rustix::process::geteuid().as_raw();
        let is_ours = |meta: &fs::Metadata| meta.is_dir() && (meta.uid() == me || me == 0);
        // Not of the target, if it is a link.
        let is_ours = entry.metadata().is_ok_and(|meta| is_ours(&meta));
        if is_ours && has_drainer(&entry.path()) == Some(false) {
            // If it can not be removed, it stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a process drains the rings of a folder.
pub fn is_drained(folder: &Path) -> bool {
    has_drainer(folder).unwrap_or(false)
}

/// None: the folder does not belong to a session.
fn has_drainer(folder: &Path) -> Option<bool> {
    let page = open_page(folder)?;
    let mut magic = [0; 8];
    page.read_exact_at(&mut magic, 0).ok()?;
    if u64_at(&magic, 0) != Some(MAGIC) {
        return None;
    }
    match rustix::fs::flock(&page, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Some(false),
        Err(Errno::WOULDBLOCK) => Some(true),
        Err(_) => None,
    }
}

/// Opens the page of a folder that another user may have made: it may be a pipe, a device, or a
/// link to one.
fn open_page(folder: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let page = rustix::fs::openat(folder, FILE_NAME, flags | OFlags::NONBLOCK, Mode::empty());
    let page = File::from(page.ok()?);
    page.metadata().ok()?.is_file().then_some(page)
}

/// Whether a name is of PID and number.
fn is_of_image(name: &str) -> bool {
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    name.split_once('.')
        .is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

#[cfg(test)]
mod tests {
    use rustix::fs::FileType;

    use super::*;

    #[test]
    fn images_are_found_once_and_in_the_order_of_their_making_and_others_are_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let mut session = Session::begin(folder.path(), false, 0).unwrap();
        let made = |name: &str, monotonic: u64| {
            let mut page = vec![0; CONTROL_BYTES as usize];
            page[..8].copy_from_slice(&MAGIC.to_le_bytes());
            page[8..12].copy_from_slice(&VERSION.to_le_bytes());
            page[40..48].copy_from_slice(&monotonic.to_le_bytes());
            fs::write(folder.path().join(name), page).unwrap();
        };
        let mut found = || {
            let (images, errors) = session.new_images().unwrap();
            let name = |image: &Image| image.path().file_name().unwrap().to_owned();
            (images.iter().map(name).collect::<Vec<_>>(), errors.len())
        };
        // As many as no folder lists in that order by chance.
        for number in 0..8 {
            made(&format!("12.{number}"), 20 + 3 * number % 8);
        }
        made("7.0", 10);
        made("12.x", 5);
        fs::write(folder.path().join("12.8"), b"").unwrap();
        fs::create_dir(folder.path().join("8.0")).unwrap();
        let numbers = [0, 3, 6, 1, 4, 7, 2, 5].map(|number| format!("12.{number}"));
        let mut names = vec!["7.0".into()];
        names.extend(numbers.map(Into::into));
        assert_eq!(found(), (names, 1));
        made("12.8", 40);
        assert_eq!(found(), (vec!["12.8".into()], 0));
        assert_eq!(found(), (vec![], 0));
        session.remove(&folder.path().join("7.0"));
        made("7.0", 50);
        let (images, _) = session.new_images().unwrap();
        assert_eq!(images.len(), 1);
        assert!(!session.has_others());
    }

    #[test]
    fn what_a_killed_drainer_left_is_swept_and_what_lives_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (alive, dead, other) = (folder("r-1"), folder("r-2"), folder("s-3"));
        let session = Session::begin(&alive, false, 0).unwrap();
        assert!(is_drained(&alive) && !is_drained(&parent.path().join("none")));
        for folder in [&dead, &other] {
            drop(Session::begin(folder, false, 0).unwrap());
        }
        assert!(!is_drained(&dead));
        sweep(parent.path(), "r-");
        assert!(alive.exists() && !dead.exists() && other.exists());
        drop(session);
    }

    /// All that another user can put in the place of a page. A read of some of them would never
    /// end.
    #[test]
    fn what_is_no_page_is_not_read() {
        let parent = tempfile::tempdir().unwrap();
        let page = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder.join(FILE_NAME)
        };
        let mode = Mode::from_raw_mode(0o644);
        let pipe = page("r-1");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", page("r-2")).unwrap();
        let elsewhere = page("s-3");
        let session = Session::begin(elsewhere.parent().unwrap(), false, 0).unwrap();
        drop(session);
        std::os::unix::fs::symlink(&elsewhere, page("r-4")).unwrap();
        let folder = parent.path().join("r-5");
        std::os::unix::fs::symlink(elsewhere.parent().unwrap(), folder).unwrap();
        fs::create_dir(page("r-6")).unwrap();
        sweep(parent.path(), "r-");
        for name in ["r-1", "r-2", "s-3", "r-4", "r-5", "r-6"] {
            let path = parent.path().join(name);
            assert!(path.exists(), "{name}");
            assert!(!is_drained(&path), "{name}");
        }
    }
}
