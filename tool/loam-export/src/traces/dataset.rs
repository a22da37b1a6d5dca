//! A trace's part of a dataset: tables of many traces, by host, program and day.
//!
//! ```text
//! DATASET/TABLE/host=HOST/program=PROGRAM/day=YYYY-MM-DD/TRACE.parquet
//! ```
//!
//! `TRACE` is the beginning of the trace's digest, and a column of every table. If the same trace
//! is exported again, its files are replaced. A file appears only when it is complete, so any
//! number of exports may run at once.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use tempfile::NamedTempFile;

use loam_format::plain;
use loam_lab::experiments::replay as trials;
use loam_lab::replay::{self, Survey};
use loam_lab::traces::summary;
use loam_lab::{plan, store};

use super::parquet::Parquet;
use super::rows::{Row, Sink};
use super::tables::{self, ReplayRow};

/// Characters of the trace's digest.
const DIGITS: usize = 16;
/// A process with less than one in this many of the trace's events is left out, because each
/// process costs a walk over the trace.
const SHARE: u64 = 100;

/// The description of a trace in a dataset.
#[derive(Debug)]
pub struct Entry {
    /// The dataset's folder.
    pub folder: PathBuf,
    /// The host on which the trace was recorded; none: the one that it names.
    pub host: Option<String>,
    /// The day on which the trace was recorded; none: the one that it names.
    pub day: Option<String>,
    /// The release of the program.
    pub release: Option<String>,
    /// Results files of replays of the trace.
    pub replays: Vec<PathBuf>,
}

/// What was added to a dataset.
#[derive(Debug, Default)]
pub struct Added {
    /// How many processes.
    pub processes: usize,
    /// How many others had too few events.
    pub left_out: usize,
    /// The doubts about the functions' names.
    pub doubts: Vec<String>,
}

/// Adds the trace to the dataset.
pub fn write(trace: &Path, process: Option<u32>, entry: &Entry) -> Result<Added> {
    let survey = replay::survey_of_all(trace)?;
    survey.choose(process)?;
    let digest = plan::digest(trace)?;
    let place = Place::of(&survey, &digest, entry)?;
    let (chosen, left_out) = chosen(&survey, process);
    let mut programs: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for process in &chosen {
        programs
            .entry(program(&survey, *process))
            .or_default()
            .push(*process);
    }
    let replays = replays(&digest, &entry.replays)?;
    let mut doubts = Vec::new();
    for (program, processes) in &programs {
        doubts.extend(place.write(&survey, program, processes)?);
        for (results, rows) in &replays {
            let rows: Vec<_> = rows
                .iter()
                .filter(|row| processes.contains(&row.process))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let mut file = place.table::<ReplayRow>(program, &format!("{}-{results}", place.id))?;
            rows.into_iter().try_for_each(|row| file.row(row))?;
            file.keep()?;
        }
    }
    Ok(Added {
        processes: chosen.len(),
        left_out,
        doubts,
    })
}

/// The processes that get a row: those with at least a hundredth of the events. Also how many have
/// fewer.
fn chosen(survey: &Survey, process: Option<u32>) -> (Vec<u32>, usize) {
    if let Some(process) = process {
        return (vec![process], 0);
    }
    let events: u64 = survey.processes.values().map(|one| one.events).sum();
    let (large, small): (Vec<u32>, Vec<u32>) = survey
        .processes
        .keys()
        .partition(|stream| survey.processes[stream].events * SHARE >= events.max(1));
    (large, small.len())
}

fn program(survey: &Survey, process: u32) -> String {
    let path = &survey.processes[&process].process.program;
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// The trials of the trace in each results file. The key is the beginning of the file's digest.
fn replays(digest: &str, results: &[PathBuf]) -> Result<Vec<(String, Vec<ReplayRow>)>> {
    let read = |path: &PathBuf| {
        let results = store::load(path)?;
        let rows: Vec<ReplayRow> = trials::trials(&results, digest)
            .into_iter()
            .map(|trial| ReplayRow::of(trial, &results))
            .collect();
        if rows.is_empty() {
            bail!(
                "{} has no trial of this trace; `loam replay TRACE --json FILE` writes such a file",
                plain::path(path)
            );
        }
        let own = plan::digest(path)?;
        Ok((own[..DIGITS.min(own.len())].to_owned(), rows))
    };
    results.iter().map(read).collect()
}

/// The place of a trace's files.
struct Place<'a> {
    folder: &'a Path,
    host: String,
    day: String,
    id: String,
    header: String,
    release: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn of(survey: &Survey, digest: &str, entry: &'a Entry) -> Result<Place<'a>> {
        let header = &survey.header;
        let shown = plain::path(&survey.path);
        let host = entry.host.clone().unwrap_or(header.host.clone());
        if host.is_empty() && entry.host.is_some() {
            bail!("--host needs a name");
        }
        if host.is_empty() {
            bail!("{shown} does not say on which host it was recorded; name it with --host");
        }
        let started = header.started.split('T').next().unwrap_or("");
        let day = entry.day.clone().unwrap_or(started.to_owned());
        if let Some(named) = entry.day.as_ref().filter(|named| !is_day(named)) {
            bail!("--day takes a day as YYYY-MM-DD, and `{named}` is none");
        }
        if !is_day(&day) {
            bail!(
                "{shown} does not say on which day it was recorded; name it with --day YYYY-MM-DD"
            );
        }
        Ok(Place {
            folder: &entry.folder,
            host,
            day,
            id: digest[..DIGITS.min(digest.len())].to_owned(),
            header: serde_json::to_string(header)?,
            release: entry.release.as_deref(),
        })
    }

    /// Writes the tables of the processes of one program. Returns the doubts about the functions'
    /// names.
    fn write(&self, survey: &Survey, program: &str, processes: &[u32]) -> Result<Vec<String>> {
        let mut rows = self.table::<tables::ProcessRow>(program, &self.id)?;
        let mut sizes = self.table::<tables::SizeRow>(program, &self.id)?;
        let mut threads = self.table::<tables::ThreadRow>(program, &self.id)?;
        let mut samples = self.table::<tables::SampleRow>(program, &self.id)?;
        let mut marks = self.table::<tables::MarkRow>(program, &self.id)?;
        let mut stacks = self.table::<tables::StackRow>(program, &self.id)?;
        let mut doubts = Vec::new();
        for process in processes {
            let figures = summary::of(survey, *process)?;
            rows.row(&tables::process(survey, &figures))?;
            tables::sizes(&figures).try_for_each(|row| sizes.row(&row))?;
            tables::threads(&figures).try_for_each(|row| threads.row(&row))?;
            tables::samples(survey, *process, &mut samples)?;
            tables::marks(survey, *process, &mut marks)?;
            doubts.extend(tables::stacks(survey, *process, &mut stacks)?);
        }
        rows.keep()?;
        sizes.keep()?;
        threads.keep()?;
        samples.keep()?;
        marks.keep()?;
        stacks.keep()?;
        Ok(doubts)
    }

    /// Begins a file of a table.
    fn table<R: Row>(&self, program: &str, name: &str) -> Result<Part> {
        let folder = self
            .folder
            .join(R::TABLE)
            .join(format!("host={}", escaped(&self.host)))
            .join(format!("program={}", escaped(program)))
            .join(format!("day={}", escaped(&self.day)));
        let told = || format!("{} can not be written", plain::path(&folder));
        fs::create_dir_all(&folder).with_context(told)?;
        // Readers skip names that begin like this.
        let file = tempfile::Builder::new()
            .prefix(".loam-")
            .tempfile_in(&folder)
            .with_context(told)?;
        let same = [("trace", Some(self.id.as_str())), ("release", self.release)];
        let out = BufWriter::new(file.reopen().with_context(told)?);
        Ok(Part {
            path: folder.join(format!("{name}.parquet")),
            rows: Parquet::new::<R>(&self.header, &same, out).with_context(told)?,
            file,
            any: false,
        })
    }
}

/// A file of a dataset that is being written.
struct Part {
    file: NamedTempFile,
    rows: Parquet<BufWriter<fs::File>>,
    path: PathBuf,
    any: bool,
}

impl Sink for Part {
    fn row(&mut self, row: &impl Row) -> io::Result<()> {
        self.any = true;
        self.rows.row(row)
    }
}

impl Part {
    /// Gives the file its name. If the table has no rows, there is no file.
    fn keep(self) -> Result<()> {
        let told = || format!("{} can not be written", plain::path(&self.path));
        self.rows.finish().with_context(told)?;
        if self.any {
            use std::os::unix::fs::PermissionsExt;
            let readable = fs::Permissions::from_mode(0o644);
            self.file
                .as_file()
                .set_permissions(readable)
                .with_context(told)?;
            self.file.persist(&self.path).with_context(told)?;
        }
        Ok(())
    }
}

/// `2026-11-27`
fn is_day(text: &str) -> bool {
    text.len() == 10 && humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok()
}

/// A value as the name of a folder. Characters with a meaning for readers of such names become
/// `%XX`.
fn escaped(value: &str) -> String {
    if value.is_empty() {
        return "__HIVE_DEFAULT_PARTITION__".to_owned();
    }
    let mut name = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'+' => {
                name.push(byte.into());
            }
            byte => name += &format!("%{byte:02X}"),
        }
    }
    name
}
