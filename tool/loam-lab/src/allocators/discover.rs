//! Which of the known allocators this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use loam_process::elf::{Image, OwnMalloc};
use loam_process::layout::Layout;
use loam_process::preload::find_library;

use crate::allocators::catalogue::{Known, Origin, KNOWN};
use crate::allocators::peers::{self, Peer};
use crate::allocators::{version, Allocator, Status};

/// The command that builds the peers in the source tree.
const PEERS_COMMAND: &str = "make peers";
/// The first words about the source of an allocator from a package.
const PACKAGE: &str = "Debian package ";

/// Every known allocator and every further peer, found or not, in the catalogue's order.
pub fn all(layout: &Layout) -> Vec<Allocator> {
    let mut allocators = unversioned(layout);
    ask_versions(&mut allocators);
    allocators
}

/// The known allocator that this library file belongs to.
pub fn of_file(file: &Path, layout: &Layout) -> Option<Allocator> {
    let real = file.canonicalize().ok()?;
    let is_it = |one: &Allocator| {
        let path = one.path.as_ref().and_then(|path| path.canonicalize().ok());
        one.status == Status::Found && path.is_some_and(|path| path == real)
    };
    let mut found = unversioned(layout).into_iter().find(is_it)?;
    ask_versions(std::slice::from_mut(&mut found));
    Some(found)
}

/// The versions of the allocators that come in packages. The package manager takes a tenth of a
/// second to tell them.
fn ask_versions(allocators: &mut [Allocator]) {
    let is_asked = |one: &&mut Allocator| one.version.is_none() && one.source.starts_with(PACKAGE);
    let asked: Vec<&mut Allocator> = allocators.iter_mut().filter(is_asked).collect();
    let paths = asked.iter().filter_map(|one| one.path.clone());
    let paths: Vec<PathBuf> = paths.collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let mut versions = version::of_libraries(&paths).into_iter();
    for one in asked.into_iter().filter(|one| one.path.is_some()) {
        one.version = versions.next().flatten();
    }
}

/// As `all`, without the versions of those that come in packages.
pub fn unversioned(layout: &Layout) -> Vec<Allocator> {
    let peer_dirs = layout.peer_dirs();
    let mut allocators: Vec<Allocator> = KNOWN
        .iter()
        .map(|known| known_one(known, layout, &peer_dirs))
        .collect();
    let is_known = |name: &str| KNOWN.iter().any(|known| known.name == name);
    for name in peers::extra_names(&peer_dirs, is_known) {
        let mut allocator = blank(&name, &name, "built from source");
        peer(&mut allocator, &peer_dirs, "its source package");
        allocators.push(allocator);
    }
    allocators
}

/// The C library's allocator only, which needs no look at packages.
pub fn system(layout: &Layout) -> Option<Allocator> {
    let known = KNOWN
        .iter()
        .find(|known| matches!(known.origin, Origin::System))?;
    Some(known_one(known, layout, &[]))
}

/// An allocator that the user named by its path.
pub fn from_path(path: &Path) -> Allocator {
    let stem = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name = stem
        .split(".so")
        .next()
        .unwrap_or(&stem)
        .trim_start_matches("lib")
        .to_owned();
    let mut allocator = blank(&name, &stem, "named by its path");
    match std::path::absolute(path) {
        Ok(path) if path.is_file() => {
            allocator.version = version::of_library(&path);
            found(&mut allocator, path);
        }
        _ => absent(
            &mut allocator,
            format!("there is no file {}", path.display()),
            None,
        ),
    }
    allocator
}

fn known_one(known: &Known, layout: &Layout, peer_dirs: &[PathBuf]) -> Allocator {
    let mut allocator = blank(known.name, known.title, "");
    allocator.environment = owned(known.environment);
    allocator.memory_environment = owned(known.memory);
    match known.origin {
        Origin::System => {
            let (version, path) = version::c_library();
            allocator.status = Status::Found;
            allocator.version = version;
            allocator.source = path.map_or("the C library".into(), |path| {
                format!("the C library, {}", path.display())
            });
        }
        Origin::Loam => loam(&mut allocator, layout),
        Origin::Package { debian, sonames } => package(&mut allocator, debian, sonames),
        Origin::Peer { source } => {
            allocator.source = source.to_owned();
            peer(&mut allocator, peer_dirs, source);
        }
    }
    allocator
}

fn blank(name: &str, title: &str, source: &str) -> Allocator {
    Allocator {
        name: name.to_owned(),
        title: title.to_owned(),
        status: Status::Absent,
        version: None,
        path: None,
        source: source.to_owned(),
        environment: BTreeMap::new(),
        memory_environment: BTreeMap::new(),
        reason: None,
        remedy: None,
    }
}

fn loam(allocator: &mut Allocator, layout: &Layout) {
    allocator.source = "this project".to_owned();
    match find_library(None, layout) {
        Ok(library) => {
            allocator.version = version::of_loam(&library.path);
            found(allocator, library.path);
        }
        Err(error) => absent(allocator, error.to_string(), Some("make build".to_owned())),
    }
}

fn package(allocator: &mut Allocator, debian: &str, sonames: &[&str]) {
    allocator.source = format!("{PACKAGE}{debian}");
    let dirs = library_dirs();
    let candidates = sonames
        .iter()
        .flat_map(|soname| dirs.iter().map(move |dir| dir.join(soname)));
    match candidates.into_iter().find(|path| path.is_file()) {
        Some(path) => found(allocator, path),
        None => {
            let reason = format!("{} is in none of the library folders", sonames[0]);
            absent(allocator, reason, Some(install_command(debian)));
        }
    }
}

fn peer(allocator: &mut Allocator, dirs: &[PathBuf], source: &str) {
    match peers::find(&allocator.name, dirs) {
        Peer::Built { path, side } => {
            allocator.version = (!side.version.is_empty()).then_some(side.version);
            if !side.source.is_empty() {
                allocator.source = side.source;
            }
            allocator.environment.extend(side.environment);
            found(allocator, path);
        }
        Peer::Failed { reason } => {
            absent(allocator, reason, Some(PEERS_COMMAND.to_owned()));
        }
        Peer::Absent => {
            let reason = format!("not built from {source}");
            absent(allocator, reason, Some(PEERS_COMMAND.to_owned()));
        }
    }
}

fn absent(allocator: &mut Allocator, reason: String, remedy: Option<String>) {
    allocator.status = Status::Absent;
    allocator.reason = Some(reason);
    allocator.remedy = remedy;
}

/// The file exists; its headers show whether it can be preloaded.
fn found(allocator: &mut Allocator, path: PathBuf) {
    match why_unusable(&path) {
        None => allocator.status = Status::Found,
        Some(reason) => {
            allocator.status = Status::Unusable;
            allocator.reason = Some(reason);
        }
    }
    allocator.path = Some(path);
}

fn why_unusable(path: &Path) -> Option<String> {
    if loam_process::preload::is_unquotable(path) {
        return Some(
            "its path has a blank, a colon or a $, which LD_PRELOAD can not carry".to_owned(),
        );
    }
    let image = match Image::read(path) {
        Ok(image) => image,
        Err(error) => return Some(error.to_string()),
    };
    if image.own_malloc != OwnMalloc::Exported {
        return Some("it does not export malloc".to_owned());
    }
    let this_program = Image::read(Path::new("/proc/self/exe")).ok()?;
    let fits = image.machine == this_program.machine && image.is_64 == this_program.is_64;
    (!fits).then(|| format!("it is for {}", image.architecture()))
}

/// Almost the folders in which the loader would look. This suffices, because a found library is
/// preloaded by its full path.
fn library_dirs() -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let from_environment = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    env::split_paths(&from_environment)
        .filter(|path| path.is_absolute())
        .chain([
            PathBuf::from("/usr/local/lib").join(&triplet),
            PathBuf::from("/usr/local/lib"),
            PathBuf::from("/usr/lib").join(&triplet),
            PathBuf::from("/lib").join(&triplet),
            PathBuf::from("/usr/lib64"),
            PathBuf::from("/usr/lib"),
        ])
        .collect()
}

fn install_command(debian_package: &str) -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_debian = release.lines().any(|line| {
        (line.starts_with("ID=") || line.starts_with("ID_LIKE=")) && line.contains("debian")
    });
    if is_debian {
        format!("apt-get install {debian_package}")
    } else {
        format!("install what your distribution calls Debian's {debian_package}")
    }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_always_found_and_what_is_absent_says_why_and_what_to_do() {
        let allocators = all(&Layout::of_executables([PathBuf::from("/nowhere/loam")]));
        assert_eq!(allocators[0].name, "system");
        assert_eq!(allocators[0].status, Status::Found);
        for allocator in allocators.iter().filter(|a| a.status == Status::Absent) {
            assert!(
                allocator.reason.is_some() && allocator.remedy.is_some(),
                "{allocator:?}"
            );
        }
        assert_eq!(allocators.len(), KNOWN.len());
    }

    #[test]
    fn a_library_that_is_no_allocator_is_unusable() {
        let (_, libc) = version::c_library();
        let allocator = from_path(Path::new("/etc/passwd"));
        assert_eq!(allocator.status, Status::Unusable);
        // The C library exports malloc, so it passes. It is what the system uses anyway.
        assert_eq!(from_path(&libc.unwrap()).status, Status::Found);
    }
}
