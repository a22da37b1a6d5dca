//! `loam top`: heaps of running programs, live.
//!
//! `watch` looks, on the thread of `collector`; `state` remembers and answers keys, `rows` makes tables,
//! `draw` and `batch` write them, `screen` is the only one that touches the terminal.

pub mod args;
mod batch;
mod collector;
mod draw;
mod rows;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::exit::Exit;
use crate::observe::choose;
use crate::output;
use crate::watch::sampler::{Interest, Sampler};
use args::TopOptions;
use collector::Collector;
use state::State;

/// Runs the verb.
pub fn run(options: &TopOptions) -> Result<Exit> {
    if !options.batch {
        screen::require_terminal()?;
    }
    let mut keys = Vec::new();
    for target in &options.targets {
        let found = choose::find(target)?;
        keys.extend(found.into_iter().map(|identity| identity.key));
    }
    let shows_others = !options.targets.is_empty();
    let interest = if shows_others {
        Interest::Only(keys)
    } else {
        Interest::OnLoam(None)
    };
    let mut state = State::new(options.sort, shows_others);
    let sampler = match options.batch {
        true => Sampler::brief(interest),
        false => Sampler::new(interest),
    };
    let mut collector = Collector::start(sampler, options.interval)?;
    if options.batch {
        return print(&mut state, &mut collector, options.looks);
    }
    screen::run(&mut state, &mut collector, options.looks)
}

fn print(state: &mut State, collector: &mut Collector, looks: Option<u64>) -> Result<Exit> {
    let mut left = looks;
    loop {
        // A look ends by itself.
        collector.look(state, Duration::MAX)?;
        output::write_stdout(&batch::page(state, SystemTime::now()))?;
        left = left.map(|left| left - 1);
        let nobody_is_left = state.shows_others && state.tick.samples.is_empty();
        if left == Some(0) || nobody_is_left {
            return Ok(Exit::Done);
        }
        std::thread::sleep(collector.interval);
    }
}
