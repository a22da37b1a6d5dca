//! `loam generate`: hidden, for packaging and for the documentation test.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Print documentation that is made from the help.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to print
    #[arg(value_enum)]
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// docs/cli.md
    Markdown,
    /// The manual page, loam.1
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

/// What `generate` is to print.
#[derive(Debug, Clone, Copy)]
pub enum Document {
    /// docs/cli.md
    Markdown,
    /// loam.1
    Man,
    /// Completions.
    Completions(Shell),
}

impl GenerateArgs {
    /// The document asked for.
    pub fn resolve(&self) -> Document {
        match self.what {
            What::Markdown => Document::Markdown,
            What::Man => Document::Man,
            What::Bash => Document::Completions(Shell::Bash),
            What::Zsh => Document::Completions(Shell::Zsh),
            What::Fish => Document::Completions(Shell::Fish),
        }
    }
}
