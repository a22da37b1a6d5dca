//! The heaps for Windows programs under Wine: those that `loam lab --windows` measures.
//!
//! Nothing is preloaded. The programs choose the heap by an environment variable. The folder of the
//! workloads has a program that describes the system's heap. That heap is Wine's, never called
//! Windows'.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Allocator, Status};

/// The environment variable that the workloads for Windows read (`native/windows/run.in`,
/// `native/windows/system_heap.cpp`).
pub const HEAP_VARIABLE: &str = "LOAM_LAB_HEAP";

/// The heaps. Each name starts with what the heap is, so that every row of a table and every line
/// of a chart shows it.
const HEAPS: [(&str, &str, &str); 4] = [
    ("wine-process", "Wine's process heap", "process"),
    (
        "wine-lfh",
        "Wine's process heap, low fragmentation requested",
        "lfh",
    ),
    ("wine-private", "a private heap of Wine's", "private"),
    ("loam-wine", "Loam for Windows, under Wine", "loam"),
];

/// A further parameter of a workload in the quick form, and its value. Wine's own heap slows down
/// so much as it fills that these workloads would need minutes for each trial with their usual
/// sizes.
const SMALLER: [(&str, &str, &str); 4] = [
    ("lfh", "--iterations", "1600000"),
    ("contention", "--iterations", "125000"),
    ("phase", "--live", "25000000"),
    ("sparse", "--live", "25000000"),
];

/// Further arguments of a workload in the quick form.
pub fn quick_arguments(workload: &str) -> Vec<String> {
    let smaller = SMALLER.iter().find(|(name, ..)| *name == workload);
    let words = smaller.map(|(_, parameter, value)| [(*parameter).to_owned(), (*value).to_owned()]);
    words.into_iter().flatten().collect()
}

/// The heaps that the workloads of a folder can measure: either all of them, or none with the
/// reason.
pub fn all(workloads: &Path) -> Vec<Allocator> {
    let about = about(&workloads.join("bin/about"));
    let one = |(name, title, heap): (&str, &str, &str)| Allocator {
        name: name.to_owned(),
        title: title.to_owned(),
        status: match about {
            Ok(_) => Status::Found,
            Err(_) => Status::Absent,
        },
        version: None,
        path: None,
        source: about.clone().unwrap_or_default(),
        environment: BTreeMap::from([(HEAP_VARIABLE.to_owned(), heap.to_owned())]),
        memory_environment: BTreeMap::new(),
        reason: about.clone().err(),
        remedy: about.is_err().then(|| "make setup-test windows".to_owned()),
    };
    HEAPS.into_iter().map(one).collect()
}

/// One line that describes the system's heap.
fn about(program: &Path) -> Result<String, String> {
    let failed = |reason: String| format!("{} does not run: {reason}", program.display());
    let output = Command::new(program)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && !line.is_empty() {
        true => Ok(line),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_their_programs_all_are_absent_and_say_why() {
        let heaps = all(Path::new("/nowhere"));
        assert_eq!(heaps.len(), 4);
        for heap in heaps {
            assert_eq!(heap.status, Status::Absent);
            assert!(heap.reason.unwrap().contains("/nowhere/bin/about"));
            assert!(heap.name.contains("wine") && heap.title.contains("Wine"));
        }
    }
}
