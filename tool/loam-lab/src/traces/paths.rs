//! Stacks for people: the functions of the program that allocate, without those of allocators and
//! standard libraries below them, and without the start of a thread above them. Stacks that are the
//! same then are one path.

use std::collections::{HashMap, HashSet};

use loam_process::symbols::{Function, Symbols};
use serde::Serialize;

use super::stacks::{Estimate, Place, Site, Stacks};

/// A path by which blocks are allocated, and a figure of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Path {
    /// The functions, the innermost first.
    pub functions: Vec<String>,
    /// Bytes.
    pub bytes: f64,
    /// Twice their standard error; 0 of what was not estimated.
    pub error: f64,
}

/// The paths of stacks, those with the most bytes first. `figure`: what counts of a stack.
pub fn of(
    stacks: &Stacks,
    symbols: &mut Symbols,
    figure: impl Fn(usize, &Site) -> Estimate,
) -> Vec<Path> {
    named(stacks, symbols, figure, |function| function.name)
}

/// The same without the lines that names of Python functions have, to compare two programs: a line
/// moves when another one is written before it.
pub fn without_lines(
    stacks: &Stacks,
    symbols: &mut Symbols,
    figure: impl Fn(usize, &Site) -> Estimate,
) -> Vec<Path> {
    named(stacks, symbols, figure, without_line)
}

/// `handle (app.py:7)` becomes `handle (app.py)`. No other name ends so.
fn without_line(function: Function) -> String {
    let line = function.line.map(|line| format!(":{line})"));
    let name = line.and_then(|line| function.name.strip_suffix(&line));
    name.map(|name| format!("{name})")).unwrap_or(function.name)
}

fn named(
    stacks: &Stacks,
    symbols: &mut Symbols,
    figure: impl Fn(usize, &Site) -> Estimate,
    name: impl Fn(Function) -> String,
) -> Vec<Path> {
    let mut known: HashMap<Place, Vec<String>> = HashMap::new();
    let mut sums: HashMap<Vec<String>, Estimate> = HashMap::new();
    for (at, site) in stacks.sites.iter().enumerate() {
        let mut functions = Vec::new();
        // Up to here the functions are those of allocators and libraries.
        let mut library = 0;
        for place in &site.frames {
            let found = known.entry(place.clone()).or_insert_with(|| {
                let found = stacks.functions(place, symbols).into_iter();
                found.map(&name).collect()
            });
            let file = place
                .module
                .map(|module| stacks.modules[module].path.as_str());
            let is_of_allocator = file.is_some_and(is_allocators);
            for name in found.iter() {
                if library == functions.len() && (is_of_allocator || is_library(name)) {
                    library += 1;
                }
                functions.push(name.clone());
            }
        }
        if library < functions.len() {
            functions.drain(..library);
        }
        let starts = functions
            .iter()
            .rev()
            .take_while(|name| is_start(name))
            .count();
        if starts < functions.len() {
            functions.truncate(functions.len() - starts);
        }
        if site.is_cut || functions.is_empty() {
            functions.push("[not known]".to_owned());
        }
        let sum = sums.entry(functions).or_default();
        *sum = sum.plus(&figure(at, site), 1.0);
    }
    let mut paths: Vec<Path> = sums
        .into_iter()
        .map(|(functions, sum)| Path {
            functions,
            bytes: sum.bytes,
            error: sum.error(),
        })
        .collect();
    paths.sort_by(|a, b| {
        b.bytes
            .total_cmp(&a.bytes)
            .then_with(|| a.functions.cmp(&b.functions))
    });
    paths
}

/// The types of what lived at the end, of all stacks, as paths of one name each; none: the
/// recording did not look for types.
pub fn types(stacks: &Stacks) -> Option<Vec<Path>> {
    let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
    for typed in stacks.sites.iter().flat_map(|site| &site.types) {
        let sum = sums.entry(&typed.name).or_default();
        *sum = (sum.0 + typed.bytes, sum.1.hypot(typed.error));
    }
    let paths = sums.into_iter().map(|(name, (bytes, error))| Path {
        functions: vec![name.to_owned()],
        bytes,
        error,
    });
    let paths: Vec<Path> = paths.collect();
    (!paths.is_empty()).then_some(paths)
}

/// The function through which at least so much of all bytes came, and that is the nearest to the
/// allocation in them; with its share. None: there is no such function, or nothing came.
pub fn common(paths: &[Path], least: f64) -> Option<(&str, f64)> {
    let total: f64 = paths.iter().map(|path| path.bytes).sum();
    let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
    for path in paths {
        let mut seen = HashSet::new();
        for (depth, name) in path.functions.iter().enumerate() {
            // A place without a name says nothing to people.
            if !name.starts_with('[') && seen.insert(name) {
                let sum = sums.entry(name).or_default();
                sum.0 += path.bytes;
                sum.1 += path.bytes * depth as f64;
            }
        }
    }
    let wanted = sums
        .into_iter()
        .filter(|(_, (bytes, _))| *bytes > 0.0 && *bytes >= least * total);
    let depth = |bytes: f64, depths: f64| depths / bytes;
    let found = wanted.min_by(|(a, (bytes, depths)), (b, (more, other))| {
        depth(*bytes, *depths)
            .total_cmp(&depth(*more, *other))
            .then_with(|| a.cmp(b))
    });
    found.map(|(name, (bytes, _))| (name, bytes / total))
}

/// What became of a path between two traces.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    /// The functions, the innermost first.
    pub functions: Vec<String>,
    /// Bytes in the first trace.
    pub before: f64,
    /// Bytes in the second one.
    pub after: f64,
    /// Twice the standard error of the difference.
    pub error: f64,
}

impl Changed {
    /// By how much it grew.
    pub fn grown(&self) -> f64 {
        self.after - self.before
    }

    /// Whether the difference is more than what chance makes.
    pub fn is_sure(&self) -> bool {
        self.grown().abs() > self.error
    }
}

/// What became of each path, the one that grew most first. Paths are the same if their functions
/// are: the program may have been built anew.
pub fn compare(before: Vec<Path>, after: Vec<Path>) -> Vec<Changed> {
    let mut all: HashMap<Vec<String>, (f64, f64, f64)> = HashMap::new();
    for path in before {
        let known = all.entry(path.functions).or_default();
        known.0 += path.bytes;
        known.2 = known.2.hypot(path.error);
    }
    for path in after {
        let known = all.entry(path.functions).or_default();
        known.1 += path.bytes;
        known.2 = known.2.hypot(path.error);
    }
    let mut changed: Vec<Changed> = all
        .into_iter()
        .map(|(functions, (before, after, error))| Changed {
            functions,
            before,
            after,
            error,
        })
        .collect();
    changed.sort_by(|a, b| {
        let order = b.grown().total_cmp(&a.grown());
        order.then_with(|| a.functions.cmp(&b.functions))
    });
    changed
}

/// Whether a file is an allocator and nothing else.
fn is_allocators(path: &str) -> bool {
    const FILES: [&str; 6] = [
        "libloam",
        "libjemalloc",
        "libmimalloc",
        "libtcmalloc",
        "libsnmalloc",
        "librpmalloc",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    FILES.iter().any(|begin| name.starts_with(begin))
}

/// Whether a function starts a program or a thread.
fn is_start(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "_start",
        "__libc_start_main",
        "__libc_start_main_impl",
        "__libc_start_call_main",
        "start_thread",
        "__clone3",
        "clone3",
        "clone",
        "__clone",
    ];
    NAMES.contains(&name)
}

/// Whether a function allocates on behalf of its caller: a function of the standard libraries of
/// C++ and Rust, or of an allocator.
pub fn is_library(name: &str) -> bool {
    // The name of a template's function begins with the type that it returns.
    let head = name.split(['<', '(']).next().unwrap_or(name);
    let head = head.rsplit_once(' ').map_or(head, |(before, last)| {
        let is_operator = before.ends_with("operator");
        if is_operator {
            name
        } else {
            last
        }
    });
    const PREFIXES: [&str; 29] = [
        // Names as in the file, for those that could not be demangled.
        "_ZNSt",
        "_ZNKSt",
        "_ZSt",
        "_ZN9__gnu_cxx",
        "std::",
        "__gnu_cxx::",
        "operator new",
        "alloc::",
        "core::",
        "hashbrown::",
        "__rust_",
        "__rdl_",
        "<alloc::",
        // The insides of allocators, as their own symbols name them.
        "_int_",
        "__libc_malloc",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_memalign",
        "__GI___libc_",
        "sysmalloc",
        "tcache_",
        "je_",
        "mi_",
        "_mi_",
        "tcmalloc::",
        "loam::",
        // A block is filled right after it was allocated.
        "__memcpy",
        "__memset",
        "__memmove",
    ];
    const NAMES: [&str; 12] = [
        "malloc",
        "calloc",
        "realloc",
        "strdup",
        "__strdup",
        "aligned_alloc",
        "memalign",
        "posix_memalign",
        "memcpy",
        "memset",
        "memmove",
        "read",
    ];
    PREFIXES
        .iter()
        .any(|prefix| head.starts_with(prefix) || name.starts_with(prefix))
        || NAMES.contains(&head)
        || is_blanket(name)
}

/// Whether a standard library implements this function for a type of its own or for each one: `<T
/// as alloc::...>::f`. What it does for a type of the program, whose name has a path, is the
/// program's.
fn is_blanket(name: &str) -> bool {
    let Some((type_name, of)) = name
        .strip_prefix('<')
        .and_then(|rest| rest.split_once(" as "))
    else {
        return false;
    };
    const ROOTS: [&str; 3] = ["alloc::", "core::", "std::"];
    !type_name.contains("::") && ROOTS.iter().any(|root| of.starts_with(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_function_through_which_most_came_is_told() {
        let path = |names: &[&str], bytes: f64| Path {
            functions: names.iter().map(|name| (*name).to_owned()).collect(),
            bytes,
            error: 0.0,
        };
        let paths = [
            path(&["grow", "insert", "serve", "main"], 60.0),
            path(&["[x+0x12]", "copy", "serve", "main"], 35.0),
            path(&["log", "main"], 5.0),
        ];
        assert_eq!(common(&paths, 0.8), Some(("serve", 0.95)));
        assert_eq!(common(&paths, 0.5), Some(("grow", 0.6)));
        assert_eq!(common(&paths, 0.99), Some(("main", 1.0)));
        assert_eq!(common(&paths[1..2], 1.1), None);
        assert_eq!(common(&[], 0.5), None);
    }

    #[test]
    fn two_builds_of_a_python_program_are_compared_without_lines() {
        let of = |name: &str, line| {
            without_line(Function {
                name: name.to_owned(),
                file: None,
                line,
            })
        };
        assert_eq!(of("handle (app.py:42)", Some(42)), "handle (app.py)");
        assert_eq!(of("handle (app.py:42)", None), "handle (app.py:42)");
        assert_eq!(of("shop::sell(int)", Some(42)), "shop::sell(int)");
        assert!(!is_library("malloc (app.py:42)"));
    }

    #[test]
    fn a_path_that_is_in_one_trace_only_grew_or_went() {
        let path = |name: &str, bytes: f64, error: f64| Path {
            functions: vec![name.to_owned()],
            bytes,
            error,
        };
        let before = vec![path("a", 100.0, 3.0), path("gone", 50.0, 0.0)];
        let after = vec![path("a", 104.0, 4.0), path("new", 70.0, 0.0)];
        let changed = compare(before, after);
        let said: Vec<_> = changed
            .iter()
            .map(|one| (one.functions[0].as_str(), one.grown(), one.is_sure()))
            .collect();
        assert_eq!(
            said,
            [
                ("new", 70.0, true),
                ("a", 4.0, false),
                ("gone", -50.0, true)
            ]
        );
        assert_eq!(changed[1].error, 5.0);
    }

    #[test]
    fn allocators_and_the_standard_library_are_told_from_programs() {
        for name in [
            "operator new(unsigned long)",
            "std::vector<int>::push_back(int const&)",
            "void std::vector<int>::_M_realloc_insert<int>(int)",
            "_int_malloc",
            "__GI___libc_malloc",
            "alloc::alloc::alloc",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
        ] {
            assert!(is_library(name), "{name}");
        }
        for name in ["main", "shop::sell(int)", "mine::std_like()", "strategy"] {
            assert!(!is_library(name), "{name}");
        }
    }
}
