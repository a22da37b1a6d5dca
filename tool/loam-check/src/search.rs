//! Finds out from files alone where the dynamic linker finds a library.
//!
//! ```text
//! a name with a slash    that file
//! DT_RPATH               of the file that asks and of those that asked for it, without DT_RUNPATH
//! LD_LIBRARY_PATH
//! DT_RUNPATH             of the file that asks
//! ld.so.cache            (GNU)
//! default folders
//! ```
//!
//! Variants for processor levels (`glibc-hwcaps`) are found if the cache names them. A file for
//! another machine is skipped, as the dynamic linker does.

use std::path::{Path, PathBuf};
use std::{env, fs};

use loam_format::bytes::{u32_at, u64_at};
use loam_process::apart::step_to_file;

use crate::file::ObjectFile;

/// The file that needs a library, with its search folders.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// `DT_RPATH` of the file and of the files that needed it, nearest first, with links resolved.
    pub rpath: Vec<PathBuf>,
    /// `DT_RUNPATH`.
    pub runpath: Vec<PathBuf>,
}

impl Asker {
    /// The folders of the file at that path, which `parent` needs.
    pub fn of(path: &Path, file: &ObjectFile, parent: Option<&Asker>) -> Asker {
        let origin = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let origin = origin.parent().unwrap_or(Path::new("/")).to_path_buf();
        let folders = |list: &[String]| -> Vec<PathBuf> {
            list.iter()
                .filter(|folder| !folder.is_empty())
                .map(|folder| expand(folder, &origin))
                .collect()
        };
        let mut rpath = if file.runpath.is_empty() {
            folders(&file.rpath)
        } else {
            Vec::new()
        };
        rpath.extend(
            parent
                .map(|parent| parent.rpath.clone())
                .unwrap_or_default(),
        );
        Asker {
            rpath,
            runpath: folders(&file.runpath),
        }
    }
}

fn expand(folder: &str, origin: &Path) -> PathBuf {
    let origin = origin.display().to_string();
    let mut text = folder.to_owned();
    for (token, value) in [
        ("ORIGIN", origin.as_str()),
        ("LIB", "lib"),
        ("PLATFORM", env::consts::ARCH),
    ] {
        text = text
            .replace(&format!("${{{token}}}"), value)
            .replace(&format!("${token}"), value);
    }
    PathBuf::from(text)
}

/// The folders and the cache of this system.
#[derive(Debug)]
pub struct Search {
    library_path: Vec<PathBuf>,
    cache: Vec<(String, PathBuf)>,
    defaults: Vec<PathBuf>,
}

impl Search {
    /// The search for a program with that loader.
    pub fn for_loader(loader: Option<&str>) -> Search {
        let is_musl = loader.is_some_and(|loader| loader.contains("ld-musl"));
        let library_path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let library_path =
            env::split_paths(&library_path).filter(|folder| !folder.as_os_str().is_empty());
        let (cache, defaults) = if is_musl {
            (Vec::new(), musl_folders(loader.unwrap_or_default()))
        } else {
            let cache = fs::read("/etc/ld.so.cache").map(|bytes| parse_cache(&bytes));
            let triplet = format!("{}-linux-gnu", env::consts::ARCH);
            let folders = ["/lib", "/usr/lib"].map(|root| PathBuf::from(root).join(&triplet));
            let plain = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from);
            (
                cache.unwrap_or_default(),
                folders.into_iter().chain(plain).collect(),
            )
        };
        Search {
            library_path: library_path.collect(),
            cache,
            defaults,
        }
    }

    /// The first file of that name that can be loaded with `program`.
    pub fn find(
        &self,
        name: &str,
        asker: &Asker,
        program: &ObjectFile,
    ) -> Option<(PathBuf, ObjectFile)> {
        let suiting = |path: PathBuf| {
            step_to_file(&path);
            let file = path
                .is_file()
                .then(|| ObjectFile::read(&path).ok())
                .flatten()?;
            file.suits(program).then_some((path, file))
        };
        if name.contains('/') {
            return suiting(PathBuf::from(name));
        }
        let before = asker
            .rpath
            .iter()
            .chain(&self.library_path)
            .chain(&asker.runpath);
        let cached = self
            .cache
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, path)| path.clone());
        let mut candidates = before
            .map(|folder| folder.join(name))
            .chain(cached)
            .chain(self.defaults.iter().map(|folder| folder.join(name)));
        candidates.find_map(suiting)
    }
}

fn musl_folders(loader: &str) -> Vec<PathBuf> {
    let machine = loader
        .rsplit("ld-musl-")
        .next()
        .and_then(|rest| rest.strip_suffix(".so.1"));
    let configured =
        machine.and_then(|machine| fs::read_to_string(format!("/etc/ld-musl-{machine}.path")).ok());
    let text = configured.unwrap_or_else(|| "/lib:/usr/local/lib:/usr/lib".to_owned());
    text.split([':', '\n'])
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// The magic of the cache's new format. glibc has written only this format since 2.32; before, it
/// wrote it after the old one.
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";

/// Names and paths of the cache's entries that require no processor feature. An invalid cache
/// counts as empty.
fn parse_cache(bytes: &[u8]) -> Vec<(String, PathBuf)> {
    let Some(start) = bytes
        .windows(CACHE_MAGIC.len())
        .position(|window| window == CACHE_MAGIC)
    else {
        return Vec::new();
    };
    let bytes = &bytes[start..];
    let text = |at: u32| -> Option<String> {
        let rest = bytes.get(at as usize..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let count = u32_at(bytes, 20).unwrap_or(0) as usize;
    let entries = bytes
        .get(HEADER..)
        .unwrap_or_default()
        .chunks_exact(ENTRY)
        .take(count);
    let entry = |entry: &[u8]| {
        let is_general = u64_at(entry, 16) == Some(0);
        let name = text(u32_at(entry, 4)?)?;
        let path = text(u32_at(entry, 8)?)?;
        is_general.then_some((name, PathBuf::from(path)))
    };
    entries.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cache_has_no_entries_and_a_torn_one_does_no_harm() {
        assert!(parse_cache(b"").is_empty());
        let mut torn = CACHE_MAGIC.to_vec();
        torn.extend([0xff; 60]);
        assert!(parse_cache(&torn).is_empty());
    }

    #[test]
    fn this_systems_c_library_is_found() {
        let program = ObjectFile::read(&std::env::current_exe().unwrap()).unwrap();
        let search = Search::for_loader(program.image.interpreter.as_deref());
        let name = program
            .image
            .needed
            .iter()
            .find(|name| name.starts_with("libc."))
            .unwrap();
        let (path, file) = search.find(name, &Asker::default(), &program).unwrap();
        assert!(path.is_absolute() && file.is_c_library());
        assert!(search
            .find("libno-such-thing.so.9", &Asker::default(), &program)
            .is_none());
    }

    #[test]
    fn the_origin_is_the_files_own_folder() {
        assert_eq!(
            expand("$ORIGIN/../lib", Path::new("/a/bin")),
            Path::new("/a/bin/../lib")
        );
        assert_eq!(expand("${ORIGIN}", Path::new("/a")), Path::new("/a"));
    }
}
