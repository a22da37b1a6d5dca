//! A program whose whole recording took too much of its time: the rest of it is sampled, as of any
//! running process, into a file of its own. The first file stays as it is, and can be replayed.

use std::path::Path;

use anyhow::Result;

use loam_record::ends::Ends;
use loam_record::recording::TICK;
use loam_record::target;

use super::args::RecordOptions;
use crate::exit::Exit;
use crate::output;

/// Samples the process, then waits for the program. Whatever goes wrong with the sample, the
/// program goes on.
pub fn sample(options: &RecordOptions, whole: &Path, pid: i32, mut ends: Ends) -> Result<Exit> {
    let options = RecordOptions {
        output: Some(target::path_beside(whole)),
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
