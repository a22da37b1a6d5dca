//! What the process tells its caller.

use std::process::ExitCode;

use loam_process::ending::Reason;

/// The exit codes that the help documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, nothing to report.
    Done,
    /// Done, and the answer is "something is wrong": failed trials, a threshold exceeded.
    Finding,
    /// Not done.
    Error,
    /// `run`: found, but can not be executed (the shell's convention).
    NotExecutable,
    /// `run`: not found (the shell's convention).
    NotFound,
    /// `record`: the program's own code, which is not 0.
    Program(u8),
    /// Ended by a signal, by number: 128 + n, as a shell reports it.
    Signal(u8),
}

impl Exit {
    /// The code as a number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Finding => 1,
            Exit::Error => 2,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Program(code) => code,
            Exit::Signal(number) => 128 + (number & 0x7f),
        }
    }

    /// The code for an error that reached `main`: 2, unless the error carries its own.
    pub fn of_error(error: &anyhow::Error) -> Exit {
        error
            .downcast_ref::<Coded>()
            .map_or(Exit::Error, |coded| coded.exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A reader that has had enough is no failure of ours.
impl From<Reason> for Exit {
    fn from(reason: Reason) -> Exit {
        match reason {
            Reason::NoReader => Exit::Done,
            _ => Exit::Signal(reason.signal()),
        }
    }
}

/// Ends the process where a verb does not: the one place for it besides `main`.
pub fn leave(reason: Reason) -> ! {
    std::process::exit(Exit::from(reason).code().into())
}

/// An error that insists on its own exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Coded {
    /// What the process shall exit with.
    pub exit: Exit,
    /// What happened and what to do.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_exits_with_two_unless_it_says_otherwise() {
        assert_eq!(Exit::of_error(&anyhow::anyhow!("plain")), Exit::Error);
        let coded = Coded {
            exit: Exit::NotFound,
            message: "gone".into(),
        };
        assert_eq!(Exit::of_error(&coded.into()), Exit::NotFound);
        assert_eq!(Exit::Signal(2).code(), 130);
    }

    #[test]
    fn a_missing_reader_is_no_failure() {
        assert_eq!(Exit::from(Reason::NoReader), Exit::Done);
        assert_eq!(Exit::from(Reason::NoTerminal), Exit::Signal(1));
    }
}
