//! Reads the next window of a long walk in a separate thread while the window before is walked,
//! because copying memory takes as long as walking it.
//!
//! A window that was read ahead is older than one that is read when it is needed, so the walk
//! checks more: see [`super::walk`].

use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::{Builder, Scope};

use loam_format::bytes::u64_at;
use loam_format::memory::Memory;

/// Bytes before a window that its reader fills itself.
pub const LEAD: usize = 8;

/// A window of memory.
#[derive(Debug, Default)]
pub struct Window {
    /// Room, then the bytes that were read.
    pub bytes: Vec<u8>,
    /// Its first address.
    pub address: u64,
    /// How much was read, after the room; 0: nothing could be read.
    pub length: usize,
}

impl Window {
    /// Reads the window.
    pub fn fill(&mut self, memory: &impl Memory, address: u64, length: usize) -> Option<()> {
        self.make_room(length);
        self.length = 0;
        let read = memory.read(address, &mut self.bytes[LEAD..LEAD + length]);
        read.ok()?;
        (self.address, self.length) = (address, length);
        Some(())
    }

    /// Makes room for so many bytes. Nothing is cleared, because the system fills the room.
    pub fn make_room(&mut self, length: usize) {
        if self.bytes.len() < LEAD + length {
            self.bytes.resize(LEAD + length, 0);
        }
    }

    /// The two words from that address on, if it has them.
    pub fn words(&self, place: u64) -> Option<(u64, u64)> {
        if !self.has_header(place) {
            return None;
        }
        words(&self.bytes[LEAD + (place - self.address) as usize..])
    }

    /// Whether it has the 16 bytes from that address on.
    pub fn has_header(&self, place: u64) -> bool {
        place >= self.address && place + 16 <= self.address + self.length as u64
    }
}

/// The first two words of some bytes.
pub fn words(bytes: &[u8]) -> Option<(u64, u64)> {
    Some((u64_at(bytes, 0)?, u64_at(bytes, 8)?))
}

/// A thread that reads ahead.
pub struct Ahead {
    ask: SyncSender<(u64, usize, Window)>,
    told: Receiver<Window>,
    is_asked: bool,
    spare: Window,
}

impl Ahead {
    /// None if the system has no thread for it.
    pub fn start<'scope, M: Memory + Sync>(
        scope: &'scope Scope<'scope, '_>,
        memory: &'scope M,
    ) -> Option<Ahead> {
        let (ask, asked) = sync_channel::<(u64, usize, Window)>(1);
        let (tell, told) = sync_channel(1);
        let read = move || {
            for (address, length, mut window) in asked {
                // Its length says whether something was read.
                let _ = window.fill(memory, address, length);
                if tell.send(window).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("loam-ahead".to_owned());
        thread.spawn_scoped(scope, read).ok()?;
        Some(Ahead {
            ask,
            told,
            is_asked: false,
            spare: Window::default(),
        })
    }

    /// Requests the next window. Earlier requests are forgotten.
    pub fn ask(&mut self, address: u64, length: usize) {
        self.forget();
        let window = std::mem::take(&mut self.spare);
        self.is_asked = self.ask.send((address, length, window)).is_ok();
    }

    /// The requested window is too old by now.
    pub fn forget(&mut self) {
        if let Some(window) = self.receive() {
            self.spare = window;
        }
    }

    fn receive(&mut self) -> Option<Window> {
        let is_asked = std::mem::take(&mut self.is_asked);
        is_asked.then(|| self.told.recv().ok())?
    }

    /// Replaces a window that was walked by the requested one, if that has the header from there
    /// on.
    pub fn take(&mut self, place: u64, walked: &mut Window) -> bool {
        let Some(mut window) = self.receive() else {
            return false;
        };
        let is_wanted = window.has_header(place);
        if is_wanted {
            std::mem::swap(walked, &mut window);
        }
        self.spare = window;
        is_wanted
    }
}
