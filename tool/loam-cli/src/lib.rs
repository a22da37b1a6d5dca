//! The tool behind `loam`: one module a verb, and the few things that all verbs share.
//!
//! A verb parses its arguments, resolves them into plain structs, lets the crates below compute,
//! and prints. `run` starts a program on the heap, `allocators` says which heaps this machine has,
//! `lab` measures them, `record` writes what a program asks for into a trace, `trace` says what is
//! in it, `replay` measures it on each heap and `gate` compares it with a baseline, `check` says
//! whether the replacement of malloc took, `stats`, `top` and `export` show what heaps do, `doctor`
//! judges them, `census` says what live blocks are, `trim` gives free pages back, `pins` says whose
//! blocks keep sparse pages and `map` draws them, `mcp` answers assistants, `recipes` says which
//! verb answers what, `generate` prints the documentation that is made from the help. `output`
//! prints messages, `exit` has the codes.

#![forbid(unsafe_code)]

pub mod advise;
pub mod allocators;
pub mod census;
pub mod check;
pub mod cli;
pub mod doctor;
pub mod exit;
pub mod export;
pub mod gate;
pub mod generate;
pub mod lab;
pub mod map;
pub mod mcp;
pub mod output;
pub mod pins;
pub mod recipes;
pub mod record;
pub mod replay;
pub mod run;
pub mod stats;
pub mod top;
pub mod trace;
#[cfg(target_arch = "x86_64")]
pub mod trim;

use anyhow::Result;
use clap::CommandFactory;

use loam_process::layout::Layout;

use cli::{Cli, Verb};
use exit::{leave, Exit};
use loam_process::ending::Watch;

/// Runs the verb that the command line named.
pub fn dispatch(cli: Cli) -> Result<Exit> {
    // `run` becomes another program, `record` starts one; `top` and `lab` have something to put in
    // order first; the lab's watchdog outlives it.
    match cli.verb {
        Verb::Run(_)
        | Verb::Record(_)
        | Verb::Top(_)
        | Verb::Doctor(_)
        | Verb::Lab(_)
        | Verb::Replay(_)
        | Verb::Advise(_)
        | Verb::Gate(_)
        | Verb::LabWatchdog => {}
        // A signal ends it at once, and a question with it; the reader of an answer may go away
        // between two.
        Verb::Mcp(_) => drop(Watch::at_once(&[]).begin(leave)?),
        Verb::Export(_) => drop(Watch::pipe_signal_only().begin(leave)?),
        Verb::Allocators(_)
        | Verb::Check(_)
        | Verb::Stats(_)
        | Verb::Trace(_)
        | Verb::Census(_)
        | Verb::Pins(_)
        | Verb::Map(_)
        | Verb::Recipes(_)
        | Verb::Generate(_) => {
            drop(Watch::at_once(&[]).begin(leave)?);
        }
        // A keeper ends in good order.
        #[cfg(target_arch = "x86_64")]
        Verb::Trim(ref args) if args.is_keeper() => {}
        #[cfg(target_arch = "x86_64")]
        Verb::Trim(_) => drop(Watch::at_once(&[]).begin(leave)?),
    }
    let layout = Layout::discover();
    match cli.verb {
        Verb::Run(args) => run::run(args.resolve(), &layout),
        Verb::Record(args) => record::run(&args.resolve(), &layout),
        Verb::Allocators(args) => allocators::run(&args.resolve(), &layout),
        Verb::Lab(args) => lab::run(args, &layout),
        Verb::Trace(args) => trace::run(&args.resolve()),
        Verb::Replay(args) => replay::run(&args.resolve(), &layout),
        Verb::Advise(args) => advise::run(&args.resolve(), &layout),
        Verb::Gate(args) => gate::run(&args.resolve(), &layout),
        Verb::Check(args) => check::run(&args.resolve(), &layout),
        Verb::Stats(args) => stats::run(&args.resolve()),
        Verb::Census(args) => census::run(&args.resolve()),
        Verb::Pins(args) => pins::run(&args.resolve()),
        Verb::Map(args) => map::run(&args.resolve()),
        Verb::Doctor(args) => doctor::run(&args.resolve()),
        #[cfg(target_arch = "x86_64")]
        Verb::Trim(args) => trim::run(&args.resolve()),
        Verb::Top(args) => top::run(&args.resolve()),
        Verb::Export(args) => export::run(&args.resolve()),
        Verb::Mcp(args) => mcp::run(&args.resolve()),
        Verb::Recipes(_) => recipes::run(),
        Verb::Generate(args) => generate::run(&args.resolve(), &Cli::command()),
        Verb::LabWatchdog => {
            loam_lab::measure::watchdog::run();
            Ok(Exit::Done)
        }
    }
}
