//! `loam allocators`: which allocators this machine has, as a table or as JSON.

pub mod args;
mod table;

use anyhow::Result;
use serde::Serialize;

use loam_lab::allocators::{discover, Allocator};
use loam_process::layout::Layout;

use crate::exit::Exit;
use crate::output;
use args::AllocatorsOptions;

#[derive(Serialize)]
struct Listing<'a> {
    format: &'static str,
    version: u32,
    allocators: &'a [Allocator],
}

/// Runs the verb.
pub fn run(options: &AllocatorsOptions, layout: &Layout) -> Result<Exit> {
    let allocators = discover::all(layout);
    let text = if options.json {
        let listing = Listing {
            format: "loam-allocators",
            version: 1,
            allocators: &allocators,
        };
        serde_json::to_string_pretty(&listing)? + "\n"
    } else {
        table::render(&allocators)
    };
    output::write_stdout(&text)?;
    Ok(Exit::Done)
}
