//! `loam trace export`: writes a table, stacks, a profile or a dataset, to a file, a folder or
//! standard output. `loam_export::traces` knows the formats.

use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::Result;

use loam_export::traces::dataset::{self, Entry};
use loam_format::words;
use loam_lab::traces::file::{require_other_file, LateFile};

use super::args::ExportOptions;
use crate::exit::Exit;
use crate::output;

/// Runs the export.
pub fn run(options: &ExportOptions) -> Result<Exit> {
    let export = &options.export;
    if let Some(entry) = &options.dataset {
        add(&export.trace, export.process, entry)?;
        return Ok(Exit::Done);
    }
    export.require()?;
    let told = match &options.output {
        Some(path) => {
            require_other_file(&export.trace, path)?;
            let mut file = LateFile::new(path, options.overwrite)?;
            let told = export.write(BufWriter::new(&mut file))?;
            file.finish()?;
            told
        }
        None => export.write(BufWriter::new(io::stdout()))?,
    };
    output::print_warnings(&told);
    Ok(Exit::Done)
}

fn add(trace: &Path, process: Option<u32>, entry: &Entry) -> Result<()> {
    let added = dataset::write(trace, process, entry)?;
    let processes = |count| words::count_of(count, "process", "processes");
    if added.left_out > 0 {
        output::say(&format!(
            "{} with less than 1 % of the events left out; --process names one",
            processes(added.left_out)
        ));
    }
    output::print_warnings(&added.doubts);
    output::say(&format!(
        "{} of {} in {}",
        processes(added.processes),
        output::path(trace),
        output::path(&entry.folder)
    ));
    Ok(())
}
