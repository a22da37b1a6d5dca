//! `loam recipes`: it has no arguments.

use clap::Args;

use super::text;

/// None: the verb is its help.
#[derive(Debug, Args)]
#[command(about = "Questions and the one command that answers each", long_about = text())]
pub struct RecipesArgs {}
