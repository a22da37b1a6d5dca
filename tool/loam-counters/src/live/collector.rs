//! Looks at processes for the state, on a thread of its own: the thread that draws and answers keys
//! never waits for a process.

use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use loam_process::apart::{Crew, MOST_LEFT};
use loam_process::choose;
use loam_process::process::{Identity, ProcessError, ProcessKey};

use super::state::State;
use crate::view::View;
use crate::watch::sampler::{Sampler, Tick};

/// The processes to look at.
#[derive(Debug, Default)]
struct Request {
    everybody: bool,
    /// The process for a close look.
    one: Option<Identity>,
}

/// The result of a request.
struct Answer {
    tick: Option<std::io::Result<Tick>>,
    view: Option<(ProcessKey, Result<View, String>)>,
}

/// Looks at processes for the state.
pub struct Collector {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    is_pending: bool,
    /// Time between two looks.
    pub interval: Duration,
}

impl Collector {
    /// Starts the thread. It ends with the collector. If a process holds it up, it ends only with
    /// `loam`.
    pub fn start(sampler: Sampler, interval: Duration) -> Result<Collector> {
        let (requests, asked) = channel();
        let (answer, answers) = channel();
        std::thread::Builder::new()
            .name("loam-top".to_owned())
            .spawn(move || work(sampler, &asked, &answer))
            .context("the thread that looks at processes can not be started")?;
        Ok(Collector {
            requests,
            answers,
            is_pending: false,
            interval,
        })
    }

    /// Asks for a look at all processes, and for a close look at the process with the open page,
    /// unless the look before is not over. Waits for the result at most for `patience`.
    pub fn look(&mut self, state: &mut State, patience: Duration) -> Result<()> {
        self.ask(state, true);
        self.receive(state, patience)
    }

    /// The same for a close look only.
    pub fn look_closely(&mut self, state: &mut State, patience: Duration) -> Result<()> {
        self.ask(state, false);
        self.receive(state, patience)
    }

    fn ask(&mut self, state: &State, everybody: bool) {
        if self.is_pending {
            return;
        }
        let sample = state.focused().and_then(|key| state.sample(key));
        let one = sample.map(|sample| sample.identity.clone());
        if everybody || one.is_some() {
            let request = Request { everybody, one };
            self.is_pending = self.requests.send(request).is_ok();
        }
    }

    /// Takes the result, if it arrives in time.
    pub fn receive(&mut self, state: &mut State, patience: Duration) -> Result<()> {
        if !self.is_pending {
            return Ok(());
        }
        let answer = match self.answers.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(error) => {
                return Err(error).context("the thread that looks at processes has ended")
            }
        };
        self.is_pending = false;
        if let Some(tick) = answer.tick {
            state.take(tick.context("the list of processes can not be read")?);
        }
        let focused = state.focused();
        let seen = answer.view.as_ref().map(|(key, _)| *key);
        state.focus = answer
            .view
            .map(|(_, view)| view)
            .filter(|_| seen == focused);
        if seen != focused {
            // The user opened another page meanwhile.
            self.ask(state, false);
        }
        Ok(())
    }
}

fn work(mut sampler: Sampler, asked: &Receiver<Request>, answer: &Sender<Answer>) {
    let mut closely = Crew::new(choose::PATIENCE, |_: &ProcessKey, identity| {
        View::read(identity)
    });
    while let Ok(request) = asked.recv() {
        let tick = request.everybody.then(|| sampler.tick());
        let view = request.one.map(|identity| {
            let key = identity.key;
            (key, view(&mut closely, identity))
        });
        if answer.send(Answer { tick, view }).is_err() {
            return;
        }
    }
}

/// A close look.
fn view(
    crew: &mut Crew<ProcessKey, Identity, Result<View, ProcessError>>,
    identity: Identity,
) -> Result<View, String> {
    let key = identity.key;
    let held = |crew: &Crew<_, _, _>| {
        let held = crew.in_hand().into_iter().find(|(held, _)| *held == key);
        held.map(|(_, doing)| doing)
    };
    let jobs = held(crew).is_none().then_some((key, identity));
    let outcome = crew.run(jobs, Instant::now() + choose::LONGEST, MOST_LEFT);
    let seen = outcome
        .done
        .into_iter()
        .rev()
        .find(|(seen, _)| *seen == key);
    match (seen, held(crew)) {
        (Some((_, view)), _) => view.map_err(|error| error.to_string()),
        (None, Some(doing)) => {
            let pid = key.pid;
            Err(ProcessError::Silent { pid, doing }.to_string())
        }
        (None, None) => Err("others that hold up the look are waited for".to_owned()),
    }
}
