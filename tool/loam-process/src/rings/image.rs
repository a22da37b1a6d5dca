//! The file of one process image, drained pass by pass.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, Ordering};

use rustix::fs::OFlags;
use thiserror::Error;

use super::batch::Batch;
use super::clock::Clock;
use super::layout::{
    Control, Slot, CONTROL_BYTES, CONTROL_READ, IS_FILTERED, IS_LEFT, SLOT_BYTES, TAIL_OFFSET,
    TOLD, UNIT_BYTES, VERSION,
};
use super::merge::{merge, Beside, Waiting};
use super::namespaces::{self, Seen};
use super::unit::{CopiedStack, Decoder, Found, Marked, Own};

/// How much of a ring a pass reads, and how much of it may wait: all of a large ring. With more,
/// 256 rings could fill the memory; with less, more passes would be needed.
const AT_ONCE: u64 = 1024 * 1024;
/// How much one call reads, into memory that stays in the processor's cache.
const PIECE: u64 = 64 * 1024;

/// Why a file can not be drained.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The system refuses.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// Another version wrote it.
    #[error(
        "{path} is of version {found} of the rings, and this loam drains version {VERSION}: use \
         the libloam-record.so that belongs to it"
    )]
    Version {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
    },
    /// Its rings are longer than the file's memory.
    #[error("{path}: its rings have {claimed} bytes, and the file has {bytes}")]
    Claims {
        /// The file.
        path: String,
        /// What the rings claim.
        claimed: u64,
        /// What there is.
        bytes: u64,
    },
    /// It has an impossible value.
    #[error("{path}: ring {ring} says that {unread} bytes are unread, and it holds {bytes}")]
    Broken {
        /// The file.
        path: String,
        /// Which ring.
        ring: usize,
        /// The value.
        unread: u64,
        /// The highest possible value.
        bytes: u64,
    },
}

/// How a process image began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Began {
    /// By its start or by exec.
    Exec,
    /// By fork.
    Fork,
    /// It was already running.
    Attach,
}

/// The result of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Bytes that were read.
    pub read: u64,
    /// Whether events wait for the next pass, or are unread.
    pub has_more: bool,
    /// Whether events are unread.
    pub has_unread: bool,
    /// How full the fullest ring was, in percent.
    pub fullest: u64,
}

/// A moment that the program named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// The thread, numbered from 0.
    pub thread: u32,
    /// The program's name for it.
    pub name: String,
}

#[derive(Debug, Default)]
struct Ring {
    tail: u64,
    decoder: Decoder,
    waiting: Waiting,
    has_unread: bool,
}

/// One process image.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: File,
    control: Control,
    /// The process as it is seen from here; none if it is not.
    seen: Option<Seen>,
    /// What the process was told.
    told: u32,
    /// Bytes of all rings that the last look found.
    claimed: u64,
    rings: Vec<Ring>,
    forks: BTreeMap<u32, u64>,
    slots: Vec<u8>,
    scratch: Vec<u8>,
    found: Found,
    stacks: Vec<(usize, CopiedStack)>,
    marks: Vec<Named>,
}

impl Image {
    /// Opens a file; `None` while its process still prepares it.
    pub fn open(path: &Path) -> Result<Option<Image>, ImageError> {
        let of_io = |error| ImageError::Io {
            path: path.display().to_string(),
            error,
        };
        // The folder is private, but a recorded process may put anything into it.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(of_io)?;
        if !file.metadata().map_err(of_io)?.is_file() {
            return Err(of_io(io::Error::other("it is no file of rings")));
        }
        let Some(control) = read_control(&file).map_err(of_io)? else {
            return Ok(None);
        };
        if control.version != VERSION {
            return Err(ImageError::Version {
                path: path.display().to_string(),
                found: control.version,
            });
        }
        Ok(Some(Image {
            path: path.to_path_buf(),
            file,
            seen: namespaces::find(control.pid, control.start, control.spaces),
            told: 0,
            claimed: 0,
            control,
            rings: Vec::new(),
            forks: BTreeMap::new(),
            slots: Vec::new(),
            scratch: Vec::new(),
            found: Found::default(),
            stacks: Vec::new(),
            marks: Vec::new(),
        }))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process, by its number here; by its own where it is not visible.
    pub fn pid(&self) -> u32 {
        self.seen.map_or(self.control.pid, |seen| seen.pid as u32)
    }

    /// When the process began, in ticks since the machine's start.
    pub fn start(&self) -> u64 {
        self.seen.map_or(self.control.start, |seen| seen.started)
    }

    /// Whether the process is visible here. One in a PID namespace that is not below this one is
    /// not.
    pub fn is_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// Tells the process that its file is not drained any more, so that it does not wait for that.
    pub fn leave(&mut self) {
        self.tell(IS_LEFT);
    }

    /// Tells the process that a filter restricts its system calls.
    pub fn tell_filter(&mut self) {
        self.tell(IS_FILTERED);
    }

    /// Whether it was told so.
    pub fn knows_filter(&self) -> bool {
        self.told & IS_FILTERED != 0
    }

    fn tell(&mut self, what: u32) {
        self.told |= what;
        // A process whose file can not be written is not drained either, and that is an error of
        // its own.
        let _ = self.file.write_all_at(&self.told.to_le_bytes(), TOLD);
    }

    fn here(&self, monotonic: u64) -> u64 {
        let behind = self.seen.map_or(0, |seen| seen.behind);
        monotonic.saturating_add_signed(behind)
    }

    /// How it began.
    pub fn began(&self) -> Began {
        match self.control.how {
            2 => Began::Fork,
            3 => Began::Attach,
            _ => Began::Exec,
        }
    }

    /// The process that started it.
    pub fn parent(&self) -> u32 {
        self.control.parent
    }

    /// The file of the process that forked it, and the number of that fork there.
    pub fn fork(&self) -> (&str, u32) {
        (&self.control.parent_file, self.control.fork_number)
    }

    /// When it forked for the `number`th time, in nanoseconds since the recording began.
    pub fn time_of_fork(&self, number: u32) -> Option<u64> {
        self.forks.get(&number).copied()
    }

    /// One moment as a stamp and by `CLOCK_MONOTONIC`: the moment at which its file was made.
    pub fn moment(&self) -> (u64, u64) {
        (self.control.stamp, self.here(self.control.monotonic))
    }

    /// The rate of stamps, if the processor tells it; otherwise 0.
    pub fn ticks_per_second(&self) -> u64 {
        self.control.ticks_per_second
    }

    /// Whether its program ended by itself, as far as it could say so.
    pub fn ended_normally(&self) -> bool {
        self.control.state == 1
    }

    /// Its program's file.
    pub fn program(&self) -> &str {
        &self.control.program
    }

    /// The file of its real malloc.
    pub fn allocator(&self) -> &str {
        &self.control.allocator
    }

    /// Why it stopped recording, if it did.
    pub fn why_off(&self) -> Option<&str> {
        (self.control.state == 2 && !self.control.why.is_empty()).then_some(&self.control.why)
    }

    /// Events that found no room.
    pub fn lost(&self) -> u64 {
        self.control.lost
    }

    /// Units without a meaning.
    pub fn unknown_units(&self) -> u64 {
        self.rings.iter().map(|ring| ring.decoder.unknown).sum()
    }

    /// The mappings that the program made and removed itself since the last call, in order. They
    /// may be ahead of the events.
    pub fn take_own(&mut self) -> Vec<Own> {
        let mut own = std::mem::take(&mut self.found.own);
        own.sort_by_key(|one| one.stamp);
        own
    }

    /// One pass. When the process has ended, `is_last` gives out everything, in as many passes as
    /// are needed.
    pub fn pass(
        &mut self,
        clock: &mut Clock,
        is_last: bool,
        out: &mut Batch,
    ) -> Result<Pass, ImageError> {
        let mut pass = Pass::default();
        self.read_heads(&mut pass)?;
        let newest = self.rings.iter().map(|ring| ring.decoder.last).max();
        let mut until = newest.unwrap_or(0);
        // The first reading of heads and events ends before the second one begins.
        fence(Ordering::SeqCst);
        self.read_heads(&mut pass)?;
        if is_last {
            until = u64::MAX;
        }
        // A ring that was not read to its end may have later events.
        for ring in self.rings.iter().filter(|ring| ring.has_unread) {
            until = until.min(ring.decoder.last);
        }
        for (stamp, monotonic) in std::mem::take(&mut self.found.pairs) {
            clock.pair(stamp, self.here(monotonic));
        }
        out.set_clock(clock);
        let (forks, stacks) = (&mut self.forks, &mut self.stacks);
        let rings = self.rings.iter_mut().map(|ring| &mut ring.waiting);
        merge(rings, until, out, |at, beside| match beside {
            Beside::Fork(number, stamp) => {
                forks.insert(number, clock.time(stamp));
            }
            Beside::Stack(stack) => stacks.push((at, stack)),
        });
        self.give_marks(clock, until);
        pass.has_unread = self.rings.iter().any(|ring| ring.has_unread);
        pass.has_more = pass.has_unread || self.rings.iter().any(|ring| ring.waiting.len() > 0);
        Ok(pass)
    }

    /// Stacks of the events that the last passes gave out, each with the event's place in `out`.
    pub fn take_stacks(&mut self) -> Vec<(usize, CopiedStack)> {
        std::mem::take(&mut self.stacks)
    }

    /// Moments that the program named, up to what the last pass gave out.
    pub fn take_marks(&mut self) -> Vec<Named> {
        std::mem::take(&mut self.marks)
    }

    fn give_marks(&mut self, clock: &Clock, until: u64) {
        let named = |mark: Marked| Named {
            time: clock.time(mark.stamp),
            thread: mark.thread,
            name: String::from_utf8_lossy(&mark.name).into_owned(),
        };
        let (ready, later) = std::mem::take(&mut self.found.marks)
            .into_iter()
            .partition(|mark| mark.stamp <= until);
        self.found.marks = later;
        self.marks.extend(Vec::into_iter(ready).map(named));
        self.marks.sort_by_key(|mark| mark.time);
    }

    fn of_io(&self, error: io::Error) -> ImageError {
        ImageError::Io {
            path: self.path.display().to_string(),
            error,
        }
    }

    fn read_heads(&mut self, pass: &mut Pass) -> Result<(), ImageError> {
        if let Some(control) = read_control(&self.file).map_err(|error| self.of_io(error))? {
            self.control = control;
        }
        let count = self.control.slots_made as usize;
        let mut slots = std::mem::take(&mut self.slots);
        slots.resize(count * SLOT_BYTES as usize, 0);
        let held = self.read_holder(count)?;
        let size = read_some(&self.file, &mut slots, CONTROL_BYTES);
        let size = size.map_err(|error| self.of_io(error))?;
        fence(Ordering::SeqCst);
        if self.rings.len() < count {
            self.rings.resize_with(count, Ring::default);
        }
        let parsed = slots[..size].chunks_exact(SLOT_BYTES as usize);
        self.require_memory(parsed.filter_map(Slot::parse).map(|slot| slot.bytes).sum())?;
        for (index, raw) in slots[..size].chunks_exact(SLOT_BYTES as usize).enumerate() {
            let is_held = self.control.holder == Some(index);
            let slot = if is_held { held } else { Slot::parse(raw) };
            if let Some(slot) = slot {
                let unread = slot.head.saturating_sub(self.rings[index].tail);
                let fill = unread.saturating_mul(100) / slot.bytes.max(1);
                pass.fullest = pass.fullest.max(fill);
                pass.read += self.read_ring(index, slot)?;
            }
        }
        self.slots = slots;
        Ok(())
    }

    /// The rings' memory is the process's, which it pays for. Rings that share it, or lie in a hole
    /// of the file, would cost this process more than the recorded one.
    fn require_memory(&mut self, claimed: u64) -> Result<(), ImageError> {
        if claimed <= self.claimed {
            return Ok(());
        }
        let bytes = self.file.metadata().map_err(|error| self.of_io(error))?;
        let bytes = bytes.blocks().saturating_mul(512);
        if claimed > bytes {
            return Err(ImageError::Claims {
                path: self.path.display().to_string(),
                claimed,
                bytes,
            });
        }
        self.claimed = claimed;
        Ok(())
    }

    /// The slot of the thread whose events may share stamps, as it was before all other slots are
    /// read (`native/recorder/lease.h`).
    fn read_holder(&self, count: usize) -> Result<Option<Slot>, ImageError> {
        let Some(holder) = self.control.holder.filter(|holder| *holder < count) else {
            return Ok(None);
        };
        let mut raw = [0; SLOT_BYTES as usize];
        let at = CONTROL_BYTES + holder as u64 * SLOT_BYTES;
        let size = read_some(&self.file, &mut raw, at).map_err(|error| self.of_io(error))?;
        fence(Ordering::SeqCst);
        Ok(Slot::parse(&raw[..size]))
    }

    fn read_ring(&mut self, index: usize, slot: Slot) -> Result<u64, ImageError> {
        let ring = &mut self.rings[index];
        // The head is less than what was read if a child continued where its parent's signal
        // handler forked.
        let unread = slot.head.saturating_sub(ring.tail);
        if unread > slot.bytes {
            return Err(ImageError::Broken {
                path: self.path.display().to_string(),
                ring: index,
                unread,
                bytes: slot.bytes,
            });
        }
        let waiting = ring.waiting.len() as u64 + ring.waiting.stack_bytes as u64 / UNIT_BYTES;
        let room = (AT_ONCE / UNIT_BYTES).saturating_sub(waiting) * UNIT_BYTES;
        let bytes = unread.min(room);
        ring.has_unread = bytes < unread;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE);
            self.read_piece(index, slot, piece)?;
            left -= piece;
        }
        Ok(bytes)
    }

    fn read_piece(&mut self, index: usize, slot: Slot, bytes: u64) -> Result<(), ImageError> {
        let ring = &mut self.rings[index];
        self.scratch.resize(PIECE as usize, 0);
        let piece = &mut self.scratch[..bytes as usize];
        let begin = ring.tail % slot.bytes;
        let (first, second) = piece.split_at_mut(bytes.min(slot.bytes - begin) as usize);
        let read = self
            .file
            .read_exact_at(first, slot.offset + begin)
            .and_then(|()| self.file.read_exact_at(second, slot.offset));
        ring.tail += bytes;
        let at = CONTROL_BYTES + index as u64 * SLOT_BYTES + TAIL_OFFSET;
        let tail = ring.tail.to_le_bytes();
        read.and_then(|()| self.file.write_all_at(&tail, at))
            .map_err(|error| ImageError::Io {
                path: self.path.display().to_string(),
                error,
            })?;
        ring.decoder.read(piece, &mut ring.waiting, &mut self.found);
        Ok(())
    }
}

fn read_control(file: &File) -> io::Result<Option<Control>> {
    let mut page = [0; CONTROL_READ];
    let size = read_some(file, &mut page, 0)?;
    Ok(Control::parse(&page[..size]))
}

/// Reads as much as there is.
fn read_some(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut size = 0;
    while size < bytes.len() {
        match file.read_at(&mut bytes[size..], offset + size as u64) {
            Ok(0) => break,
            Ok(more) => size += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(size)
}
