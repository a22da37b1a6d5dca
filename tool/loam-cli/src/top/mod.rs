//! `loam top`: shows the heaps of running programs, live.
//!
//! `loam_counters::live` looks, keeps the data, answers keys and makes tables. `draw` and `batch`
//! write them, and only `screen` touches the terminal.

pub mod args;
mod batch;
mod draw;
mod screen;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use anyhow::Result;

use loam_counters::live::collector::Collector;
use loam_counters::live::filter::Filter;
use loam_counters::live::state::State;
use loam_counters::watch::sampler::{Interest, Sampler};
use loam_process::choose;
use loam_process::ending::Watch;

use crate::exit::{leave, Exit};
use crate::output;
use args::{Form, TopOptions};

/// Runs the verb.
pub fn run(options: &TopOptions) -> Result<Exit> {
    let ending = match options.batch {
        // A batch without a reader ends too, and not only at its next look.
        Some(_) => Watch::at_once(&[rustix::stdio::stdout()]).begin(leave)?,
        None => {
            screen::require_terminal()?;
            screen::watch()?
        }
    };
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
    state.reversed = options.reverse;
    state.filter = Filter::new(&options.pattern);
    let sampler = match options.batch {
        Some(_) => Sampler::brief(interest),
        None => Sampler::new(interest),
    };
    let mut collector = Collector::start(sampler, options.interval)?;
    match options.batch {
        Some(form) => print(form, &mut state, &mut collector, options.looks),
        None => screen::run(&mut state, &mut collector, options.looks, &ending),
    }
}

fn print(
    form: Form,
    state: &mut State,
    collector: &mut Collector,
    looks: Option<u64>,
) -> Result<Exit> {
    let mut left = looks;
    let mut is_first = true;
    loop {
        // A look always ends by itself.
        collector.look(state, Duration::MAX)?;
        output::write_stdout(&batch::page(form, state, SystemTime::now(), is_first)?)?;
        is_first = false;
        left = left.map(|left| left - 1);
        let nobody_is_left = state.shows_others && state.tick.samples.is_empty();
        if left == Some(0) || nobody_is_left {
            return Ok(Exit::Done);
        }
        std::thread::sleep(collector.interval);
    }
}
