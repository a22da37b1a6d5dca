//! The command line as a whole. Each verb's own arguments live in its `args.rs`; clap's types stop
//! there.

use clap::{Parser, Subcommand};

#[cfg(target_arch = "x86_64")]
use crate::trim;
use crate::{
    advise, allocators, census, check, doctor, export, gate, generate, lab, map, mcp, pins,
    recipes, record, replay, run, stats, top, trace,
};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    done, and something was found: a trial failed, the heap does not take or not safely, a
       trace is damaged or its replay is not the program's, a gate's figure got worse
  2    error: bad usage, a refused program, results that can not be written
  126  run, record: the command was found and can not be executed
  127  run, record: the command was not found
  130  interrupted by Ctrl-C (143: by SIGTERM); finished trials are kept
  any  record: the program's own exit code, if it is not 0";

/// A low-fragmentation heap for any program, and the instruments that prove it.
#[derive(Debug, Parser)]
#[command(name = "loam", version = loam_format::VERSION, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Run(run::args::RunArgs),
    Record(record::args::RecordArgs),
    Check(check::args::CheckArgs),
    Allocators(allocators::args::AllocatorsArgs),
    Lab(Box<lab::args::LabArgs>),
    Trace(trace::args::TraceArgs),
    Replay(replay::args::ReplayArgs),
    Advise(advise::args::AdviseArgs),
    Gate(gate::args::GateArgs),
    Stats(stats::args::StatsArgs),
    Doctor(doctor::args::DoctorArgs),
    Census(census::args::CensusArgs),
    #[cfg(target_arch = "x86_64")]
    Trim(trim::args::TrimArgs),
    Pins(pins::args::PinsArgs),
    Map(map::args::MapArgs),
    Top(top::args::TopArgs),
    Export(export::args::ExportArgs),
    Mcp(mcp::args::McpArgs),
    Recipes(recipes::args::RecipesArgs),
    #[command(hide = true)]
    Generate(generate::args::GenerateArgs),
    /// End a lab's trial when the lab has ended; started by `lab`
    #[command(hide = true, name = loam_lab::measure::watchdog::VERB)]
    LabWatchdog,
}
