//! `loam`: parse, resolve, run, report the error, choose the exit code. Nothing else exits.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use loam_cli::{cli::Cli, exit::Exit, output};
use loam_format::plain;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
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

/// clap prints its own help and usage errors, and exits with 2, which is what `Exit::Error` means
/// here too. It repeats arguments as they are, so what a terminal would obey in them is taken out.
fn usage(error: &clap::Error) -> ExitCode {
    let arguments = std::env::args_os();
    let is_plain = |argument: OsString| argument.to_string_lossy().chars().all(plain::shows);
    if !error.use_stderr() || { arguments }.all(is_plain) {
        error.exit();
    }
    output::say(error.render().to_string().trim_end());
    Exit::Error.into()
}
