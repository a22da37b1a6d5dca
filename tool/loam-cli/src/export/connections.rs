//! Which connections are served when more come than are served at a time.
//!
//! A connection is for one request, and lasts for so long and no longer. When there are as many as there
//! may be, the oldest goes that is not waiting for a look: it has not asked yet, or does not take its
//! answer, and both take an honest scraper milliseconds. So neither silent clients nor greedy ones keep
//! others out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// Connections at a time. Chosen: far more than scrapers, and with a descriptor each far fewer than the
/// 1,024 that a process has by default.
const MOST: usize = 128;

/// A connection that is open.
struct Connection {
    /// It has asked, and the answer is not there yet.
    waits: Rc<Cell<bool>>,
    task: AbortHandle,
}

/// Those that are open, the oldest first.
#[derive(Default)]
pub struct Connections(RefCell<VecDeque<Connection>>);

impl Connections {
    /// Makes room for one more. False if all wait for a look: the new one can not be served.
    pub fn admit(&self) -> bool {
        let mut open = self.0.borrow_mut();
        open.retain(|one| !one.task.is_finished());
        if open.len() < MOST {
            return true;
        }
        let Some(place) = open.iter().position(|one| !one.waits.get()) else {
            return false;
        };
        if let Some(one) = open.remove(place) {
            one.task.abort();
        }
        true
    }

    /// Adds one. Its flag says whether it waits for a look.
    pub fn add(&self, waits: Rc<Cell<bool>>, task: AbortHandle) {
        self.0.borrow_mut().push_back(Connection { waits, task });
    }
}
