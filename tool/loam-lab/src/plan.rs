//! Makes the plan of what to measure. Names become programs and libraries, or an error that lists
//! the names that exist.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use thiserror::Error;

use loam_format::results::{
    AllocatorRecord, Case, ExperimentRecord, Form, Options, Results, State, TraceRecord, FORMAT,
    VERSION,
};
use loam_format::words;
use loam_process::code::build_id;
use loam_process::layout::Layout;

use crate::allocators::spec::{self, Picked};
use crate::allocators::{discover, wine, Allocator, Status};
use crate::experiments::{self, CaseContext, Experiment};
use crate::identity;
use crate::machine;
use crate::measure::now;
use crate::options::MeasureOptions;

/// Why nothing can be measured.
#[derive(Debug, Error)]
pub enum PlanError {
    /// No experiment of that name.
    #[error("unknown experiment `{name}`{}\n  there are: {known}", suggestion.as_ref()
        .map(|other| format!("; did you mean `{other}`?")).unwrap_or_default())]
    Unknown {
        /// Its name.
        name: String,
        /// What was probably meant.
        suggestion: Option<String>,
        /// All there are.
        known: String,
    },
    /// The experiment is known, but its program is not built.
    #[error("experiment `{name}` is not built: there is no {path}; `{remedy}` builds it")]
    NotBuilt {
        /// Its name.
        name: String,
        /// Where its program would be.
        path: String,
        /// What builds it.
        remedy: &'static str,
    },
    /// There are no programs at all.
    #[error("no workloads found (looked in {looked_in}); `{remedy}` builds them")]
    NoWorkloads {
        /// The folders that were searched.
        looked_in: String,
        /// What builds them.
        remedy: &'static str,
    },
}

/// The plan of a run.
pub struct Plan {
    experiments: Vec<ExperimentRecord>,
    allocators: Vec<AllocatorRecord>,
    /// Labels of the allocators that the user asked for.
    wanted: Vec<String>,
}

/// Makes the plan.
pub fn make(options: &MeasureOptions, layout: &Layout) -> Result<Plan> {
    let dir = workloads_dir(options, layout)?;
    let chosen = choose(options, &dir)?;
    let available = match options.windows {
        true => wine::all(&dir),
        false => discover::all(layout),
    };
    let (allocators, picked) = pick_of(&options.allocators, available)?;
    let labels: Vec<String> = picked.iter().map(|one| one.label.clone()).collect();
    let loam = picked.iter().find(|one| one.allocator.name == "loam");
    let context = CaseContext {
        labels: &labels,
        loam: loam.map(|one| one.label.as_str()),
        form: options.form,
        rounds: options.rounds,
    };
    let mut experiments = Vec::new();
    for experiment in chosen {
        let workload = dir.join(experiment.name());
        let sha256 = identity::sha256(&workload)
            .with_context(|| format!("{} can not be read", workload.display()))?;
        let mut cases = experiment.cases(&context);
        if options.windows && options.form == Form::Quick {
            for case in &mut cases {
                case.arguments
                    .extend(wine::quick_arguments(experiment.name()));
            }
        }
        experiments.push(ExperimentRecord {
            name: experiment.name().to_owned(),
            workload,
            sha256,
            cases,
            trace: None,
            part: None,
        });
    }
    Ok(Plan {
        experiments,
        allocators,
        wanted: labels,
    })
}

/// The allocators to measure. The first list also has the absent allocators, if the user asked for
/// all.
fn pick_of(
    wanted: &[String],
    available: Vec<Allocator>,
) -> Result<(Vec<AllocatorRecord>, Vec<Picked>)> {
    let picked = if wanted.is_empty() {
        let found = available
            .iter()
            .filter(|allocator| allocator.status == Status::Found);
        found.cloned().map(Picked::plain).collect()
    } else {
        spec::pick(wanted, &available)?
    };
    let mut allocators = Vec::new();
    for one in &picked {
        allocators.push(record_of(one)?);
    }
    if wanted.is_empty() {
        // The user asked for all allocators, so the report lists the absent ones too.
        let absent = available
            .iter()
            .filter(|allocator| allocator.status != Status::Found);
        allocators.extend(absent.map(record_of_absent));
    }
    Ok((allocators, picked))
}

/// A trace that is ready to be replayed.
#[derive(Debug)]
pub struct Ready {
    /// The replayer's arguments.
    pub arguments: Vec<String>,
    /// The trace's record in the results file.
    pub record: TraceRecord,
}

/// A plan that replays a trace: one program, one case, the allocators of the options. The recorded
/// allocator is measured too if it is on this machine, because the error of the replay is computed
/// from it.
pub fn replay(
    options: &MeasureOptions,
    layout: &Layout,
    replayer: &Path,
    ready: Ready,
) -> Result<Plan> {
    let available = discover::all(layout);
    let recorded = spec::known(&ready.record.recorded_allocator, &available).cloned();
    let (mut allocators, picked) = pick_of(&options.allocators, available)?;
    let mut trace = ready.record;
    let is_same = |record: &AllocatorRecord| {
        record.measured
            && (record.name == trace.recorded_allocator || record.label == trace.recorded_allocator)
    };
    let wanted: Vec<String> = picked.iter().map(|one| one.label.clone()).collect();
    let mut labels = wanted.clone();
    let plain = allocators
        .iter()
        .find(|record| is_same(record) && record.environment.is_empty());
    let same = plain.or_else(|| allocators.iter().find(|record| is_same(record)));
    trace.same_allocator = same.map(|record| record.label.clone());
    // An allocator that can not be found is no error: then there is nothing to compare with.
    if let (None, Some(recorded)) = (&trace.same_allocator, recorded) {
        let record = record_of(&Picked::plain(recorded))?;
        labels.insert(0, record.label.clone());
        trace.same_allocator = Some(record.label.clone());
        allocators.insert(0, record);
    }
    let experiment = experiment("replay", options, replayer, ready.arguments, labels, trace)?;
    Ok(Plan {
        experiments: vec![experiment],
        allocators,
        wanted,
    })
}

fn experiment(
    name: &str,
    options: &MeasureOptions,
    replayer: &Path,
    arguments: Vec<String>,
    allocators: Vec<String>,
    trace: TraceRecord,
) -> Result<ExperimentRecord> {
    let sha256 = identity::sha256(replayer)
        .with_context(|| format!("{} can not be read", replayer.display()))?;
    let case = Case {
        name: "malloc".to_owned(),
        arguments,
        allocators,
        rounds: options.rounds,
    };
    Ok(ExperimentRecord {
        name: name.to_owned(),
        workload: replayer.to_owned(),
        sha256,
        cases: vec![case],
        trace: Some(trace),
        part: None,
    })
}

impl Plan {
    /// Labels of the allocators that the user asked for. Further allocators may be measured to
    /// compute the error of a replay.
    pub fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Replays another trace beside the first one, under another name, on the allocators that the
    /// user asked for.
    pub fn beside(
        mut self,
        name: &str,
        options: &MeasureOptions,
        replayer: &Path,
        ready: Ready,
    ) -> Result<Plan> {
        let allocators = self.wanted.clone();
        let (arguments, trace) = (ready.arguments, ready.record);
        let more = experiment(name, options, replayer, arguments, allocators, trace)?;
        self.experiments.push(more);
        Ok(self)
    }
}

/// The file's digest, which identifies it.
pub fn digest(path: &Path) -> Result<String> {
    identity::sha256(path).with_context(|| format!("{} can not be read", path.display()))
}

impl Plan {
    /// An empty results file for the plan.
    pub fn into_results(self, options: &MeasureOptions, layout: &Layout) -> Results {
        let created = now();
        Results {
            format: FORMAT.to_owned(),
            version: VERSION,
            state: State::Running,
            updated: created.clone(),
            created,
            tool: machine::tool(layout.source_root().as_deref()),
            machine: machine::current(),
            options: Options {
                form: options.form,
                seed: options.seed,
                rounds: options.rounds,
                timeout_seconds: options.timeout.as_secs(),
            },
            experiments: self.experiments,
            allocators: self.allocators,
            trials: Vec::new(),
        }
    }
}

fn workloads_dir(options: &MeasureOptions, layout: &Layout) -> Result<PathBuf, PlanError> {
    let candidates = match &options.workloads_dir {
        Some(dir) => vec![dir.clone()],
        None if options.windows => layout.windows_workload_dirs(),
        None => layout.workload_dirs(),
    };
    let found = candidates.iter().find(|dir| !executables(dir).is_empty());
    // An absolute path: the program is started by it, and the report names it.
    found
        .map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone()))
        .ok_or_else(|| {
            let dirs: Vec<String> = candidates
                .iter()
                .map(|dir| dir.display().to_string())
                .collect();
            PlanError::NoWorkloads {
                looked_in: words::list(&dirs),
                remedy: remedy(options),
            }
        })
}

/// The command that builds the programs.
fn remedy(options: &MeasureOptions) -> &'static str {
    match options.windows {
        true => "make windows",
        false => "make build",
    }
}

fn choose(options: &MeasureOptions, dir: &Path) -> Result<Vec<Box<dyn Experiment>>, PlanError> {
    let (names, form) = (&options.names, options.form);
    let built = executables(dir);
    let known = || {
        let mut known: Vec<String> = experiments::NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        known.extend(
            built
                .iter()
                .filter(|name| !experiments::NAMES.contains(&name.as_str()))
                .cloned(),
        );
        known
    };
    if names.is_empty() {
        let is_wanted =
            |name: &String| form == Form::Full || experiments::QUICK_SET.contains(&name.as_str());
        let mut wanted: Vec<String> = known();
        wanted.retain(|name| built.contains(name) && is_wanted(name));
        if wanted.is_empty() {
            wanted = built;
        }
        return Ok(wanted
            .iter()
            .map(|name| experiments::of_name(name))
            .collect());
    }
    let mut chosen: Vec<Box<dyn Experiment>> = Vec::new();
    for name in names {
        if built.contains(name) {
            // An experiment that is named twice is measured once.
            if !chosen.iter().any(|experiment| experiment.name() == name) {
                chosen.push(experiments::of_name(name));
            }
        } else if experiments::NAMES.contains(&name.as_str()) {
            let path = dir.join(name).display().to_string();
            return Err(PlanError::NotBuilt {
                name: name.clone(),
                path,
                remedy: remedy(options),
            });
        } else {
            let known = known();
            let suggestion = words::nearest(name, known.iter().map(String::as_str));
            return Err(PlanError::Unknown {
                name: name.clone(),
                suggestion: suggestion.map(str::to_owned),
                known: built.join(", "),
            });
        }
    }
    Ok(chosen)
}

/// Names of the programs in a folder.
fn executables(dir: &Path) -> Vec<String> {
    let is_program = |path: &Path| {
        let executable =
            |meta: fs::Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
        fs::metadata(path).is_ok_and(executable)
    };
    let entries = fs::read_dir(dir)
        .map(|entries| entries.flatten().collect())
        .unwrap_or_default();
    let entries: Vec<fs::DirEntry> = entries;
    let mut names: Vec<String> = entries
        .iter()
        .filter(|entry| is_program(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn record_of(picked: &Picked) -> Result<AllocatorRecord> {
    let allocator = &picked.allocator;
    let sha256 = match &allocator.path {
        Some(path) => Some(
            identity::sha256(path)
                .with_context(|| format!("{} can not be read", path.display()))?,
        ),
        None => None,
    };
    Ok(AllocatorRecord {
        label: picked.label.clone(),
        measured: true,
        environment: picked.environment.clone(),
        sha256,
        build_id: allocator.path.as_deref().and_then(build_id),
        ..record_of_absent(allocator)
    })
}

fn record_of_absent(allocator: &Allocator) -> AllocatorRecord {
    AllocatorRecord {
        label: allocator.name.clone(),
        name: allocator.name.clone(),
        title: allocator.title.clone(),
        measured: false,
        version: allocator.version.clone(),
        path: allocator.path.clone(),
        source: allocator.source.clone(),
        environment: allocator.environment.clone(),
        sha256: None,
        build_id: None,
        reason: allocator.reason.clone(),
        remedy: allocator.remedy.clone(),
    }
}
