//! Finds out which event begins, resizes and ends which block, in an order that is possible.
//!
//! ```text
//!            allocate X                free X
//!   (none) ------------> live at X ------------> (none)
//!     |  free X            |  allocate X
//!     v                    v
//!   the free waits       the allocation waits
//!     |  allocate X        |  free X
//!     v                    v
//!   begun and ended      the old block ends, the new one is live at X
//! ```
//!
//! A recorder stamps a free before it takes effect, and an allocation after it returned. The order
//! of stamps is therefore possible, except where the processor reorders by some tens of
//! nanoseconds. An event that contradicts the live blocks waits for the event that explains it, for
//! at least `WINDOW_EVENTS` events and `WINDOW_TIME`. Events that remain unexplained are counted:
//! frees of blocks without a recorded beginning, and blocks without a recorded end whose memory was
//! handed out again. The memory in use is that of the live blocks.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::event::{AllocFamily, Event, FreeFamily, Record};

/// The least number of events that a contradiction waits for. Chosen: a hundred cores, each with
/// dozens of events in flight.
const WINDOW_EVENTS: u64 = 4_096;
/// The least nanoseconds that it waits for. Chosen: many times the delay by which a processor
/// reorders.
const WINDOW_TIME: u64 = 1_000_000;

/// A hash of addresses. One multiplication spreads them well enough. A trace that is made to have
/// collisions only slows its own reading.
#[derive(Debug, Default, Clone, Copy)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// A map by address.
pub type ByAddress<V> = HashMap<u64, V, BuildHasherDefault<AddressHasher>>;

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its number. Blocks are numbered from 0 in the order in which they begin. A resize keeps the
    /// number.
    pub id: u64,
    /// Its address.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// The requested alignment; 0: none.
    pub alignment: u64,
    /// The function that allocated it.
    pub family: AllocFamily,
    /// The thread that allocated it.
    pub thread: u32,
    /// The time of the allocation, in nanoseconds.
    pub born: u64,
    /// The number of the event that allocated it or resized it last.
    pub event: u64,
}

/// The meaning of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A block begins. `existing`: it lived before recording began.
    Begin {
        /// The block.
        block: Block,
        /// Whether it lived before recording began.
        existing: bool,
    },
    /// A request failed.
    Failed {
        /// Bytes asked for.
        size: u64,
    },
    /// A block ends.
    End {
        /// The block as it was.
        block: Block,
        /// The function.
        family: FreeFamily,
        /// The size that the caller gave.
        named: Option<u64>,
        /// Number of its resident pages, if a look counted them.
        touched: Option<u64>,
    },
    /// A block gets another size, and perhaps another address.
    Resize {
        /// The block before the resize.
        before: Block,
        /// The block after the resize.
        after: Block,
        /// Number of its resident pages before the resize, if a look counted them.
        touched: Option<u64>,
    },
    /// A block ended without an event: its memory was handed out again.
    Gone {
        /// The block as it was.
        block: Block,
    },
    /// The thread's first event.
    ThreadBegins,
    /// The thread's last event.
    ThreadEnds,
    /// The process forked.
    Fork {
        /// The child's stream.
        child: u32,
    },
    /// The process became another program.
    Exec,
    /// Events of the thread that were not recorded.
    Dropped {
        /// How many.
        count: u64,
    },
    /// The program asked its allocator to give memory back.
    Trim {
        /// Bytes to keep at the top.
        keep: u64,
    },
}

/// An action with its time and thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// The thread.
    pub thread: u32,
    /// What happened.
    pub action: Action,
}

/// Counts of events that did not fit together, by the way in which they were treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Repairs {
    /// Frees that came before their allocation and waited for it.
    pub late_allocations: u64,
    /// Allocations of a live address that waited for its free.
    pub late_frees: u64,
    /// Frees and resizes of blocks without a recorded beginning.
    pub unknown_frees: u64,
    /// Blocks whose memory was handed out again without a free.
    pub allocations_over_live: u64,
    /// Events that were not recorded.
    pub dropped: u64,
}

/// An event that waits for another event to explain it.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    ticket: u64,
    time: u64,
    thread: u32,
    what: Held,
}

#[derive(Debug, Clone, Copy)]
enum Held {
    Begin(Block, bool),
    End(FreeFamily, Option<u64>, Option<u64>),
}

/// Follows a stream's events.
#[derive(Debug, Default)]
pub struct Ordered {
    live: ByAddress<Block>,
    waiting: ByAddress<Waiting>,
    /// The waiting events in order: address, ticket, number of the event, time.
    queue: VecDeque<(u64, u64, u64, u64)>,
    /// Blocks within a resize, by thread; none: the block's beginning was not recorded.
    resizing: HashMap<u32, (Option<Block>, Option<u64>)>,
    blocks: u64,
    tickets: u64,
    events: u64,
    /// Number of the present event.
    number: u64,
    now: u64,
    repairs: Repairs,
}

impl Ordered {
    /// A state without live blocks.
    pub fn new() -> Ordered {
        Ordered::default()
    }

    /// The blocks that live.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.live.values()
    }

    /// How many blocks and events are held: those that live, wait, or are within a resize.
    pub fn held(&self) -> u64 {
        (self.live.len() + self.waiting.len() + self.queue.len() + self.resizing.len()) as u64
    }

    /// The counts so far.
    pub fn repairs(&self) -> Repairs {
        self.repairs
    }

    /// Takes the stream's next event. Appends its meaning to `out`, and that of waiting events that
    /// it explains.
    pub fn push(&mut self, record: &Record, out: &mut Vec<Act>) {
        self.push_numbered(self.events, record, out);
    }

    /// The same. `number` becomes the event number of the block.
    pub fn push_numbered(&mut self, number: u64, record: &Record, out: &mut Vec<Act>) {
        self.number = number;
        self.events += 1;
        self.now = self.now.max(record.time);
        let Record {
            time,
            thread,
            event,
        } = *record;
        while let Some(&(address, ticket, number, since)) = self.queue.front() {
            if number + WINDOW_EVENTS > self.events || since.saturating_add(WINDOW_TIME) > time {
                break;
            }
            self.queue.pop_front();
            self.expire(address, ticket, out);
        }
        let mut act = |action| {
            out.push(Act {
                time,
                thread,
                action,
            });
        };
        match event {
            Event::Allocate {
                address: 0, size, ..
            } => act(Action::Failed { size }),
            Event::Allocate {
                family,
                address,
                size,
                alignment,
            } => {
                let block = self.block(record, family, address, size, alignment);
                self.begin(time, thread, block, false, out);
            }
            Event::Existing { address, size } => {
                let block = self.block(record, AllocFamily::Malloc, address, size, 0);
                self.begin(time, thread, block, true, out);
            }
            Event::Free {
                family,
                address,
                size,
                touched,
            } => {
                let named = family.is_sized().then_some(size);
                self.end(
                    time,
                    thread,
                    address,
                    Held::End(family, named, touched),
                    out,
                );
            }
            Event::ResizeFrom { address, touched } => {
                if let Some(&Waiting { ticket, .. }) = self.waiting.get(&address) {
                    self.expire(address, ticket, out);
                }
                self.abandon(time, thread, out);
                let block = self.live.remove(&address);
                if block.is_none() {
                    self.repairs.unknown_frees += 1;
                }
                self.resizing.insert(thread, (block, touched));
            }
            Event::ResizeTo { address, size } => self.resize(record, address, size, out),
            Event::ThreadBegins => act(Action::ThreadBegins),
            Event::ThreadEnds => act(Action::ThreadEnds),
            Event::Fork { child } => act(Action::Fork { child }),
            Event::Exec => act(Action::Exec),
            Event::Dropped { count } => {
                self.repairs.dropped = self.repairs.dropped.saturating_add(count);
                act(Action::Dropped { count });
            }
            Event::Trim { keep } => act(Action::Trim { keep }),
        }
    }

    /// Ends the stream: waiting events wait no longer, and blocks within a resize live.
    pub fn finish(&mut self, out: &mut Vec<Act>) {
        while let Some((address, ticket, ..)) = self.queue.pop_front() {
            self.expire(address, ticket, out);
        }
        let resizing: Vec<u32> = self.resizing.keys().copied().collect();
        for thread in resizing {
            self.abandon(self.now, thread, out);
        }
    }

    /// Ends a resize that will not be completed: its block lives at its old address.
    fn abandon(&mut self, time: u64, thread: u32, out: &mut Vec<Act>) {
        if let Some((Some(block), _)) = self.resizing.remove(&thread) {
            self.place(time, thread, block, out);
        }
    }

    /// Adds a live block. If another block lives at the address, the end of that block was not
    /// recorded.
    fn place(&mut self, time: u64, thread: u32, block: Block, out: &mut Vec<Act>) {
        if let Some(block) = self.live.insert(block.address, block) {
            self.repairs.allocations_over_live += 1;
            out.push(Act {
                time,
                thread,
                action: Action::Gone { block },
            });
        }
    }

    fn block(
        &mut self,
        record: &Record,
        family: AllocFamily,
        address: u64,
        size: u64,
        alignment: u64,
    ) -> Block {
        self.blocks += 1;
        Block {
            id: self.blocks - 1,
            address,
            size,
            alignment,
            family,
            thread: record.thread,
            born: record.time,
            event: self.number,
        }
    }

    fn begin(&mut self, time: u64, thread: u32, block: Block, existing: bool, out: &mut Vec<Act>) {
        let address = block.address;
        match self.waiting.get(&address).copied() {
            // This is the free that came too early.
            Some(Waiting {
                what: Held::End(family, named, touched),
                thread: freer,
                ..
            }) => {
                self.waiting.remove(&address);
                self.repairs.late_allocations += 1;
                let begin = Action::Begin { block, existing };
                let end = Action::End {
                    block,
                    family,
                    named,
                    touched,
                };
                out.extend([(thread, begin), (freer, end)].map(|(thread, action)| Act {
                    time,
                    thread,
                    action,
                }));
                return;
            }
            // Two allocations wait for one address: the free of the first one will not come any
            // more.
            Some(Waiting { ticket, .. }) => self.expire(address, ticket, out),
            None => {}
        }
        if self.live.contains_key(&address) {
            self.wait(time, thread, address, Held::Begin(block, existing));
            return;
        }
        self.live.insert(address, block);
        out.push(Act {
            time,
            thread,
            action: Action::Begin { block, existing },
        });
    }

    fn end(&mut self, time: u64, thread: u32, address: u64, held: Held, out: &mut Vec<Act>) {
        let Held::End(family, named, touched) = held else {
            return;
        };
        if let Some(block) = self.live.remove(&address) {
            out.push(Act {
                time,
                thread,
                action: Action::End {
                    block,
                    family,
                    named,
                    touched,
                },
            });
            if let Some(next) = self.waiting.remove(&address) {
                if let Held::Begin(block, existing) = next.what {
                    self.repairs.late_frees += 1;
                    self.live.insert(address, block);
                    out.push(Act {
                        time,
                        thread: next.thread,
                        action: Action::Begin { block, existing },
                    });
                }
            }
            return;
        }
        if let Some(&Waiting { ticket, .. }) = self.waiting.get(&address) {
            self.expire(address, ticket, out);
        }
        self.wait(time, thread, address, held);
    }

    fn resize(&mut self, record: &Record, address: u64, size: u64, out: &mut Vec<Act>) {
        let (time, thread) = (record.time, record.thread);
        let (block, touched) = self.resizing.remove(&thread).unwrap_or_default();
        let mut act = |action| {
            out.push(Act {
                time,
                thread,
                action,
            });
        };
        match (block, address) {
            // This is a realloc(p, 0) that frees.
            (Some(block), 0) if size == 0 => act(Action::End {
                block,
                family: FreeFamily::Free,
                named: None,
                touched,
            }),
            (Some(block), 0) => {
                act(Action::Failed { size });
                self.place(time, thread, block, out);
            }
            (Some(before), _) => {
                let after = Block {
                    address,
                    size,
                    event: self.number,
                    ..before
                };
                act(Action::Resize {
                    before,
                    after,
                    touched,
                });
                // If another block lives there, its free is late. The address is taken at once,
                // since the resized block is known.
                self.place(time, thread, after, out);
            }
            (None, 0) => {}
            (None, _) => {
                let block = self.block(record, AllocFamily::Malloc, address, size, 0);
                self.begin(time, thread, block, false, out);
            }
        }
    }

    fn wait(&mut self, time: u64, thread: u32, address: u64, what: Held) {
        self.tickets += 1;
        let ticket = self.tickets;
        let waiting = Waiting {
            ticket,
            time,
            thread,
            what,
        };
        self.waiting.insert(address, waiting);
        self.queue.push_back((address, ticket, self.events, time));
    }

    /// Ends the wait of the event with this ticket at `address`: no event explains it.
    fn expire(&mut self, address: u64, ticket: u64, out: &mut Vec<Act>) {
        match self.waiting.get(&address) {
            Some(waiting) if waiting.ticket == ticket => {}
            _ => return,
        }
        let Some(Waiting {
            time, thread, what, ..
        }) = self.waiting.remove(&address)
        else {
            return;
        };
        let Held::Begin(block, existing) = what else {
            self.repairs.unknown_frees += 1;
            return;
        };
        self.place(time, thread, block, out);
        out.push(Act {
            time,
            thread,
            action: Action::Begin { block, existing },
        });
    }
}
