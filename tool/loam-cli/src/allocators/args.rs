//! `loam allocators`: its arguments.

use clap::Args;

/// Show which allocators this machine has, and how to get those that it lacks.
///
/// The names are those that `loam lab --allocators` takes.
#[derive(Debug, Args)]
pub struct AllocatorsArgs {
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// What `allocators` is to print.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorsOptions {
    /// JSON instead of a table.
    pub json: bool,
}

impl AllocatorsArgs {
    /// Plain options.
    pub fn resolve(&self) -> AllocatorsOptions {
        AllocatorsOptions { json: self.json }
    }
}
