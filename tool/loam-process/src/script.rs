//! Scripts: finds the program that will really run.
//!
//! ```text
//! #!/usr/bin/python3 -E        -> /usr/bin/python3
//! #!/usr/bin/env python3       -> env, then python3 from PATH
//! #!/usr/bin/env -S A=1 awk -f -> env, then awk from PATH
//! neither ELF nor "#!"         -> /bin/sh, as execvp does
//! ```

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use loam_format::plain::{self, printable};

use crate::elf::{Image, ImageError};
use crate::untrusted;

/// The kernel reads no more of the first line than this (`BINPRM_BUF_SIZE`).
const FIRST_LINE_LIMIT: usize = 256;

const FOR_WINDOWS: &str =
    "it is a program for Windows, into which nothing can be preloaded; link it with libloam.a or \
                           loam.dll, and look at it while it runs: `loam stats PID`";

/// What the first line of a script requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// The program named after `#!`.
    pub path: PathBuf,
    /// The rest of the line, which the kernel passes as one argument.
    pub argument: Option<String>,
}

/// Reads the first line of a file that is not ELF; a file without `#!` is run by `/bin/sh`. A
/// program for Windows is an error: Wine runs it, and nothing can be preloaded into it.
pub fn interpreter(script: &Path) -> io::Result<Interpreter> {
    let mut head = Vec::new();
    untrusted::open(script)?
        .take(FIRST_LINE_LIMIT as u64)
        .read_to_end(&mut head)?;
    if head.starts_with(b"MZ") {
        return Err(io::Error::other(FOR_WINDOWS));
    }
    let shell = Interpreter {
        path: PathBuf::from("/bin/sh"),
        argument: None,
    };
    Ok(parse(&head).unwrap_or(shell))
}

fn parse(head: &[u8]) -> Option<Interpreter> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    // No other blank counts: a carriage return before the line's end is part of the name.
    let line = line.trim_matches([' ', '\t']);
    let (path, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    if path.is_empty() {
        return None;
    }
    let rest = rest.trim_matches([' ', '\t']);
    let argument = (!rest.is_empty()).then(|| rest.to_owned());
    Some(Interpreter {
        path: PathBuf::from(path),
        argument,
    })
}

/// Why the system can not start an existing script: its interpreter is missing.
pub fn missing_interpreter(script: &Path) -> Option<String> {
    if !matches!(Image::read(script), Err(ImageError::NotElf)) {
        return None;
    }
    let Interpreter { path, argument } = interpreter(script).ok()?;
    let name = match argument {
        // The name that `env` would look for ends with the carriage return.
        Some(words) if path.exists() && is_env(&path) && words.ends_with('\r') => words,
        _ if path.exists() => return None,
        _ => path.to_string_lossy().into_owned(),
    };
    let shown = script.display();
    Some(match name.strip_suffix('\r') {
        Some(without) => format!(
            "{shown}: its first line ends in a carriage return, so it names an interpreter `{}\\r` \
             that does not exist; give the file the line ends of Unix: sed -i 's/\\r$//' {}",
            printable(without),
            plain::word(&script.to_string_lossy())
        ),
        None => format!(
            "{shown}: its interpreter {} does not exist; install it, or correct the name",
            printable(&name)
        ),
    })
}

/// The program that `env` starts with this argument, if it can be told.
pub fn program_after_env<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word {
            "-u" | "--unset" | "-C" | "--chdir" => {
                words.next();
            }
            // `env VAR=VALUE program`, and options such as -i or -S, come before the program.
            option if option.starts_with('-') || option.contains('=') => {}
            program => return Some(program),
        }
    }
    None
}

/// Whether this program is `env`.
pub fn is_env(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "env")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> (String, Option<String>) {
        let found = parse(head.as_bytes()).unwrap();
        (found.path.display().to_string(), found.argument)
    }

    #[test]
    fn the_first_line_is_cut_as_the_kernel_cuts_it() {
        assert_eq!(parsed("#!/bin/sh\necho"), ("/bin/sh".into(), None));
        assert_eq!(
            parsed("#! /bin/sh -e -u \nx"),
            ("/bin/sh".into(), Some("-e -u".into()))
        );
        assert_eq!(parsed("#!/bin/sh"), ("/bin/sh".into(), None));
        assert_eq!(parse(b"echo hello\n"), None);
        assert_eq!(parse(b"#!\n"), None);
        assert_eq!(parsed("#!/bin/sh\r\n"), ("/bin/sh\r".into(), None));
    }

    #[test]
    fn a_carriage_return_at_the_first_lines_end_is_named_and_the_remedy_can_be_copied() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a script");
        for (head, is_missing) in [
            ("#!/bin/sh\r\n", true),
            ("#!/usr/bin/env sh\r\n", true),
            ("#!/usr/bin/env -S sh -e\r\n", true),
            ("#!/bin/sh -e\n", false),
            ("#!/usr/bin/env sh\necho\r\n", false),
        ] {
            std::fs::write(&script, head).unwrap();
            let message = missing_interpreter(&script);
            assert_eq!(message.is_some(), is_missing, "{head:?}: {message:?}");
            let quoted = format!("'{}'", script.display());
            assert!(message
                .is_none_or(|text| text.contains("carriage return") && text.ends_with(&quoted)));
        }
    }

    #[test]
    fn env_is_looked_through() {
        assert_eq!(program_after_env("python3".split(' ')), Some("python3"));
        assert_eq!(program_after_env("-S A=1 awk -f".split(' ')), Some("awk"));
        assert_eq!(program_after_env("-u HOME sh".split(' ')), Some("sh"));
        assert_eq!(program_after_env("-i".split(' ')), None);
    }
}
