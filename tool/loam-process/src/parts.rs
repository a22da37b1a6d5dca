//! The parts inside of this executable: one file is the whole tool (`make static`).
//!
//! ```text
//! [ELF file of the tool][zip archive: gnu/libloam.so, gnu/libloam-record.so, musl/libloam.so ...]
//! ```
//!
//! A zip archive is found from its end, so the kernel and `unzip` both read such a file. Its
//! offsets count from the file's begin, because bytes of the tool may look like a mark of the
//! archive. A part is unpacked when a verb needs it, into the first of these places whose files may
//! be executed:
//!
//! ```text
//! $TMPDIR or /tmp, /run/user/UID, /dev/shm, /var/tmp:   loam-UID/CRC/libloam.so
//! none of them (a read-only container):                 a file in memory, /proc/PID/fd/N
//! ```
//!
//! The folder belongs to this user, and no other user may write to it, because what lies there gets
//! preloaded. Others may read it: a program that starts as root and becomes another user preloads
//! the same file into its children.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{memfd_create, MemfdFlags, StatVfsMountFlags};
use zip::ZipArchive;

use crate::mappings;
use crate::plain_path;
use crate::process::Pid;

/// No part is larger: an archive that was tampered with must not fill the memory.
const LARGEST: u64 = 64 << 20;

/// A C library. A library for one can not be preloaded into a program of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library.
    Gnu,
    /// musl.
    Musl,
}

impl Libc {
    /// By the loader that a program names.
    pub fn of_loader(loader: &str) -> Libc {
        match loader.contains("ld-musl") {
            true => Libc::Musl,
            false => Libc::Gnu,
        }
    }

    /// Of a process, by its mapped files.
    pub fn of_process(pid: Pid) -> Libc {
        let all = mappings::read_files(pid).unwrap_or_default();
        let is_musl = all.iter().any(|one| one.name.contains("/ld-musl-"));
        match is_musl {
            true => Libc::Musl,
            false => Libc::Gnu,
        }
    }

    /// Of this machine's own programs.
    pub fn of_machine() -> Libc {
        let shell = crate::elf::Image::read(Path::new("/bin/sh")).ok();
        let loader = shell.and_then(|image| image.interpreter);
        Libc::of_loader(&loader.unwrap_or_default())
    }

    /// In a message.
    pub fn name(self) -> &'static str {
        match self {
            Libc::Gnu => "the GNU C library",
            Libc::Musl => "musl",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Libc::Gnu => "gnu",
            Libc::Musl => "musl",
        }
    }
}

/// The archive at the end of an executable.
#[derive(Debug)]
pub struct Parts {
    archive: ZipArchive<File>,
}

impl Parts {
    /// Opens the archive of this executable; none if it has none.
    pub fn of_this_executable() -> Option<Parts> {
        Parts::open(Path::new("/proc/self/exe"))
    }

    fn open(path: &Path) -> Option<Parts> {
        let archive = ZipArchive::new(File::open(path).ok()?).ok()?;
        Some(Parts { archive })
    }

    /// Unpacks a file, unless it lies there already; none if the archive has no such file.
    pub fn unpack(&mut self, libc: Libc, name: &str) -> io::Result<Option<PathBuf>> {
        let full = format!("{}/{name}", libc.folder());
        let mut entry = match self.archive.by_name(&full) {
            Ok(entry) => entry,
            Err(zip::result::ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        let crc = entry.crc32();
        let mut bytes = Vec::new();
        entry.by_ref().take(LARGEST).read_to_end(&mut bytes)?;
        // Anybody may name a file like this one, so the name has the contents.
        let folder = format!("{crc:08x}");
        for place in places() {
            if let Ok(path) = place_in(&place, &folder, name, &bytes) {
                return Ok(Some(path));
            }
        }
        in_memory(name, &bytes).map(Some)
    }
}

/// Folders for parts, best first.
fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let all = [
        std::env::temp_dir(),
        PathBuf::from(format!("/run/user/{user}")),
        PathBuf::from("/dev/shm"),
        PathBuf::from("/var/tmp"),
    ];
    all.into_iter()
        .filter(|place| may_hold_programs(place) && !plain_path::is_unquotable(place))
        .collect()
}

/// Whether files may be written there and mapped as code.
fn may_hold_programs(place: &Path) -> bool {
    let refused = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
    rustix::fs::statvfs(place).is_ok_and(|all| !all.f_flag.intersects(refused))
}

fn place_in(place: &Path, folder: &str, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let outer = place.join(format!("loam-{user}"));
    let inner = outer.join(folder);
    for folder in [&outer, &inner] {
        plain_path::own(folder, user).map_err(io::Error::other)?;
    }
    let path = inner.join(name);
    // Also where the name is right: a tool that was killed, or a full disk, may have left a part of
    // the file.
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    // Written beside its place and renamed, because a program may be starting with the former one.
    let made = inner.join(format!(".{}", std::process::id()));
    let written = write(&made, bytes).and_then(|()| fs::rename(&made, &path));
    if let Err(error) = written {
        let _ = fs::remove_file(&made);
        return Err(error);
    }
    Ok(path)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(path)?;
    file.write_all(bytes)?;
    // Also where the umask takes it from others.
    file.set_permissions(fs::Permissions::from_mode(0o755))
}

/// A file that has no place, for this process and those that it starts. It is open until the
/// process that is started closes it or ends; a program that it starts after that runs without the
/// part, and its loader says so.
fn in_memory(name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    // Without MFD_CLOEXEC: the started program's loader opens it.
    let mut file = File::from(memfd_create(name, MemfdFlags::empty())?);
    file.write_all(bytes)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let _stays_open = file.into_raw_fd();
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use zip::write::SimpleFileOptions;
    use zip::ZipWriter;

    fn executable_with(dir: &Path, parts: &[(&str, &[u8])]) -> PathBuf {
        let path = dir.join("loam");
        // With the marks of an archive's records in it, as the code of `zip` has them.
        let mut file = File::create(&path).unwrap();
        file.write_all(&b"PK\x01\x02PK\x03\x04PK\x05\x06".repeat(10_000))
            .unwrap();
        let mut archive = ZipWriter::new(file);
        for (name, bytes) in parts {
            archive
                .start_file(*name, SimpleFileOptions::default())
                .unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap();
        path
    }

    #[test]
    fn each_c_library_has_its_own_part() {
        let dir = tempfile::tempdir().unwrap();
        let parts: [(&str, &[u8]); 2] = [("gnu/libx.so", b"for glibc"), ("musl/libx.so", b"musl")];
        let path = executable_with(dir.path(), &parts);
        let mut parts = Parts::open(&path).unwrap();
        let gnu = parts.unpack(Libc::Gnu, "libx.so").unwrap().unwrap();
        let musl = parts.unpack(Libc::Musl, "libx.so").unwrap().unwrap();
        assert_eq!(fs::read(&gnu).unwrap(), b"for glibc");
        assert_eq!(fs::read(&musl).unwrap(), b"musl");
        assert_eq!(parts.unpack(Libc::Musl, "liby.so").unwrap(), None);
        for path in [gnu, musl] {
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn what_lies_there_is_believed_only_if_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let place = |bytes| place_in(dir.path(), "f", "libx.so", bytes).unwrap();
        let path = place(b"whole");
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        assert_eq!(place(b"whole"), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        fs::write(&path, b"who").unwrap();
        place(b"whole");
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let open = dir.path().join(format!("loam-{user}"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let error = place_in(dir.path(), "f", "libx.so", b"x").unwrap_err();
        assert!(error.to_string().contains("you alone"), "{error}");
    }

    #[test]
    fn without_a_place_the_part_is_a_file_in_memory() {
        let path = in_memory("libx.so", b"code").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"code");
        let link = fs::read_link(&path).unwrap();
        assert!(link.to_string_lossy().contains("libx.so"), "{link:?}");
    }

    #[test]
    fn an_executable_without_an_archive_has_no_parts() {
        assert!(Parts::open(&std::env::current_exe().unwrap()).is_none());
    }

    #[test]
    fn the_loader_says_which_c_library() {
        assert_eq!(Libc::of_loader("/lib/ld-musl-aarch64.so.1"), Libc::Musl);
        assert_eq!(Libc::of_loader("/lib64/ld-linux-x86-64.so.2"), Libc::Gnu);
        assert_eq!(Libc::of_process(std::process::id() as Pid), Libc::Gnu);
    }
}
