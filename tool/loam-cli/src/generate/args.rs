//! `loam generate`: hidden, for packaging.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Print documentation that is made from the help.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to print
    #[arg(value_enum)]
    what: What,

    /// The folder that `share` is written to
    #[arg(required_if_eq("what", "share"))]
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// The manual page, loam.1
    Man,
    /// Every manual page and the completions of every shell, in the folders of PREFIX/share
    Share,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

/// What `generate` is to print.
#[derive(Debug, Clone)]
pub enum Document {
    /// loam.1
    Man,
    /// What goes under PREFIX/share.
    Share(PathBuf),
    /// Completions.
    Completions(Shell),
}

impl GenerateArgs {
    /// The document asked for.
    pub fn resolve(self) -> Document {
        match self.what {
            What::Man => Document::Man,
            What::Share => {
                Document::Share(self.folder.expect("clap requires the folder of `share`"))
            }
            What::Bash => Document::Completions(Shell::Bash),
            What::Zsh => Document::Completions(Shell::Zsh),
            What::Fish => Document::Completions(Shell::Fish),
        }
    }
}
