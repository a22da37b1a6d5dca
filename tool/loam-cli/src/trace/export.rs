//! `loam trace export`: writes a table, stacks, a profile or a dataset, to a file, a folder or
//! standard output.

use std::io::{self, BufWriter, Write};

use anyhow::Result;

use loam_lab::replay::{self, lineage};
use loam_lab::traces::summary;

use super::args::{ExportOptions, Format, Table};
use super::rows::{Rows, Sink};
use super::tables::{self, EventRow};
use super::{dataset, firefox, profile};
use crate::exit::Exit;
use crate::output::{self, LateFile};

/// Runs the export.
pub fn run(options: &ExportOptions) -> Result<Exit> {
    if let Some(dataset) = &options.dataset {
        dataset::write(&options.trace, options.process, dataset)?;
        return Ok(Exit::Done);
    }
    lineage::require_file(&options.trace)?;
    let needs_stacks = matches!(
        options.format,
        Format::Collapsed | Format::Flame | Format::Pprof
    );
    if needs_stacks || options.table == Table::Stacks {
        profile::require_stacks(&options.trace)?;
    }
    match &options.output {
        Some(path) => {
            output::require_other_file(&options.trace, path)?;
            let mut file = LateFile::new(path);
            write(options, BufWriter::new(&mut file))?;
            file.finish()?;
        }
        None => write(options, BufWriter::new(io::stdout()))?,
    }
    Ok(Exit::Done)
}

fn write(options: &ExportOptions, out: impl Write + Send) -> Result<()> {
    match options.format {
        Format::Collapsed | Format::Flame | Format::Pprof => profile::write(options, out),
        Format::Firefox => firefox::write(options, out),
        Format::Csv | Format::Jsonl | Format::Parquet => {
            // The error itself must show that the reader has gone, so it is taken out of the error
            // around it.
            rows(options, out).map_err(|error| match error.downcast::<replay::ReplayError>() {
                Ok(replay::ReplayError::Io { source, .. }) => source.into(),
                Ok(other) => other.into(),
                Err(other) => other,
            })
        }
    }
}

fn rows(options: &ExportOptions, out: impl Write + Send) -> Result<()> {
    let survey = replay::survey(&options.trace)?;
    let header = serde_json::to_string(&survey.header)?;
    let format = options.format;
    let chosen: Vec<u32> = match (options.process, options.table) {
        (Some(process), _) => vec![survey.choose(Some(process))?],
        // Blocks and stacks have many rows, so only one process is exported.
        (None, Table::Blocks | Table::Stacks) => vec![survey.choose(None)?],
        (None, _) => survey.processes.keys().copied().collect(),
    };
    let figures = |process: &u32| summary::of(&survey, *process);
    let rows = match options.table {
        Table::Events => {
            let mut rows = Rows::new::<EventRow>(format, &header, out)?;
            for damage in tables::events(&survey, options.process, &mut rows)? {
                output::print_warning(&damage);
            }
            rows
        }
        Table::Samples => {
            let mut rows = Rows::new::<tables::SampleRow>(format, &header, out)?;
            for process in chosen {
                tables::samples(&survey, process, &mut rows)?;
            }
            rows
        }
        Table::Blocks => {
            let mut rows = Rows::new::<tables::BlockRow>(format, &header, out)?;
            for process in chosen {
                tables::blocks(&survey, process, &mut rows)?;
            }
            rows
        }
        Table::Processes => {
            let mut rows = Rows::new::<tables::ProcessRow>(format, &header, out)?;
            for process in &chosen {
                rows.row(&tables::process(&survey, &figures(process)?))?;
            }
            rows
        }
        Table::Sizes => {
            let mut rows = Rows::new::<tables::SizeRow>(format, &header, out)?;
            for process in &chosen {
                for row in tables::sizes(&figures(process)?) {
                    rows.row(&row)?;
                }
            }
            rows
        }
        Table::Threads => {
            let mut rows = Rows::new::<tables::ThreadRow>(format, &header, out)?;
            for process in &chosen {
                for row in tables::threads(&figures(process)?) {
                    rows.row(&row)?;
                }
            }
            rows
        }
        Table::Marks => {
            let mut rows = Rows::new::<tables::MarkRow>(format, &header, out)?;
            for process in chosen {
                tables::marks(&survey, process, &mut rows)?;
            }
            rows
        }
        Table::Stacks => {
            let mut rows = Rows::new::<tables::StackRow>(format, &header, out)?;
            for process in chosen {
                tables::stacks(&survey, process, &mut rows)?;
            }
            rows
        }
    };
    rows.finish()?;
    Ok(())
}
