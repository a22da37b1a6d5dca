//! `loam lab`: its arguments, resolved into plain options. clap's types stop here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use loam_format::results::Form;
use loam_lab::options::{Earlier, MeasureOptions};

/// Measure allocators against each other and show what was found.
///
/// Each experiment is a program that is run afresh for every trial, with one allocator after the
/// other preloaded, in an order that changes from round to round. After every trial the results
/// file is written anew, so that an interruption loses nothing; tables and the report are made
/// from that file alone (`loam lab show`). Without a NAME the quick set is run: about two minutes.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = USAGE,
    after_help = EXAMPLES
)]
pub struct LabArgs {
    #[command(subcommand)]
    verb: Option<LabVerb>,

    #[command(flatten)]
    measure: MeasureArgs,
}

const USAGE: &str = "\
loam lab [OPTIONS] [NAME]...
       loam lab show RESULTS [--html FILE] [--markdown]
       loam lab compare A B
       loam lab merge RESULTS... --output FILE";

const EXAMPLES: &str = "\
Examples:
  loam lab                                          the quick set, every allocator found
  loam lab lfh --allocators system,loam,jemalloc    one experiment, three allocators
  loam lab lfh --allocators jemalloc,tight=jemalloc:MALLOC_CONF=dirty_decay_ms:0
                                                    two settings of one allocator
  loam lab lfh --windows                            programs for Windows, under Wine
  loam lab --json r.json --resume                   go on where an interruption stopped
  loam lab show r.json --html r.html                table and report again
  loam lab compare before.json after.json           what changed between two runs
  loam lab merge job-*.json --output all.json       jobs of one sweep in one file";

#[derive(Debug, Subcommand)]
enum LabVerb {
    Show(ShowArgs),
    Compare(CompareArgs),
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
struct MeasureArgs {
    /// Experiments to run; without any, the quick set (with --full: all that are built)
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Small sizes and few rounds (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Full sizes and more rounds
    #[arg(long)]
    full: bool,

    /// Allocators to measure: NAME, PATH or LABEL=NAME, each with :VARIABLE=VALUE settings
    ///
    /// Separated by commas; the option may be repeated. NAME is one of those that `loam
    /// allocators` lists; PATH is a shared object. `NAME:memory` is the setting with which the
    /// allocator's authors advise to save memory. Without the option: every allocator found.
    #[arg(long, value_name = "LIST")]
    allocators: Vec<String>,

    /// Where the results go (default: loam-lab-DATE.json here)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where the report goes (default: beside the results)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Seeds every random choice of the experiments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Rounds: trials of each allocator (default: 3, with --full 9)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: Option<u32>,

    /// Keep the finished trials of the results file and run what is missing
    #[arg(long, requires = "json")]
    resume: bool,

    /// Replace the results of an earlier run, which are refused otherwise
    #[arg(long, requires = "json", conflicts_with = "resume")]
    overwrite: bool,

    /// Seconds after which a trial is stopped (default: 120, with --full 3600)
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: Option<u64>,

    /// Programs for Windows under Wine: on its heaps, and on Loam
    ///
    /// `make windows` builds them. They run on the process heap, on the same with low fragmentation
    /// requested, on a private heap, and on Loam. All figures are Wine's: they say nothing about
    /// the heap of Windows, nor about Loam's speed there.
    #[arg(long, conflicts_with = "allocators")]
    windows: bool,

    /// Where the workloads are, for tests
    #[arg(long, value_name = "DIR", hide = true)]
    workloads_dir: Option<PathBuf>,
}

/// Show a results file: the table again, and the report if asked for.
#[derive(Debug, Args)]
struct ShowArgs {
    /// A results file that `loam lab` wrote
    results: PathBuf,

    /// Write the report to this file too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print the tables as Markdown, to be put into a document
    #[arg(long)]
    markdown: bool,
}

/// Compare two results files: what changed from A to B, for each experiment and allocator.
#[derive(Debug, Args)]
struct CompareArgs {
    /// The results to compare with
    a: PathBuf,
    /// The results to judge
    b: PathBuf,
}

/// Merge the results files of jobs and machines into one, which `loam lab show` draws.
///
/// What like machines measured of the same program or trace becomes one table, with more rounds.
/// What another machine, program or trace gave is a table of its own: no figure is formed over two
/// machines. Files that do not belong together are refused.
#[derive(Debug, Args)]
struct MergeArgs {
    /// Results files that `loam lab` or `loam replay` wrote
    #[arg(required = true)]
    results: Vec<PathBuf>,

    /// The file that is written
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the output if it exists
    #[arg(long)]
    overwrite: bool,
}

/// The resolved arguments of `lab`.
#[derive(Debug)]
pub enum LabAction {
    /// Run experiments.
    Measure(MeasureOptions),
    /// Draw a results file.
    Show {
        /// The results file.
        results: PathBuf,
        /// The file for the report, if one is wanted.
        html: Option<PathBuf>,
        /// Whether to print the tables as Markdown.
        markdown: bool,
    },
    /// Compare two results files.
    Compare {
        /// The earlier results.
        a: PathBuf,
        /// The later results.
        b: PathBuf,
    },
    /// Merge results files.
    Merge {
        /// The files.
        results: Vec<PathBuf>,
        /// The file for the merged results.
        output: PathBuf,
        /// Whether that file may be replaced.
        overwrite: bool,
    },
}

impl LabArgs {
    /// Resolves the arguments, and sets the defaults that depend on the form.
    pub fn resolve(self) -> LabAction {
        match self.verb {
            Some(LabVerb::Show(show)) => LabAction::Show {
                results: show.results,
                html: show.html,
                markdown: show.markdown,
            },
            Some(LabVerb::Compare(compare)) => LabAction::Compare {
                a: compare.a,
                b: compare.b,
            },
            Some(LabVerb::Merge(merge)) => LabAction::Merge {
                results: merge.results,
                output: merge.output,
                overwrite: merge.overwrite,
            },
            None => LabAction::Measure(self.measure.resolve()),
        }
    }
}

impl MeasureArgs {
    fn resolve(self) -> MeasureOptions {
        let form = if self.full { Form::Full } else { Form::Quick };
        let (rounds, timeout) = match form {
            Form::Quick => (3, 120),
            Form::Full => (9, 3600),
        };
        MeasureOptions {
            names: self.names,
            form,
            allocators: self.allocators,
            json: self.json,
            html: self.html,
            seed: self.seed,
            rounds: self.trials.unwrap_or(rounds),
            earlier: match (self.resume, self.overwrite) {
                (true, _) => Earlier::Resume,
                (_, true) => Earlier::Overwrite,
                _ => Earlier::Keep,
            },
            timeout: Duration::from_secs(self.timeout.unwrap_or(timeout)),
            workloads_dir: self.workloads_dir,
            windows: self.windows,
        }
    }
}
