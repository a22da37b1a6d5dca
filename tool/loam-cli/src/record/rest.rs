//! A program whose whole recording took too much of its time: the rest of it is sampled, as of any
//! running process, into a file of its own. The first file stays as it is, and can be replayed.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::args::RecordOptions;
use super::ends::Ends;
use super::TICK;
use crate::exit::Exit;
use crate::output;

/// Where the sample is written: `t.trace` -> `t-sample.trace`.
pub fn path_beside(whole: &Path) -> PathBuf {
    let mut name = whole.file_stem().unwrap_or_default().to_owned();
    name.push("-sample");
    if let Some(extension) = whole.extension() {
        name.push(".");
        name.push(extension);
    }
    whole.with_file_name(name)
}

/// Samples the process, then waits for the program. Whatever goes wrong with the sample, the
/// program goes on.
pub fn sample(options: &RecordOptions, whole: &Path, pid: i32, mut ends: Ends) -> Result<Exit> {
    let options = RecordOptions {
        output: Some(path_beside(whole)),
        ..options.clone()
    };
    if let Err(error) = super::sampled(&options, pid, &mut ends) {
        output::print_warning(&format!("the rest is not sampled: {error:#}"));
    }
    Ok(match ends.wait_for_program(TICK)? {
        Some(status) => super::exit_of(status),
        // The second signal; the program goes on.
        None => Exit::Done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_lies_beside_the_whole() {
        let beside = |path: &str| path_beside(Path::new(path)).display().to_string();
        assert_eq!(beside("a/t.trace"), "a/t-sample.trace");
        assert_eq!(beside("t"), "t-sample");
        assert_eq!(beside("a.b/.t"), "a.b/.t-sample");
    }
}
