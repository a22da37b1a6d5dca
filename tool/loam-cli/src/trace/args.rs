//! `loam trace`: its arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Say what is in a trace of allocations, check it, export it.
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
  loam trace export t.trace --format pprof --output t.pb.gz && go tool pprof -top t.pb.gz";

#[derive(Debug, Subcommand)]
enum TraceVerb {
    Info(InfoArgs),
    Head(HeadArgs),
    Check(CheckArgs),
    Export(ExportArgs),
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

/// Write a trace's events, samples or blocks as a table for other programs.
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

    /// Of this process alone, by its number in `loam trace info` (of blocks: default the busiest)
    #[arg(long, value_name = "N")]
    process: Option<u32>,

    /// Which bytes of a stack are written (collapsed)
    #[arg(long, value_enum, default_value_t = Of::Peak)]
    of: Of,

    /// Where it goes (default: standard output)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
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
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header
    Csv,
    /// A JSON object a line
    Jsonl,
    /// Stacks, a line each with its bytes, as flame graphs are drawn from; of a trace with stacks
    Collapsed,
    /// Stacks for the program pprof (gzipped): alloc_objects, alloc_space, and inuse_objects, inuse_space at the peak
    Pprof,
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
            }),
        }
    }
}
