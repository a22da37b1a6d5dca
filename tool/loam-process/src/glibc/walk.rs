//! Walks the chunks of a stretch of memory while the process runs.
//!
//! ```text
//!  chunk      +0   length of the chunk before, if that one is free
//!             +8   own length | flags; the lowest: the chunk before is in use
//!             +16  the block
//!  next chunk +length ...       whose lowest flag says whether this chunk is in use
//! ```
//!
//! The process may split and join chunks during the walk. Two habits keep the walk right. (1) Each
//! window of memory is read together with the header of the chunk that leads to it, one after the
//! other in one system call, and that header must not have changed. (A window that was read ahead
//! lies between two looks at the header.) (2) The last chunks count only when the walk is well past
//! them. A header that can not be right makes the walk go back, further each time, and read again.
//! If that does not help, the walk searches for the chain further on, and says how many bytes it
//! did not see.
//!
//! A part of the memory may be unreadable: guards within the heap, or a range that the process gave
//! back. A window ends there, and the search steps over it page by page.

use std::collections::VecDeque;

use super::ahead::{self, Ahead, Window, LEAD};
use super::layout::{ALIGNMENT, FLAGS, IN_OTHER_ARENA, IS_MAPPED, PREVIOUS_IN_USE, SHORTEST};
use super::layout::{CONVINCING, FENCE};
use super::pages::PAGE;
use loam_format::memory::{Memory, Piece};

/// The kind of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A block, or a freed one that a cache or a fast bin keeps.
    InUse,
    /// A hole between blocks.
    Free,
    /// The rest of the arena.
    Top,
}

/// A chunk, with its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The address of its header.
    pub address: u64,
    /// Its length, with the header.
    pub size: u64,
    /// What it is.
    pub state: State,
    /// The first word of the block, which leads from a freed chunk to the next one; zero if it was
    /// not read.
    pub link: u64,
    /// The second word of the block, which marks the chunks of threads' caches; zero if it was not
    /// read.
    pub mark: u64,
}

/// A stretch of memory to walk.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// The first chunk.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Whether the arena is the main one.
    pub is_main: bool,
}

/// How much is read at a time. Chosen: the copy takes 120 us. In a longer time more chunks change
/// under a window that was read ahead. With shorter windows the two threads wake each other more
/// often, which costs a fifth of a look at 4 GiB.
pub const WINDOW: u64 = 1 << 20;
/// From this mean length of chunks on, only the pages with headers are read. Chosen: a call takes
/// as long as the copy of so many bytes.
const SPARSE: u64 = 16 << 10;
/// From this length on, a stretch is read ahead. Chosen: to start a thread takes as long as to read
/// a quarter of a window.
const LONG: u64 = 4 * WINDOW;
/// How many chunks are held back, so that the walk can go back to them.
const HELD: usize = 1024;
/// How often a walk goes back for the same place.
const MOST_RETURNS: u32 = 12;
/// How far a lost chain is searched.
const FURTHEST_CHAIN: u64 = 8 << 20;
/// How often a walk goes back in all: this often, and once more for each so many bytes of the
/// stretch. Each return may read up to four windows again. Chosen: six looks at programs whose
/// threads replaced blocks left nothing unread, and a stretch of hostile bytes costs at most 256
/// MiB of copies, and four times its length.
const RETURNS: u64 = 64;
const BYTES_A_RETURN: u64 = WINDOW;
/// How many leads out of the window a walk follows while it searches: this many, and one more for
/// each page. Each is a system call for 16 bytes, which takes about a microsecond.
const LEADS: u64 = 16 << 10;
const BYTES_A_LEAD: u64 = PAGE;

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Bytes that were not walked.
    pub unread: u64,
    /// How often the walk had to go back.
    pub returns: u32,
}

/// Walks a stretch and tells each chunk once, in the order of addresses. `end_now` says where the
/// stretch ends now: it may grow meanwhile, and then its last chunk grows too.
pub fn walk(
    memory: &(impl Memory + Sync),
    stretch: Stretch,
    end_now: impl Fn() -> Option<u64>,
    tell: impl FnMut(Chunk),
) -> End {
    std::thread::scope(|scope| {
        let is_long = stretch.end.saturating_sub(stretch.start) >= LONG;
        let walk = Walk {
            memory,
            stretch,
            ahead: is_long.then(|| Ahead::start(scope, memory)).flatten(),
            window: Window::default(),
            headers: 0,
            most: WINDOW,
            leads: LEADS + stretch.end.saturating_sub(stretch.start) / BYTES_A_LEAD,
            next: (0, 0),
            held: VecDeque::with_capacity(HELD + 1),
        };
        to_the_end(walk, end_now, tell)
    })
}

fn to_the_end<M: Memory>(
    mut walk: Walk<'_, M>,
    end_now: impl Fn() -> Option<u64>,
    mut tell: impl FnMut(Chunk),
) -> End {
    let stretch = walk.stretch;
    let mut place = stretch.start;
    // Chunks since the walk last went back, and how often it went back without getting on.
    let mut since = 0;
    let mut tries = 0;
    let mut returns = 0;
    let mut unread = 0;
    let most_returns = RETURNS + stretch.end.saturating_sub(stretch.start) / BYTES_A_RETURN;
    loop {
        match walk.step(place, Walk::header) {
            Step::Chunk(chunk) => {
                place = chunk.address + chunk.size;
                since += 1;
                walk.held.push_back(chunk);
                if walk.held.len() > HELD {
                    walk.held.pop_front().into_iter().for_each(&mut tell);
                }
                if chunk.state == State::Top {
                    break;
                }
            }
            Step::Fence => {
                // In the main arena the program itself moved the break, and the chain goes on
                // behind its memory.
                walk.held.drain(..).for_each(&mut tell);
                let behind = stretch.is_main.then(|| walk.next_chain(place)).flatten();
                // At the end of an arena there are two fences, and before them what was left of its
                // top, if that was as short.
                let rest = walk.stretch.end.saturating_sub(place);
                let is_end = !stretch.is_main || rest <= 3 * FENCE;
                unread += match behind {
                    Some(behind) => behind - place,
                    None if is_end => 0,
                    None => rest,
                };
                let Some(behind) = behind else { break };
                (place, since, tries) = (behind, 0, 0);
            }
            Step::Wrong => {
                if since > 2 * HELD {
                    tries = 0;
                }
                (tries, since) = (tries + 1, 0);
                if tries > MOST_RETURNS || u64::from(returns) >= most_returns {
                    // The chain continues somewhere after this place.
                    walk.held.drain(..).for_each(&mut tell);
                    let end = walk.stretch.end;
                    let found = walk.next_chain(place);
                    unread += found.unwrap_or(end).saturating_sub(place);
                    match found {
                        Some(found) => (place, tries) = (found, 0),
                        None => break,
                    }
                    continue;
                }
                returns += 1;
                // Go back 1, 2, 4... chunks, and read all again.
                for _ in 0..1u32 << (tries - 1).min(10) {
                    if let Some(chunk) = walk.held.pop_back() {
                        place = chunk.address;
                    }
                }
                walk.forget();
                walk.stretch.end = end_now().unwrap_or(walk.stretch.end);
                std::thread::yield_now();
            }
        }
    }
    walk.held.drain(..).for_each(tell);
    End { unread, returns }
}

enum Step {
    Chunk(Chunk),
    Fence,
    Wrong,
}

struct Walk<'a, M> {
    memory: &'a M,
    stretch: Stretch,
    /// Reads the next window meanwhile, if the stretch is long.
    ahead: Option<Ahead>,
    /// The window that is walked, after room for the word that leads to it.
    window: Window,
    /// How many headers were looked at in the window.
    headers: u64,
    /// How long the next window is at most. Memory that can not be read makes it shorter, and so do
    /// long chunks.
    most: u64,
    /// How many leads out of the window may still be followed.
    leads: u64,
    /// The header that the last step found after its chunk, with its address.
    next: (u64, u64),
    held: VecDeque<Chunk>,
}

impl<M: Memory> Walk<'_, M> {
    /// `header` is [`Walk::header`], or [`Walk::glance`] in a search.
    fn step(
        &mut self,
        place: u64,
        header: impl Fn(&mut Self, u64, Option<(u64, u64)>) -> Option<(u64, u64)>,
    ) -> Step {
        let end = self.stretch.end;
        let head = if self.next.0 == place {
            self.next.1
        } else {
            let Some((_, head)) = header(self, place, None) else {
                return Step::Wrong;
            };
            head
        };
        let size = head & !FLAGS;
        if size == FENCE {
            return Step::Fence;
        }
        if size < SHORTEST || !self.is_sound(place, head) {
            return Step::Wrong;
        }
        let (link, mark) = self.window.words(place + 16).unwrap_or_default();
        let chunk = |state| Chunk {
            address: place,
            size,
            state,
            link,
            mark,
        };
        // The top chunk ends the stretch.
        if end - (place + size) < SHORTEST {
            return Step::Chunk(chunk(State::Top));
        }
        let Some((size_before, next)) = header(self, place + size, Some((place, head))) else {
            return Step::Wrong;
        };
        self.next = (place + size, next);
        // A user's data would often pass for the header of one chunk, but rarely lead to a second
        // one.
        if !self.is_sound(place + size, next) {
            return Step::Wrong;
        }
        if next & PREVIOUS_IN_USE != 0 {
            return Step::Chunk(chunk(State::InUse));
        }
        if size_before != size {
            return Step::Wrong;
        }
        Step::Chunk(chunk(State::Free))
    }

    fn is_sound(&self, place: u64, head: u64) -> bool {
        let size = head & !FLAGS;
        size >= FENCE
            && size % ALIGNMENT == 0
            && size <= self.stretch.end.saturating_sub(place)
            && head & IS_MAPPED == 0
            && (head & IN_OTHER_ARENA == 0 || !self.stretch.is_main)
    }

    /// The next place after another from which a chain of sound headers leads on. The window moves
    /// on with the places that are tried, and not to the places where they lead: nearly all leads
    /// are wrong.
    fn next_chain(&mut self, place: u64) -> Option<u64> {
        let behind = place.saturating_add(FURTHEST_CHAIN).min(self.stretch.end);
        let mut start = place + ALIGNMENT;
        while start < behind {
            if self.glance(start, None).is_none() {
                // Nothing of this page can be read.
                start = (start / PAGE + 1).saturating_mul(PAGE);
            } else if self.is_chain(start) {
                return Some(start);
            } else {
                start += ALIGNMENT;
            }
        }
        None
    }

    /// Whether a chain of sound headers starts here.
    fn is_chain(&mut self, mut place: u64) -> bool {
        for count in 0..CONVINCING {
            match self.step(place, Walk::glance) {
                // The chain leads to the very end, so few chunks are enough. A single word may be
                // the rest of an earlier top.
                Step::Chunk(chunk) if chunk.state == State::Top => return count > 0,
                Step::Chunk(chunk) => place += chunk.size,
                _ => return false,
            }
        }
        true
    }

    /// All read memory is too old.
    fn forget(&mut self) {
        self.window.length = 0;
        self.next = (0, 0);
        if let Some(ahead) = &mut self.ahead {
            ahead.forget();
        }
    }

    /// The two words of a header. `leading`: the header that leads here; it is read again if the
    /// window has to be.
    fn header(&mut self, place: u64, leading: Option<(u64, u64)>) -> Option<(u64, u64)> {
        if !self.window.has_header(place) {
            if leading.is_some() && self.is_sparse(place) {
                self.most = PAGE;
            }
            self.headers = 0;
            self.read_window(place, leading)?;
            self.ask_ahead();
        }
        self.headers += 1;
        self.window.words(place)
    }

    /// Whether the chunks between the window's begin and that place are long.
    fn is_sparse(&self, place: u64) -> bool {
        self.window.length > 0 && place.saturating_sub(self.window.address) > self.headers * SPARSE
    }

    /// The same for a search: a lead out of the window is read by its header alone.
    fn glance(&mut self, place: u64, leading: Option<(u64, u64)>) -> Option<(u64, u64)> {
        if self.window.has_header(place) {
            return self.window.words(place);
        }
        if leading.is_none() {
            self.read_window(place, None)?;
            return self.window.words(place);
        }
        self.leads = self.leads.checked_sub(1)?;
        let mut header = [0; 16];
        self.memory.read(place, &mut header).ok()?;
        ahead::words(&header)
    }

    /// Reads the window from that place on, or as much of it as can be read, to the end of the page
    /// at least.
    fn read_window(&mut self, place: u64, leading: Option<(u64, u64)>) -> Option<()> {
        let rest = self.stretch.end.checked_sub(place)?;
        if rest < 16 {
            return None;
        }
        let lead = leading.map(|(before, head)| {
            let address = before + 8;
            let length = LEAD;
            (Piece { address, length }, head)
        });
        let ahead = self.ahead.as_mut().filter(|_| lead.is_some());
        if ahead.is_some_and(|ahead| ahead.take(place, &mut self.window)) {
            // The leading header was the same before and after, so it was the same meanwhile.
            let room = &mut self.window.bytes[..LEAD];
            self.memory.read(lead?.0.address, room).ok()?;
        } else {
            let to_page_end = PAGE - place % PAGE;
            loop {
                let length = match self.most {
                    PAGE => to_page_end,
                    most => most,
                };
                let length = length.min(rest);
                if self.read_at_once(place, length as usize, lead.map(|(lead, _)| lead)) {
                    self.most = (2 * self.most).min(WINDOW);
                    break;
                }
                if length <= to_page_end {
                    return None;
                }
                self.most = (length / 2).next_power_of_two().max(PAGE);
            }
        }
        let Some((_, head)) = lead else {
            return Some(());
        };
        let again = u64::from_le_bytes(*self.window.bytes.first_chunk()?);
        if (again ^ head) & !PREVIOUS_IN_USE & !IN_OTHER_ARENA != 0 {
            self.window.length = 0;
            return None;
        }
        Some(())
    }

    /// Reads a window in one call, after the word that leads to it.
    fn read_at_once(&mut self, place: u64, length: usize, lead: Option<Piece>) -> bool {
        let Some(lead) = lead else {
            return self.window.fill(self.memory, place, length).is_some();
        };
        let window = Piece {
            address: place,
            length,
        };
        self.window.make_room(length);
        self.window.length = 0;
        let bytes = &mut self.window.bytes[..LEAD + length];
        let is_read = self.memory.gather(&[lead, window], bytes).is_ok();
        if is_read {
            (self.window.address, self.window.length) = (place, length);
        }
        is_read
    }

    /// The window after this one, with the part of a header that this one may have cut off.
    fn ask_ahead(&mut self) {
        let next = self.window.address + self.window.length as u64 - ALIGNMENT;
        let length = WINDOW.min(self.stretch.end.saturating_sub(next));
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        // Where memory can not be read, the walk itself finds out how far it goes.
        if self.most == WINDOW && length > ALIGNMENT {
            ahead.ask(next, length as usize);
        } else {
            ahead.forget();
        }
    }
}
