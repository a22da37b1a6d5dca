//! `loam trace`: its arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use loam_format::foreign;

/// Say what is in a trace of allocations, check it, export it, import one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    #[command(subcommand)]
    verb: TraceVerb,
}

const EXAMPLES: &str = "\
Examples:
  loam trace info t.trace                                rates, sizes, lifetimes, threads, the peak
  loam trace check t.trace                               exit code 1 if something is wrong with it
  loam trace head -n 50 t.trace                          the first events
  loam trace export t.trace --table blocks > blocks.csv  a row for each block's life
  loam trace export t.trace --format pprof --output t.pb.gz && go tool pprof -top t.pb.gz
  loam trace export t.trace --dataset fleet              add it to a dataset that SQL asks
  loam trace import heaptrack.p.1.zst --output t.trace   another program's recording, to replay it";

#[derive(Debug, Subcommand)]
enum TraceVerb {
    Info(InfoArgs),
    Head(HeadArgs),
    Check(CheckArgs),
    Export(ExportArgs),
    Import(ImportArgs),
}

/// Say what a program asked of its heap: rates, sizes, lifetimes, threads, what lived at the peak.
#[derive(Debug, Args)]
struct InfoArgs {
    /// A trace that `loam record` wrote
    trace: PathBuf,

    /// Which process of it, by its number in the list (default: the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Print the first events.
#[derive(Debug, Args)]
struct HeadArgs {
    /// A trace that `loam record` wrote
    trace: PathBuf,

    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    number: u64,

    /// Of this process alone, by its number in `loam trace info`
    #[arg(long, value_name = "N")]
    process: Option<u32>,
}

/// Read all of a trace and say what is wrong with it; exit code 1 if something is.
///
/// Damaged chunks, events that were not recorded, frees of blocks that nobody saw begin, blocks that
/// were handed out where another one lived, a recording that was cut off.
#[derive(Debug, Args)]
struct CheckArgs {
    /// A trace that `loam record` wrote
    trace: PathBuf,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Write a trace as a table, as stacks or as a profile for other programs.
///
/// Times are nanoseconds since the recording began, addresses are decimal numbers. A table of blocks
/// has a row for each block's life, of one process; a resize ends a row and begins another one.
#[derive(Debug, Args)]
struct ExportArgs {
    /// A trace that `loam record` wrote
    trace: PathBuf,

    /// Which table
    #[arg(long, value_enum, default_value_t = Table::Events)]
    table: Table,

    /// In which form
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,

    /// Of this process alone, by its number in `loam trace info` (of blocks and stacks: default the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// Which bytes of a stack are written (collapsed)
    #[arg(long, value_enum, default_value_t = Of::Peak)]
    of: Of,

    /// Where it goes (default: standard output)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Add the trace to this dataset of many traces, as Parquet tables by host, program and day
    #[arg(long, value_name = "DIR", conflicts_with_all = ["table", "format", "of", "output"])]
    dataset: Option<PathBuf>,

    /// Where it was recorded (default: what the trace says)
    #[arg(long, value_name = "NAME", requires = "dataset")]
    host: Option<String>,

    /// When it was recorded, as YYYY-MM-DD (default: what the trace says)
    #[arg(long, value_name = "DAY", requires = "dataset")]
    day: Option<String>,

    /// The release of the program, a column of the dataset
    #[arg(long, value_name = "NAME", requires = "dataset")]
    release: Option<String>,

    /// Results files of `loam replay` of this trace, which become the dataset's table `replays`
    #[arg(long, value_name = "RESULTS", requires = "dataset", num_args = 1..)]
    replays: Vec<PathBuf>,
}

/// Make a trace of another program's recording of allocations.
///
/// The formats: heaptrack's data files (raw or interpreted, of 1.0 to 1.5), the log of Firefox's logalloc (munged or not),
/// Android's record_allocs as memory_replay reads it, and the binary trace of glibc-malloc-trace-utils. Files may be packed
/// with gzip, zstd or zip. What is lost is said. None of the formats says which pages a program touched, so a replay of an
/// imported trace can not be checked against the program, and ends with exit code 1.
#[derive(Debug, Args)]
struct ImportArgs {
    /// The recording
    recording: PathBuf,

    /// The trace that is written
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the output if it exists
    #[arg(long)]
    overwrite: bool,

    /// The recording's format (default: what its first bytes say)
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
pub enum Table {
    /// Every event, as recorded
    Events,
    /// The process as it looked from outside
    Samples,
    /// Every block's life
    Blocks,
    /// The processes, each with its figures
    Processes,
    /// Blocks by size
    Sizes,
    /// Threads
    Threads,
    /// Moments that the program named
    Marks,
    /// Stacks of sampled blocks, of a trace with stacks
    Stacks,
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header
    Csv,
    /// A JSON object a line
    Jsonl,
    /// Parquet, the trace's header among its metadata
    Parquet,
    /// Stacks, a line each with its bytes, as flame graphs are drawn from; of a trace with stacks
    Collapsed,
    /// Stacks for the program pprof (gzipped): alloc_objects, alloc_space, and inuse_objects, inuse_space at the peak
    Pprof,
    /// A profile for the Firefox Profiler: live and resident bytes as tracks, marks, and the allocations of a trace with stacks
    Firefox,
}

/// Bytes of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Of {
    /// That lived when most bytes lived
    Peak,
    /// That were handed out in all
    Allocated,
}

/// What `trace` is to do.
#[derive(Debug)]
pub enum TraceAction {
    /// Say what is in it.
    Info {
        /// The trace.
        trace: PathBuf,
        /// The process.
        process: Option<u32>,
        /// JSON instead of text.
        json: bool,
    },
    /// Print events.
    Head {
        /// The trace.
        trace: PathBuf,
        /// How many.
        number: u64,
        /// The process.
        process: Option<u32>,
    },
    /// Say what is wrong.
    Check {
        /// The trace.
        trace: PathBuf,
        /// JSON instead of text.
        json: bool,
    },
    /// Write a table.
    Export(ExportOptions),
    /// Make a trace of another program's recording.
    Import(ImportOptions),
}

/// What to import.
#[derive(Debug)]
pub struct ImportOptions {
    /// The recording.
    pub recording: PathBuf,
    /// The trace.
    pub output: PathBuf,
    /// Whether it may be replaced.
    pub overwrite: bool,
    /// The format; none: the one that the first bytes tell.
    pub from: Option<foreign::Format>,
}

/// What to export.
#[derive(Debug)]
pub struct ExportOptions {
    /// The trace.
    pub trace: PathBuf,
    /// Which table.
    pub table: Table,
    /// In which form.
    pub format: Format,
    /// Which bytes of stacks.
    pub of: Of,
    /// The process.
    pub process: Option<u32>,
    /// Where it goes; none: standard output.
    pub output: Option<PathBuf>,
    /// The dataset that it is added to, instead of all that.
    pub dataset: Option<DatasetOptions>,
}

/// What of a trace goes into a dataset.
#[derive(Debug)]
pub struct DatasetOptions {
    /// The dataset.
    pub folder: PathBuf,
    /// Where the trace was recorded.
    pub host: Option<String>,
    /// When it was recorded.
    pub day: Option<String>,
    /// The release of the program.
    pub release: Option<String>,
    /// Results files of its replays.
    pub replays: Vec<PathBuf>,
}

impl TraceArgs {
    /// Plain options.
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
            TraceVerb::Check(args) => TraceAction::Check {
                trace: args.trace,
                json: args.json,
            },
            TraceVerb::Export(args) => TraceAction::Export(ExportOptions {
                trace: args.trace,
                table: args.table,
                format: args.format,
                of: args.of,
                process: args.process,
                output: args.output,
                dataset: args.dataset.map(|folder| DatasetOptions {
                    folder,
                    host: args.host,
                    day: args.day,
                    release: args.release,
                    replays: args.replays,
                }),
            }),
            TraceVerb::Import(args) => TraceAction::Import(ImportOptions {
                recording: args.recording,
                output: args.output,
                overwrite: args.overwrite,
                from: args.from.map(|from| match from {
                    Recording::Heaptrack => foreign::Format::Heaptrack,
                    Recording::Logalloc => foreign::Format::Logalloc,
                    Recording::MemoryReplay => foreign::Format::MemoryReplay,
                    Recording::Mtrace => foreign::Format::Mtrace,
                }),
            }),
        }
    }
}
