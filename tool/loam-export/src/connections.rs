//! Decides which connections are served if more clients connect than can be served at a time.
//!
//! A connection is for one request and lasts a limited time. When the number of connections reaches
//! its limit, the oldest one is closed that does not wait for a look: its client has not asked yet,
//! or does not take the answer. Both take an honest scraper milliseconds. So neither silent nor
//! greedy clients keep other clients out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// The most connections at a time. Chosen: far more than there are scrapers. Each needs a
/// descriptor, so it is also far fewer than the 1,024 that a process has by default.
const MOST: usize = 128;

/// An open connection.
struct Connection {
    /// Whether the client has asked and the answer is not ready yet.
    waits: Rc<Cell<bool>>,
    task: AbortHandle,
}

/// The open connections, the oldest first.
#[derive(Default)]
pub struct Connections(RefCell<VecDeque<Connection>>);

impl Connections {
    /// Makes room for another connection. False if all connections wait for a look: then the new
    /// one can not be served.
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

    /// Adds a connection. Its flag says whether it waits for a look.
    pub fn add(&self, waits: Rc<Cell<bool>>, task: AbortHandle) {
        self.0.borrow_mut().push_back(Connection { waits, task });
    }
}
