//! Reasons why a program may not run on the heap, each with its meaning and remedy.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use loam_format::plain;
use loam_process::elf::{Image, ImageError, OwnMalloc};
use loam_process::parts::Libc;
use loam_process::privilege::{self, Caller, Raised};
use loam_process::script;

use crate::file::ObjectFile;

/// The severity of an obstacle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The preload can not work. Starting the program would only seem to use the heap.
    Refuse,
    /// The preload may work in part, or can not be judged.
    Warn,
}

/// One reason why a program may not run on the heap.
#[derive(Debug, Clone)]
pub struct Obstacle {
    /// Refuse or warn.
    pub severity: Severity,
    /// The file that it is about.
    pub file: PathBuf,
    /// What was found.
    pub what: String,
    /// The consequence and the remedy.
    pub consequence: String,
}

impl Obstacle {
    /// The obstacle as one sentence or two.
    pub fn sentence(&self) -> String {
        let file = plain::path(&self.file);
        format!("{file} {}; {}.", plain::line(&self.what), self.consequence)
    }
}

/// How many scripts may name each other as interpreters: as many as the kernel follows.
const SCRIPT_DEPTH: usize = 4;

/// Inspects the program. It follows scripts and `env` to the program that really runs.
pub fn examine(program: &Path, arguments: &[OsString], heap: &Image) -> Result<Vec<Obstacle>> {
    let mut obstacles = Vec::new();
    follow(program, arguments, |file, image| {
        examine_privilege(file, &mut obstacles);
        match image {
            Ok(image) => examine_image(file, image, heap, &mut obstacles),
            Err(ImageError::NotElf) => {}
            Err(error) => obstacles.push(uninspected(file, error)),
        }
    })?;
    Ok(obstacles)
}

/// The C library of the program that really runs.
pub fn libc_of(program: &Path, arguments: &[OsString]) -> Result<Libc> {
    let mut libc = Libc::Gnu;
    follow(program, arguments, |_, image| {
        if let Ok(Some(loader)) = image.map(|image| image.interpreter.as_deref()) {
            libc = Libc::of_loader(loader);
        }
    })?;
    Ok(libc)
}

/// Shows each file on the way to the program that really runs.
fn follow(
    program: &Path,
    arguments: &[OsString],
    mut show: impl FnMut(&Path, Result<&Image, &ImageError>),
) -> Result<()> {
    let mut file = program.to_path_buf();
    let words: Vec<String> = arguments
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut arguments = words;
    for _ in 0..=SCRIPT_DEPTH {
        let image = Image::read(&file);
        show(&file, image.as_ref());
        match image {
            Ok(_) if script::is_env(&file) => {
                let named = script::program_after_env(arguments.iter().map(String::as_str));
                let Some(next) = named.and_then(|name| which::which(name).ok()) else {
                    return Ok(());
                };
                arguments.clear();
                file = next;
            }
            Err(ImageError::NotElf) => {
                let interpreter = script::interpreter(&file)
                    .with_context(|| format!("{} can not be loaded", file.display()))?;
                arguments = interpreter
                    .argument
                    .map(|rest| rest.split_whitespace().map(str::to_owned).collect())
                    .unwrap_or_default();
                file = interpreter.path;
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

fn uninspected(file: &Path, error: &ImageError) -> Obstacle {
    let what = match error {
        ImageError::Unreadable(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            "may be executed but not read".to_owned()
        }
        other => format!("could not be inspected ({other})"),
    };
    let consequence = "whether the preload takes can not be told beforehand".to_owned();
    Obstacle {
        severity: Severity::Warn,
        file: file.to_path_buf(),
        what,
        consequence,
    }
}

fn examine_privilege(file: &Path, obstacles: &mut Vec<Obstacle>) {
    // If the file can not be read, the function that reads it next reports the error.
    let Ok(Some(raised)) = privilege::raised(file, Caller::current()) else {
        return;
    };
    let what = match raised {
        Raised::User => "is set-user-ID",
        Raised::Group => "is set-group-ID",
        Raised::Capabilities => "has file capabilities",
    };
    obstacles.push(Obstacle {
        severity: Severity::Refuse,
        file: file.to_path_buf(),
        what: what.to_owned(),
        consequence:
            "the loader ignores LD_PRELOAD for programs with raised privileges (start it as the \
                      user that it becomes, or list the heap in /etc/ld.so.preload)"
                .to_owned(),
    });
}

fn examine_image(file: &Path, image: &Image, heap: &Image, obstacles: &mut Vec<Obstacle>) {
    let mut add = |severity, what: String, consequence: &str| {
        let consequence = consequence.to_owned();
        obstacles.push(Obstacle {
            severity,
            file: file.to_path_buf(),
            what,
            consequence,
        });
    };
    if image.machine != heap.machine || image.is_64 != heap.is_64 {
        let what = format!(
            "is for {}, and the heap for {}",
            image.architecture(),
            heap.architecture()
        );
        add(
            Severity::Refuse,
            what,
            "the loader can not load one into the other; build the heap for it",
        );
        return;
    }
    let Some(loader) = &image.interpreter else {
        if !image.is_loader() {
            add(
                Severity::Refuse,
                "is a static executable".to_owned(),
                "it has no loader, so nothing can be preloaded; link it with libloam.a instead",
            );
        }
        return;
    };
    // A compiler for musl uses either name.
    let is_for_musl = |name: &String| name == "libc.so" || name.contains("musl");
    let heap_is_for_musl = heap.needed.iter().any(is_for_musl);
    if loader.contains("ld-musl") != heap_is_for_musl {
        let (what, consequence) = if heap_is_for_musl {
            (
                "runs on the GNU C library",
                "a heap linked with musl can not be loaded there",
            )
        } else {
            (
                "runs on musl",
                "a heap linked with the GNU C library can not be loaded there; build it with musl",
            )
        };
        add(Severity::Refuse, what.to_owned(), consequence);
        return;
    }
    // `loam check` judges by the same list.
    let sanitizer = ObjectFile::read(file).ok().and_then(|read| read.sanitizer);
    if let Some(sanitizer) = sanitizer {
        add(
            Severity::Refuse,
            format!("was built with {sanitizer}"),
            "it needs its own malloc and stops or hangs if another comes first; build without",
        );
        return;
    }
    examine_allocators(image, &mut add);
}

fn examine_allocators(image: &Image, add: &mut impl FnMut(Severity, String, &str)) {
    match image.own_malloc {
        OwnMalloc::Exported => {
            let inside = image
                .compiled_in
                .map(|name| format!(" ({name})"))
                .unwrap_or_default();
            add(
                Severity::Refuse,
                format!("has its own allocator inside: it exports malloc{inside}"),
                "the executable is searched before any preload, so its own is used; build without",
            );
            return;
        }
        OwnMalloc::Hidden => add(
            Severity::Warn,
            "has a malloc of its own inside".to_owned(),
            "its own code keeps using that, and only its libraries use the heap",
        ),
        OwnMalloc::None => {}
    }
    if let Some(name) = image.compiled_in {
        add(
            Severity::Warn,
            format!("has {name} compiled in"),
            "what it allocates through that allocator's own functions does not come from the heap",
        );
    }
    if let Some(library) = image.allocator_library() {
        add(
            Severity::Warn,
            format!("is linked with {library}"),
            "the preload comes first for malloc, but calls of its own functions stay there",
        );
    }
    if image.is_go {
        add(
            Severity::Warn,
            "was built by the Go compiler".to_owned(),
            "Go objects come from Go's own heap, and only its C code uses this one",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_program() -> Image {
        Image::read(&std::env::current_exe().unwrap()).unwrap()
    }

    fn found(image: &Image) -> Vec<(Severity, String)> {
        let mut obstacles = Vec::new();
        examine_image(Path::new("p"), image, &this_program(), &mut obstacles);
        obstacles
            .into_iter()
            .map(|o| (o.severity, o.what))
            .collect()
    }

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        assert_eq!(found(&this_program()), vec![]);
    }

    #[test]
    fn what_can_not_take_the_preload_is_refused() {
        let ordinary = this_program();
        let other = Image {
            machine: object::elf::EM_S390,
            ..ordinary.clone()
        };
        let musl = Image {
            interpreter: Some("/lib/ld-musl-x86_64.so.1".into()),
            ..ordinary.clone()
        };
        let fixed = Image {
            interpreter: None,
            ..ordinary.clone()
        };
        let exporting = Image {
            own_malloc: OwnMalloc::Exported,
            ..ordinary
        };
        for image in [other, musl, fixed, exporting] {
            let obstacles = found(&image);
            assert_eq!(obstacles.len(), 1, "{obstacles:?}");
            assert_eq!(obstacles[0].0, Severity::Refuse);
        }
    }

    #[test]
    fn what_may_take_the_preload_in_part_is_warned_about() {
        let ordinary = this_program();
        let mut linked = ordinary.clone();
        linked.needed.push("libjemalloc.so.2".into());
        let hidden = Image {
            own_malloc: OwnMalloc::Hidden,
            ..ordinary.clone()
        };
        let inside = Image {
            compiled_in: Some("mimalloc"),
            ..ordinary.clone()
        };
        let go = Image {
            is_go: true,
            ..ordinary
        };
        for image in [linked, hidden, inside, go] {
            let obstacles = found(&image);
            assert_eq!(obstacles.len(), 1, "{obstacles:?}");
            assert_eq!(obstacles[0].0, Severity::Warn);
        }
    }
}
