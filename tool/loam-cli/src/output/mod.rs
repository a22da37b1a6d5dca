//! How messages are printed, and whether they have colour.
//!
//! Data goes to standard output, everything else to standard error. Nothing here computes. Every
//! text is printed by `write_stdout` or `say`, which let only visible characters reach a terminal
//! (`loam_format::plain`). If a text with a name is styled or padded, the name is made plain
//! before: otherwise its width would change.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use loam_format::plain;
pub use loam_format::plain::path;

/// Whether styled text would reach the reader of standard output (a terminal, no `NO_COLOR`).
pub fn stdout_is_styled() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Prints an error with its causes, one line each.
pub fn print_error(error: &anyhow::Error) {
    labelled(
        AnsiColor::Red.on_default().bold(),
        "loam:",
        &with_causes(error),
    );
}

/// An error and its causes, without the causes that its own text contains.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += &format!("\n  because: {cause}");
        }
    }
    text
}

/// Prints a warning.
pub fn print_warning(message: &str) {
    let yellow = AnsiColor::Yellow.on_default().bold();
    labelled(yellow, "loam: warning:", message);
}

/// Prints warnings.
pub fn print_warnings(messages: &[String]) {
    messages.iter().for_each(|message| print_warning(message));
}

/// Prints lines on standard error.
pub fn say(text: &str) {
    to_stderr(&format!("{}\n", plain::lines(text)));
}

fn labelled(style: Style, label: &str, text: &str) {
    to_stderr(&format!("{style}{label}{style:#} {}\n", plain::lines(text)));
}

fn to_stderr(text: &str) {
    // The text is written in one call, because other processes write to standard error too. A
    // missing reader is no error; a verb that needs a reader watches the stream
    // (`loam_process::ending`).
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Whether the error means that a pipe's reader has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes text to standard output, styled if that is wanted. A closed pipe is an error, not a
/// panic.
pub fn write_stdout(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(plain::page(text).as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let plain = || anyhow::Error::msg("no such file");
        let told = plain().context("x: no such file").context("no report");
        assert_eq!(with_causes(&told), "no report\n  because: x: no such file");
        let other = Err::<(), _>(plain()).context("x").unwrap_err();
        assert_eq!(with_causes(&other), "x\n  because: no such file");
    }
}
