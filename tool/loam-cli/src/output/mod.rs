//! How things are said: units, messages, whether colour is wanted.
//!
//! Data goes to standard output, everything else to standard error. Nothing here computes.

pub mod units;
pub mod words;

use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// Whether styled text would reach the reader of standard output (a terminal, no `NO_COLOR`).
pub fn stdout_is_styled() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Prints an error with its causes, one line each.
pub fn print_error(error: &anyhow::Error) {
    let red = AnsiColor::Red.on_default().bold();
    anstream::eprintln!("{red}loam:{red:#} {error}");
    for cause in error.chain().skip(1) {
        anstream::eprintln!("  because: {cause}");
    }
}

/// Prints a warning.
pub fn print_warning(message: &str) {
    let yellow = AnsiColor::Yellow.on_default().bold();
    anstream::eprintln!("{yellow}loam: warning:{yellow:#} {message}");
}

/// Bold, for the best of a column and for headings.
pub fn bold() -> Style {
    Style::new().bold()
}

/// Dim, for what matters less.
pub fn dim() -> Style {
    Style::new().dimmed()
}

/// Whether the error is the reader of a pipe having gone away.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes text to standard output, styled if that is wanted; an error instead of a panic when the
/// pipe is closed.
pub fn write_stdout(text: &str) -> io::Result<()> {
    use io::Write;
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
