//! Traces in the forms that other programs take.
//!
//! ```text
//! tables (rows of a trace) -> rows: CSV, JSON lines, parquet
//!                          -> dataset: parquet files of many traces
//! stacks -> profile: collapsed lines, pprof; flame: a page
//! live bytes, marks, stacks -> firefox: a profile for the Firefox Profiler
//! ```

pub mod dataset;
mod firefox;
mod flame;
mod parquet;
mod profile;
mod rows;
mod tables;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use loam_lab::replay::{self, lineage};
use loam_lab::traces::of::Of;
use loam_lab::traces::{stacks, summary};

use rows::{Rows, Sink};

/// A table of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Every event.
    Events,
    /// The memory of the process, at each look.
    Samples,
    /// Every block.
    Blocks,
    /// Every process.
    Processes,
    /// Blocks by size.
    Sizes,
    /// Every thread.
    Threads,
    /// The program's marks.
    Marks,
    /// Stacks of sampled blocks.
    Stacks,
}

/// How a trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The table as comma-separated values with a header.
    Csv,
    /// The table as JSON lines.
    Jsonl,
    /// The table as Parquet.
    Parquet,
    /// Stacks as lines.
    Collapsed,
    /// Stacks as a page.
    Flame,
    /// Stacks for pprof.
    Pprof,
    /// A profile for the Firefox Profiler.
    Firefox,
}

/// What is to be written.
#[derive(Debug)]
pub struct Export {
    /// The trace.
    pub trace: PathBuf,
    /// Which table, if the format has tables.
    pub table: Table,
    /// In which format.
    pub format: Format,
    /// Which bytes of stacks.
    pub of: Of,
    /// The process.
    pub process: Option<u32>,
}

impl Export {
    /// Fails if the trace can not be exported so.
    pub fn require(&self) -> Result<()> {
        lineage::require_file(&self.trace)?;
        let needs_stacks = matches!(
            self.format,
            Format::Collapsed | Format::Flame | Format::Pprof
        );
        if needs_stacks || self.table == Table::Stacks {
            stacks::require(&self.trace)?;
        }
        Ok(())
    }

    /// Writes it. Returns what its reader should know: damage of the trace, and doubts about the
    /// functions' names.
    pub fn write(&self, out: impl Write + Send) -> Result<Vec<String>> {
        match self.format {
            Format::Collapsed | Format::Flame | Format::Pprof => profile::write(self, out),
            Format::Firefox => firefox::write(self, out),
            Format::Csv | Format::Jsonl | Format::Parquet => {
                // The error itself must show that the reader has gone, so it is taken out of the
                // error around it.
                self.rows(out)
                    .map_err(|error| match error.downcast::<replay::ReplayError>() {
                        Ok(replay::ReplayError::Io { source, .. }) => source.into(),
                        Ok(other) => other.into(),
                        Err(other) => other,
                    })
            }
        }
    }

    fn rows(&self, out: impl Write + Send) -> Result<Vec<String>> {
        let survey = replay::survey(&self.trace)?;
        let header = serde_json::to_string(&survey.header)?;
        let format = self.format;
        let chosen: Vec<u32> = match (self.process, self.table) {
            (Some(process), _) => vec![survey.choose(Some(process))?],
            // Blocks and stacks have many rows, so only one process is exported.
            (None, Table::Blocks | Table::Stacks) => vec![survey.choose(None)?],
            (None, _) => survey.processes.keys().copied().collect(),
        };
        let mut told = survey.faults(&chosen);
        let figures = |process: &u32| summary::of(&survey, *process);
        let rows = match self.table {
            Table::Events => {
                let mut rows = Rows::new::<tables::EventRow>(format, &header, out)?;
                tables::events(&survey, self.process, &mut rows)?;
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
                    told.extend(tables::stacks(&survey, process, &mut rows)?);
                }
                rows
            }
        };
        rows.finish()?;
        Ok(told)
    }
}
