//! Versions of libraries, found without running them.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of the C library that this process runs on, and its file.
pub fn c_library() -> (Option<String>, Option<PathBuf>) {
    let path = mapped_c_library();
    let version = path.as_deref().and_then(c_library_version);
    (version, path)
}

fn mapped_c_library() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .map(Path::new)
        .find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("libc.so") || name.starts_with("libc-2"))
        })
        .map(Path::to_path_buf)
}

/// glibc carries its banner: `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn c_library_version(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let banner = b"release version ";
    let start = bytes
        .windows(banner.len())
        .position(|window| window == banner)?
        + banner.len();
    Some(format!("glibc {}", version_text(&bytes[start..])))
}

/// The version of a packaged library: the package's version if a package manager knows the file,
/// else the version in the file's name.
pub fn of_library(path: &Path) -> Option<String> {
    of_libraries(&[path]).pop().flatten()
}

/// The versions of several libraries. One question asks for all, because the package manager reads
/// its whole database at each question.
pub fn of_libraries(paths: &[&Path]) -> Vec<Option<String>> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let reals: Vec<PathBuf> = paths.iter().map(|path| real(path)).collect();
    let named = reals.iter().map(PathBuf::as_path);
    let versions = package_versions(named.chain(paths.iter().copied()));
    let of = |(path, real): (&&Path, &PathBuf)| {
        let packaged = versions.get(real).or_else(|| versions.get(*path));
        packaged.cloned().or_else(|| from_name(real))
    };
    paths.iter().zip(&reals).map(of).collect()
}

/// The versions of the packages that contain these files. Files without a package are left out.
fn package_versions<'a>(paths: impl Iterator<Item = &'a Path>) -> HashMap<PathBuf, String> {
    let paths: BTreeSet<&Path> = paths.collect();
    if paths.is_empty() {
        return HashMap::new();
    }
    // The command fails if one of the files is in no package, but names the packages of the other
    // files.
    let owners = query(Command::new("dpkg-query").arg("--search").args(&paths));
    let owners: Vec<(&str, &str)> = owners
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(packages, path)| !packages.contains(' ') && paths.contains(Path::new(path)))
        .collect();
    let packages: BTreeSet<&str> = owners.iter().map(|(package, _)| *package).collect();
    if packages.is_empty() {
        return HashMap::new();
    }
    let shown = query(
        Command::new("dpkg-query")
            .args(["--show", "--showformat=${binary:Package} ${Version}\n"])
            .args(&packages),
    );
    let versions: HashMap<&str, &str> = shown
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, version)| !version.is_empty())
        .collect();
    let of = |(package, path): &(&str, &str)| {
        let version = versions.get(package)?;
        Some((PathBuf::from(path), (*version).to_owned()))
    };
    owners.iter().filter_map(of).collect()
}

fn query(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// The version of the heap: from its file's name if it has one, else from the banner in the file.
pub fn of_loam(path: &Path) -> Option<String> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    from_name(&real).or_else(|| {
        let bytes = fs::read(&real).ok()?;
        let banner = b"libloam ";
        bytes
            .windows(banner.len() + 1)
            .enumerate()
            .find_map(|(at, window)| {
                let starts = window.starts_with(banner) && window[banner.len()].is_ascii_digit();
                starts.then(|| version_text(&bytes[at + banner.len()..]))
            })
    })
}

/// The digits and dots at the start.
fn version_text(bytes: &[u8]) -> String {
    let length = bytes
        .iter()
        .take_while(|b| b.is_ascii_digit() || **b == b'.')
        .count();
    String::from_utf8_lossy(&bytes[..length])
        .trim_end_matches('.')
        .to_owned()
}

/// `libtcmalloc_minimal.so.4.5.10` is 4.5.10.
fn from_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (_, version) = name.split_once(".so.")?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_of_this_machine_has_a_version() {
        let (version, path) = c_library();
        assert!(path.is_some_and(|path| path.exists()));
        assert!(version.is_some_and(|version| version.starts_with("glibc 2.")));
    }

    #[test]
    fn a_file_name_gives_its_version_away() {
        assert_eq!(
            from_name(Path::new("/l/libx.so.4.5.10")).as_deref(),
            Some("4.5.10")
        );
        assert_eq!(from_name(Path::new("/l/libx.so")), None);
    }
}
