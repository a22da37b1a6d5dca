//! `loam generate`: the help is the source of the manual pages and of the completions.

pub mod args;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::output;
use args::Document;

/// Prints the document about the whole command line, `command`.
pub fn run(document: &Document, command: &Command) -> Result<Exit> {
    let bytes = match document {
        Document::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command.clone()).render(&mut page)?;
            page
        }
        Document::Completions(shell) => completions(*shell, command),
        Document::Share(folder) => {
            share(folder, command)?;
            return Ok(Exit::Done);
        }
    };
    output::write_stdout(&String::from_utf8_lossy(&bytes))?;
    Ok(Exit::Done)
}

fn completions(shell: Shell, command: &Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command.clone(), "loam", &mut script);
    script
}

/// Where each shell looks for completions under PREFIX/share.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/loam"),
    (Shell::Zsh, "zsh/site-functions/_loam"),
    (Shell::Fish, "fish/vendor_completions.d/loam.fish"),
];

/// Writes the manual pages, one a verb, and the completions.
fn share(folder: &Path, command: &Command) -> Result<()> {
    for (shell, place) in COMPLETIONS {
        write(&folder.join(place), &completions(shell, command))?;
    }
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages).with_context(|| format!("{} can not be made", pages.display()))?;
    // Hidden verbs have no page.
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), &pages)
        .with_context(|| format!("manual pages can not be written to {}", pages.display()))
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("{} can not be written", path.display()))
}
