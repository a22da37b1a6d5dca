//! Work that may never end, done in threads apart from its caller.
//!
//! ```text
//!  caller   jobs --> queue -.                          .--> results --> caller
//!  worker                   '-- job, step, step, done -'
//!                               '-- no step for so long: left behind, another worker goes on
//! ```
//!
//! A look at another process may hold its thread in the kernel for ever: a page of the process's
//! memory, or a file that it maps, may lie on a file system whose server is gone (NFS, FUSE). Only
//! SIGKILL wakes such a thread. So these looks are jobs of separate threads. The thread that draws,
//! serves or takes signals only waits for them, for a time that it chooses.
//!
//! A worker takes a *step* before each call that may wait. If it makes no step for a moment,
//! another worker goes on with the queue, so that several held-up workers are waited for at the
//! same time. A worker whose last step is too long ago is *left behind*. It is not lost: when its
//! call returns after all, its result counts, and it ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::process::Pid;

/// How many workers may be left behind at a time. Chosen: each holds 16 KiB in the kernel and some
/// pages of stack, and if more processes than this are held up for different reasons, that is an
/// attack.
pub const MOST_LEFT: usize = 64;

/// After so long without a step another worker goes on with the queue. Chosen: far more than a step
/// takes, and a tenth of the shortest patience.
const MOMENT: Duration = Duration::from_millis(100);

/// What a worker waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// Only for its turn on the processor.
    Nothing,
    /// A file.
    File(PathBuf),
    /// Bytes of a process's memory.
    Memory(Pid),
    /// Information of the system about a process.
    Process(Pid),
}

impl fmt::Display for Doing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "the server of its file system may be gone (`findmnt` shows it)";
        match self {
            Doing::Nothing => out.write_str("it takes too long"),
            Doing::File(path) => {
                let path = loam_format::plain::printable(&path.to_string_lossy());
                write!(out, "the file {path} does not answer: {REMEDY}")
            }
            Doing::Memory(pid) => write!(
                out,
                "the memory of process {pid} does not answer: a page of it may lie on a file \
                 system whose server is gone"
            ),
            Doing::Process(pid) => write!(
                out,
                "what the system says of process {pid} does not come: a page of its memory may lie \
                 on a file system whose server is gone"
            ),
        }
    }
}

/// The current step of a worker, and when it began.
#[derive(Debug)]
struct Step {
    since: Instant,
    doing: Doing,
}

thread_local! {
    /// The worker that runs in this thread, if there is one.
    static DESK: RefCell<Option<Arc<Mutex<Step>>>> = const { RefCell::new(None) };
}

/// Announces the next step, before a call that may wait.
pub fn step(doing: Doing) {
    DESK.with_borrow(|desk| {
        if let Some(desk) = desk {
            *locked(desk) = Step {
                since: Instant::now(),
                doing,
            };
        }
    });
}

/// Begins the current step anew, before a further call of its kind.
pub fn step_again() {
    DESK.with_borrow(|desk| {
        if let Some(desk) = desk {
            let mut step = locked(desk);
            step.since = step.since.max(Instant::now());
        }
    });
}

/// What the worker of this thread says of its steps. Threads that help it take it along, so that
/// their steps are its.
pub struct Desk(Option<Arc<Mutex<Step>>>);

impl Desk {
    /// This thread's.
    pub fn here() -> Desk {
        Desk(DESK.with_borrow(Option::clone))
    }

    /// This thread helps from now on.
    pub fn help(&self) {
        DESK.set(self.0.clone());
    }
}

/// Computes. Nothing that may never end is waited for meanwhile, so it may take as long as it
/// takes.
pub fn compute<R>(act: impl FnOnce() -> R) -> R {
    const EVER: Duration = Duration::from_secs(1 << 30);
    let set = |since: Instant| {
        DESK.with_borrow(|desk| {
            if let Some(desk) = desk {
                *locked(desk) = Step {
                    since,
                    doing: Doing::Nothing,
                };
            }
        });
    };
    set(Instant::now() + EVER);
    let result = act();
    set(Instant::now());
    result
}

/// The same before a file is opened or read.
pub fn step_to_file(path: &Path) {
    step(Doing::File(path.to_path_buf()));
}

/// No thread panics with one of these locks held. Even if one did, the data that they guard would
/// be whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A job that a worker has taken.
struct InHand<K> {
    key: K,
    desk: Arc<Mutex<Step>>,
    is_left: bool,
}

struct State<K, J, R> {
    queue: VecDeque<(K, J)>,
    in_hand: Vec<InHand<K>>,
    done: Vec<(K, R)>,
    /// Workers that wait for jobs or do one, without those that are left behind.
    present: usize,
    is_closed: bool,
}

struct Shared<K, J, R> {
    state: Mutex<State<K, J, R>>,
    /// There is a job, or none will come.
    work: Condvar,
    /// A job is done.
    turned: Condvar,
}

/// What a worker does with a job.
type Act<K, J, R> = dyn Fn(&K, J) -> R + Send + Sync;

/// A worker, the workers that it waits for, and those that were left behind.
pub struct Crew<K, J, R> {
    shared: Arc<Shared<K, J, R>>,
    act: Arc<Act<K, J, R>>,
    patience: Duration,
}

/// The outcome of some jobs.
#[derive(Debug)]
pub struct Outcome<K, J, R> {
    /// Results, also of earlier jobs.
    pub done: Vec<(K, R)>,
    /// Jobs that were not started.
    pub undone: Vec<(K, J)>,
}

impl<K, J, R> Crew<K, J, R>
where
    K: Clone + Send + 'static,
    J: Send + 'static,
    R: Send + 'static,
{
    /// Makes a queue for jobs of one kind. A worker that makes no step for as long as `patience` is
    /// left behind.
    pub fn new(patience: Duration, act: impl Fn(&K, J) -> R + Send + Sync + 'static) -> Self {
        let state = State {
            queue: VecDeque::new(),
            in_hand: Vec::new(),
            done: Vec::new(),
            present: 0,
            is_closed: false,
        };
        Crew {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work: Condvar::new(),
                turned: Condvar::new(),
            }),
            act: Arc::new(act),
            patience,
        }
    }

    /// Does the jobs in their order. Returns when they are done, or at `until`, or when `most_left`
    /// workers are left behind.
    pub fn run(
        &mut self,
        jobs: impl IntoIterator<Item = (K, J)>,
        until: Instant,
        most_left: usize,
    ) -> Outcome<K, J, R> {
        let shared = Arc::clone(&self.shared);
        let mut state = locked(&shared.state);
        state.queue.extend(jobs);
        loop {
            let now = Instant::now();
            let patience = self.patience;
            // A job that is taken meanwhile may be held up from its beginning.
            let is_more = !state.queue.is_empty();
            let pause = if is_more {
                patience.min(MOMENT)
            } else {
                patience
            };
            let mut next = until.min(now + pause);
            let (mut newly_left, mut slow) = (0, 0);
            for hand in state.in_hand.iter_mut().filter(|hand| !hand.is_left) {
                let since = locked(&hand.desk).since;
                let end = since + patience;
                hand.is_left = end <= now;
                newly_left += usize::from(hand.is_left);
                next = next.min(end);
                slow += usize::from(!hand.is_left && since + MOMENT <= now);
            }
            state.present -= newly_left;
            let busy = state.in_hand.iter().filter(|hand| !hand.is_left).count();
            let left = state.in_hand.len() - busy;
            let most_left = most_left.min(MOST_LEFT);
            let is_over = now >= until || left >= most_left;
            if busy == 0 && (state.queue.is_empty() || is_over) || now >= until {
                return outcome(&mut state);
            }
            if is_more && !is_over {
                let is_needed = state.present <= slow && state.in_hand.len() < most_left;
                if is_needed && !self.hire(&mut state) && slow == 0 {
                    // There are no more threads. This may not last, and the caller will try again.
                    return outcome(&mut state);
                }
                self.shared.work.notify_one();
            }
            let wait = next.saturating_duration_since(now);
            let waited = self.shared.turned.wait_timeout(state, wait);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// The jobs that workers have taken, and what these wait for.
    pub fn in_hand(&self) -> Vec<(K, Doing)> {
        let state = locked(&self.shared.state);
        let held = state.in_hand.iter();
        held.map(|hand| (hand.key.clone(), locked(&hand.desk).doing.clone()))
            .collect()
    }

    fn hire(&self, state: &mut State<K, J, R>) -> bool {
        let (shared, act) = (Arc::clone(&self.shared), Arc::clone(&self.act));
        let builder = std::thread::Builder::new().name("loam-look".to_owned());
        let is_there = builder.spawn(move || work(&shared, &*act)).is_ok();
        state.present += usize::from(is_there);
        is_there
    }
}

fn outcome<K, J, R>(state: &mut State<K, J, R>) -> Outcome<K, J, R> {
    Outcome {
        done: std::mem::take(&mut state.done),
        undone: state.queue.drain(..).collect(),
    }
}

/// The patience of a caller with only one process or program to look at, for each step. Chosen: a
/// file that can be read at all is read within it, even from a slow network.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// For callers that only need the patience: there is no time by which all jobs have to end.
pub fn never() -> Instant {
    const EVER: Duration = Duration::from_secs(1 << 30);
    Instant::now() + EVER
}

/// One job, apart. Returns what it waits for if it makes no step for so long.
pub fn within<R: Send + 'static>(act: impl Fn() -> R + Send + Sync + 'static) -> Result<R, Doing> {
    let mut crew = Crew::new(PATIENCE, move |(), ()| act());
    let mut outcome = crew.run([((), ())], never(), 1);
    let held = crew.in_hand().pop().map(|((), doing)| doing);
    outcome
        .done
        .pop()
        .map(|((), result)| result)
        .ok_or(held.unwrap_or(Doing::Nothing))
}

fn work<K, J, R>(shared: &Shared<K, J, R>, act: &Act<K, J, R>)
where
    K: Clone,
{
    let desk = Arc::new(Mutex::new(Step {
        since: Instant::now(),
        doing: Doing::Nothing,
    }));
    DESK.set(Some(Arc::clone(&desk)));
    let mut state = locked(&shared.state);
    loop {
        if state.is_closed {
            return;
        }
        let Some((key, job)) = state.queue.pop_front() else {
            let waited = shared.work.wait(state);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            continue;
        };
        step(Doing::Nothing);
        state.in_hand.push(InHand {
            key: key.clone(),
            desk: Arc::clone(&desk),
            is_left: false,
        });
        drop(state);
        let result = act(&key, job);
        state = locked(&shared.state);
        state.done.push((key, result));
        let own = state
            .in_hand
            .iter()
            .position(|hand| Arc::ptr_eq(&hand.desk, &desk));
        let own = own.map(|place| state.in_hand.swap_remove(place));
        if own.is_none_or(|own| own.is_left) {
            // Another worker has its place.
            return;
        }
        if state.queue.is_empty() {
            shared.turned.notify_all();
        }
    }
}

impl<K, J, R> Drop for Crew<K, J, R> {
    fn drop(&mut self) {
        let mut state = locked(&self.shared.state);
        state.is_closed = true;
        state.queue.clear();
        self.shared.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver};

    /// A limit for tests that hang; no test waits for it.
    const LONG: Duration = Duration::from_secs(300);
    const SHORT: Duration = Duration::from_millis(20);

    /// A job that ends when the test says so, or at once.
    fn crew(patience: Duration) -> Crew<u32, Option<Receiver<()>>, u32> {
        Crew::new(patience, |key, gate: Option<Receiver<()>>| {
            if let Some(gate) = gate {
                step(Doing::Memory(*key as Pid));
                let _ = gate.recv();
            }
            key * 10
        })
    }

    fn keys(outcome: &Outcome<u32, Option<Receiver<()>>, u32>) -> Vec<u32> {
        outcome.done.iter().map(|(key, _)| *key).collect()
    }

    #[test]
    fn jobs_behind_those_that_hold_up_are_done_meanwhile() {
        // One after the other, these jobs would hold for as long as the patience. The last one lets
        // them go.
        let gates = Arc::new(Mutex::new(Vec::new()));
        let mut jobs = Vec::new();
        for key in 0..6 {
            let (opener, gate) = channel();
            locked(&gates).push(opener);
            jobs.push((key, Some(gate)));
        }
        jobs.push((6, None));
        let mut crew = Crew::new(LONG, move |key: &u32, gate: Option<Receiver<()>>| {
            match gate {
                Some(gate) => drop(gate.recv_timeout(LONG)),
                None => locked(&gates).clear(),
            }
            *key
        });
        let outcome = crew.run(jobs, Instant::now() + LONG / 2, MOST_LEFT);
        assert_eq!(outcome.done.len(), 7);
        assert!(outcome.undone.is_empty() && crew.in_hand().is_empty());
    }

    #[test]
    fn one_that_hangs_is_left_behind_and_the_others_are_done() {
        let mut crew = crew(SHORT);
        let (open, gate) = channel();
        let jobs = [(1, None), (2, Some(gate)), (3, None), (4, None)];
        let outcome = crew.run(jobs, Instant::now() + LONG, MOST_LEFT);
        assert_eq!(keys(&outcome), [1, 3, 4]);
        assert_eq!(crew.in_hand(), [(2, Doing::Memory(2))]);
        // It returns after all, and its result counts.
        open.send(()).unwrap();
        let began = Instant::now();
        loop {
            let outcome = crew.run([], Instant::now() + LONG, MOST_LEFT);
            if outcome.done == [(2, 20)] {
                break;
            }
            assert!(began.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(crew.in_hand(), []);
    }

    #[test]
    fn only_so_many_are_left_behind_and_the_rest_comes_back_undone() {
        let mut crew = crew(SHORT);
        let (gates, receivers): (Vec<_>, Vec<_>) = (0..5).map(|_| channel::<()>()).unzip();
        let jobs = receivers
            .into_iter()
            .zip(0..)
            .map(|(gate, key)| (key, Some(gate)));
        let outcome = crew.run(jobs, Instant::now() + LONG, 3);
        assert_eq!((outcome.done.len(), outcome.undone.len()), (0, 2));
        assert_eq!(crew.in_hand().len(), 3);
        // More workers may be left behind for processes that are known to be good.
        let outcome = crew.run([(9, None)], Instant::now() + LONG, 4);
        assert_eq!(keys(&outcome), [9]);
        drop(gates);
    }

    #[test]
    fn the_time_is_up_for_one_that_makes_steps_for_ever_too() {
        let mut crew: Crew<u32, (), ()> = Crew::new(LONG, |key, ()| loop {
            step(Doing::Process(*key as Pid));
            std::thread::sleep(Duration::from_millis(1));
        });
        let outcome = crew.run([(1, ()), (2, ())], Instant::now() + SHORT, MOST_LEFT);
        assert!(outcome.done.is_empty());
        assert_eq!(outcome.undone, [(2, ())]);
        assert_eq!(crew.in_hand(), [(1, Doing::Process(1))]);
    }

    #[test]
    fn steps_of_helpers_count_and_who_computes_is_not_left_behind() {
        let desk = Arc::new(Mutex::new(Step {
            since: Instant::now(),
            doing: Doing::Nothing,
        }));
        DESK.set(Some(Arc::clone(&desk)));
        compute(|| assert!(locked(&desk).since > Instant::now() + LONG));
        assert!(locked(&desk).since <= Instant::now());
        let here = Desk::here();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                here.help();
                step(Doing::Memory(7));
            });
        });
        assert_eq!(locked(&desk).doing, Doing::Memory(7));
        DESK.set(None);
        assert_eq!(compute(|| 7), 7);
    }

    #[test]
    fn one_job_gives_its_result() {
        assert_eq!(within(|| 7), Ok(7));
    }
}
