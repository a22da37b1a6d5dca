//! `loam trace`: its arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use loam_export::traces::dataset::Entry;
use loam_export::traces::{self, Export};
use loam_format::foreign;
use loam_lab::traces::import::Import;
use loam_lab::traces::of;

/// Show, check, export or import a trace of allocations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    #[command(subcommand)]
    verb: TraceVerb,
}

const EXAMPLES: &str = "\
Examples:
  loam trace info t.trace                                its rates, sizes, lifetimes, threads and \
peak
  loam trace check t.trace                               exit code 1 if something is wrong
  loam trace head -n 50 t.trace                          the first events
  loam trace export t.trace --table blocks > blocks.csv  a row for each block's life
  loam trace export t.trace --format pprof --output t.pb.gz && go tool pprof -top t.pb.gz
  loam trace export t.trace --format flame --output t.html  a flame graph for a browser
  loam trace diff monday.trace tuesday.trace             which call paths hold more than before
  loam trace export t.trace --dataset fleet              add it to a dataset for SQL queries
  loam trace import heaptrack.p.1.zst --output t.trace   make a trace from a recording of \
heaptrack";

#[derive(Debug, Subcommand)]
enum TraceVerb {
    Info(InfoArgs),
    Head(HeadArgs),
    Check(CheckArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Diff(DiffArgs),
}

/// Show by how much each call path grew between two traces.
///
/// The paths are compared by the names of their functions, so that the traces may be of two builds,
/// two machines or two hours. Both traces must have stacks. What is less than chance makes is left
/// out, and the JSON has it.
#[derive(Debug, Args)]
struct DiffArgs {
    /// The first trace
    before: PathBuf,

    /// The second trace
    after: PathBuf,

    /// Which bytes are counted
    #[arg(long, value_enum, default_value_t = Of::End)]
    of: Of,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Show what a program requested: rates, sizes, lifetimes, threads, and the blocks of the peak.
#[derive(Debug, Args)]
struct InfoArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Show this process, by its number in the list (default: the process that requested most
    /// bytes)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Print the first events of a trace.
#[derive(Debug, Args)]
struct HeadArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Print at most N events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    number: u64,

    /// Print only events of this process, by its number in `loam trace info`
    #[arg(long, value_name = "N")]
    process: Option<u32>,
}

/// Read a whole trace and say what is wrong with it.
///
/// The check finds damaged parts of the file, events that were not recorded, frees of blocks whose
/// allocation is not in the trace, blocks that overlap a live block, and a recording that was cut
/// off.
///
/// Exit code 0 if nothing is wrong, 1 if something is, 2 if the file can not be read as a trace.
#[derive(Debug, Args)]
struct CheckArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Write a trace as a table, as stacks or as a profile, for other programs.
///
/// Times are nanoseconds since the recording began. Addresses are decimal numbers. The table of
/// blocks has a row for each block of one process. A resize ends a row and begins another one.
#[derive(Debug, Args)]
struct ExportArgs {
    /// A trace, which `loam record` or `loam trace import` wrote
    trace: PathBuf,

    /// Write this table
    #[arg(long, value_enum, default_value_t = Table::Events)]
    table: Table,

    /// Write it in this format
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,

    /// Write only this process, by its number in `loam trace info` (default: all; of blocks and
    /// stacks, the process that requested most bytes)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// For collapsed stacks and flame graphs: which bytes are counted
    #[arg(long, value_enum, default_value_t = Of::Peak)]
    of: Of,

    /// Write to this file (default: standard output)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "output", conflicts_with = "dataset")]
    overwrite: bool,

    /// Add the trace to this dataset: a folder of Parquet tables by host, program and day
    #[arg(long, value_name = "DIR", conflicts_with_all = TO_A_FILE)]
    dataset: Option<PathBuf>,

    /// The host on which it was recorded (default: the one that the trace names)
    #[arg(long, value_name = "NAME", requires = "dataset", conflicts_with_all = TO_A_FILE)]
    host: Option<String>,

    /// The day on which it was recorded, as YYYY-MM-DD (default: the one that the trace names)
    #[arg(long, value_name = "DAY", requires = "dataset", conflicts_with_all = TO_A_FILE)]
    day: Option<String>,

    /// The release of the program; the dataset has a column for it
    #[arg(long, value_name = "NAME", requires = "dataset", conflicts_with_all = TO_A_FILE)]
    release: Option<String>,

    /// Add these results of `loam replay` of this trace, as the dataset's table `replays`
    #[arg(
        long,
        value_name = "RESULTS",
        requires = "dataset",
        conflicts_with_all = TO_A_FILE,
        num_args = 1..
    )]
    replays: Vec<PathBuf>,
}

/// What conflicts with --dataset: beside these, clap waives `requires = "dataset"`.
const TO_A_FILE: [&str; 4] = ["table", "format", "of", "output"];

/// Make a trace from a recording of another tool.
///
/// These recordings can be imported: data files of heaptrack 1.0 to 1.5, raw or interpreted; the
/// log of Firefox's logalloc, munged or not; Android's record_allocs, as memory_replay reads it;
/// the binary trace of glibc-malloc-trace-utils. The file may be packed by gzip, zstd or zip. The
/// import says what the recording does not have. The stacks of heaptrack become stacks of the
/// trace.
///
/// None of these recordings has the pages that a program touched. A replay of an imported trace can
/// therefore not be checked against the program, and ends with exit code 1.
#[derive(Debug, Args)]
struct ImportArgs {
    /// The file that the other tool wrote
    recording: PathBuf,

    /// Write the trace to this file
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,

    /// Import one stack for each BYTES requested bytes, on average (64K, 1M; default: the stacks of
    /// all blocks)
    #[arg(long, value_name = "BYTES", value_parser = crate::record::args::size)]
    #[arg(default_value = "1", hide_default_value = true)]
    stacks: u64,

    /// The format of the recording (default: the one that its first bytes show)
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<Recording>,
}

/// The format of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Recording {
    /// heaptrack
    Heaptrack,
    /// Firefox's logalloc
    Logalloc,
    /// Android's record_allocs
    MemoryReplay,
    /// glibc-malloc-trace-utils
    Mtrace,
}

/// A table of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Every event, as recorded
    Events,
    /// The memory of the process, ten times a second
    Samples,
    /// Every block, with its times of allocation and free
    Blocks,
    /// Every process, with its figures
    Processes,
    /// Counts and bytes of blocks by size
    Sizes,
    /// Every thread, with its figures
    Threads,
    /// Moments that the program named
    Marks,
    /// Stacks of sampled blocks, if the trace has stacks
    Stacks,
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Comma-separated values with a header
    Csv,
    /// JSON lines: one object in each line
    Jsonl,
    /// Parquet, with the trace's header in its metadata
    Parquet,
    /// A line for each stack with its bytes, for flame graphs; the trace must have stacks
    Collapsed,
    /// A page with a flame graph, which needs no network; the trace must have stacks
    Flame,
    /// Stacks for pprof, gzipped: alloc_objects and alloc_space in all, inuse_objects and
    /// inuse_space at the peak; the trace must have stacks
    Pprof,
    /// A profile for the Firefox Profiler: live and resident bytes as tracks, marks, and sampled
    /// allocations if the trace has stacks
    Firefox,
}

/// Bytes of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Bytes that were live at the peak
    Peak,
    /// All bytes that were allocated
    Allocated,
    /// Bytes that were live at the end
    End,
}

impl From<Table> for traces::Table {
    fn from(table: Table) -> traces::Table {
        match table {
            Table::Events => traces::Table::Events,
            Table::Samples => traces::Table::Samples,
            Table::Blocks => traces::Table::Blocks,
            Table::Processes => traces::Table::Processes,
            Table::Sizes => traces::Table::Sizes,
            Table::Threads => traces::Table::Threads,
            Table::Marks => traces::Table::Marks,
            Table::Stacks => traces::Table::Stacks,
        }
    }
}

impl From<Format> for traces::Format {
    fn from(format: Format) -> traces::Format {
        match format {
            Format::Csv => traces::Format::Csv,
            Format::Jsonl => traces::Format::Jsonl,
            Format::Parquet => traces::Format::Parquet,
            Format::Collapsed => traces::Format::Collapsed,
            Format::Flame => traces::Format::Flame,
            Format::Pprof => traces::Format::Pprof,
            Format::Firefox => traces::Format::Firefox,
        }
    }
}

impl From<Of> for of::Of {
    fn from(of: Of) -> of::Of {
        match of {
            Of::Peak => of::Of::Peak,
            Of::Allocated => of::Of::Allocated,
            Of::End => of::Of::End,
        }
    }
}

/// The resolved arguments of `trace`.
#[derive(Debug)]
pub enum TraceAction {
    /// Show the contents.
    Info {
        /// The trace.
        trace: PathBuf,
        /// The process.
        process: Option<u32>,
        /// Whether to print JSON instead of text.
        json: bool,
    },
    /// Print events.
    Head {
        /// The trace.
        trace: PathBuf,
        /// How many events.
        number: u64,
        /// The process.
        process: Option<u32>,
    },
    /// Find out what is wrong.
    Check {
        /// The trace.
        trace: PathBuf,
        /// Whether to print JSON instead of text.
        json: bool,
    },
    /// Write a table.
    Export(ExportOptions),
    /// Make a trace of another tool's recording.
    Import(Import),
    /// Compare two traces.
    Diff {
        /// The first one.
        before: PathBuf,
        /// The second one.
        after: PathBuf,
        /// Which bytes.
        of: of::Of,
        /// Whether to print JSON instead of text.
        json: bool,
    },
}

/// The resolved arguments of `export`.
#[derive(Debug)]
pub struct ExportOptions {
    /// What is written.
    pub export: Export,
    /// The file; none: standard output.
    pub output: Option<PathBuf>,
    /// Whether the file is replaced if it exists.
    pub overwrite: bool,
    /// The dataset to add the trace to. Then only the trace and the process apply.
    pub dataset: Option<Entry>,
}

impl TraceArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> TraceAction {
        match self.verb {
            TraceVerb::Info(args) => TraceAction::Info {
                trace: args.trace,
                process: args.process,
                json: args.json,
            },
            TraceVerb::Head(args) => TraceAction::Head {
                trace: args.trace,
                number: args.number,
                process: args.process,
            },
            TraceVerb::Diff(args) => TraceAction::Diff {
                before: args.before,
                after: args.after,
                of: args.of.into(),
                json: args.json,
            },
            TraceVerb::Check(args) => TraceAction::Check {
                trace: args.trace,
                json: args.json,
            },
            TraceVerb::Export(args) => TraceAction::Export(ExportOptions {
                export: Export {
                    trace: args.trace,
                    table: args.table.into(),
                    format: args.format.into(),
                    of: args.of.into(),
                    process: args.process,
                },
                output: args.output,
                overwrite: args.overwrite,
                dataset: args.dataset.map(|folder| Entry {
                    folder,
                    host: args.host,
                    day: args.day,
                    release: args.release,
                    replays: args.replays,
                }),
            }),
            TraceVerb::Import(args) => TraceAction::Import(Import {
                recording: args.recording,
                stack_bytes: args.stacks,
                from: args.from.map(|from| match from {
                    Recording::Heaptrack => foreign::Format::Heaptrack,
                    Recording::Logalloc => foreign::Format::Logalloc,
                    Recording::MemoryReplay => foreign::Format::MemoryReplay,
                    Recording::Mtrace => foreign::Format::Mtrace,
                }),
                output: args.output,
                overwrite: args.overwrite,
            }),
        }
    }
}
