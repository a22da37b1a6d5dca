//! `loam`: parse, resolve, run, report the error, choose the exit code. Nothing else exits.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use loam_cli::{cli::Cli, exit::Exit, output};

fn main() -> ExitCode {
    // clap prints its own usage errors and exits with 2, which is what `Exit::Error` means here
    // too.
    let cli = Cli::parse();
    let exit = match loam_cli::dispatch(cli) {
        Ok(exit) => exit,
        // Whoever reads our output has had enough (`loam lab ... | head`): that is no failure of
        // ours.
        Err(error) if output::is_broken_pipe(&error) => Exit::Done,
        Err(error) => {
            output::print_error(&error);
            Exit::of_error(&error)
        }
    };
    ExitCode::from(exit)
}
