//! From units of 16 bytes to events: the meaning of a ring's bytes, in their own order.

use loam_format::bytes::u64_at;
use loam_format::trace::{AllocFamily, Event, FreeFamily};

use super::batch::{
    is_plain, words, ALLOCATE, EXISTS, FAMILY, FREE, KIND, LOW, RESIZE_FROM, RESIZE_TO, UNIT, VALUE,
};
use super::layout::STACK_BYTES;
use super::merge::{Beside, Waiting};
use crate::python::calls::Chain;

const TIME: u64 = 1;
const THREAD_BEGINS: u64 = 6;
const THREAD_ENDS: u64 = 7;
const FORKS: u64 = 8;
const DROPPED: u64 = 9;
const SIZE_HIGH: u64 = 10;
const TOUCHED: u64 = 11;
const MAPPED: u64 = 12;
const UNMAPPED: u64 = 13;
const TRIMS: u64 = 14;
/// A stack, before its event.
pub const STACK: u64 = 15;
/// A moment that the program names.
pub const MARK: u64 = 16;

const REGISTER_BYTES: usize = 32;
/// The most bytes that follow a unit.
const MOST_BYTES: u64 = REGISTER_BYTES as u64 + STACK_BYTES;

/// Memory that the program maps or unmaps itself, beside its heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Own {
    /// By the processor's counter.
    pub stamp: u64,
    /// Where.
    pub address: u64,
    /// Its length; pages that it covers in part count as a whole.
    pub bytes: u64,
    /// Whether it is mapped from now on, or unmapped.
    pub is_mapped: bool,
}

/// The registers with which unwinding begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub instruction: u64,
    /// Stack pointer: the address of the first copied byte.
    pub stack: u64,
    /// Frame pointer.
    pub frame: u64,
    /// Return address, where the processor has a register for it.
    pub link: u64,
}

/// A stack as it was when a block was handed out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiedStack {
    /// The registers.
    pub registers: Registers,
    /// Bytes of memory from the stack pointer on; fewer than requested if the stack ends.
    pub bytes: Vec<u8>,
    /// The thread's Python frames at that moment, if they were copied too.
    pub python: Chain,
}

/// A moment that the program named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// By the processor's counter.
    pub stamp: u64,
    /// The thread.
    pub thread: u32,
    /// The name, as the program wrote it.
    pub name: Vec<u8>,
}

/// The content of an image's rings that is not events.
#[derive(Debug, Default)]
pub struct Found {
    /// Moments by both clocks.
    pub pairs: Vec<(u64, u64)>,
    /// The program's own memory.
    pub own: Vec<Own>,
    /// Moments that the program named.
    pub marks: Vec<Marked>,
}

/// Bytes that follow a unit.
#[derive(Debug)]
struct Arriving {
    kind: u64,
    stamp: u64,
    size: usize,
    bytes: Vec<u8>,
}

/// Reads a ring's units one after the other. An event may take several units, and they may arrive
/// in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    thread: u32,
    high: u64,
    /// The stamp of the last unit.
    pub last: u64,
    is_in_time: bool,
    size_high: u64,
    touched: Option<u64>,
    arriving: Option<Arriving>,
    stack: Option<CopiedStack>,
    /// Units without a meaning.
    pub unknown: u64,
}

impl Decoder {
    /// Reads units. `found` gets all that is no event.
    pub fn read(&mut self, bytes: &[u8], out: &mut Waiting, found: &mut Found) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.is_in_event() {
                let plain = self.read_plain(rest, out);
                rest = &rest[plain..];
            }
            let Some((unit, behind)) = rest.split_at_checked(UNIT) else {
                return;
            };
            rest = behind;
            self.unit(unit, out, found);
        }
    }

    /// Whether the next unit belongs to one before it.
    fn is_in_event(&self) -> bool {
        self.arriving.is_some()
            || self.is_in_time
            || self.size_high != 0
            || self.touched.is_some()
            || self.stack.is_some()
    }

    /// Reads units up to the first that is not an event by itself; nearly all are. Returns their
    /// bytes.
    fn read_plain(&mut self, bytes: &[u8], out: &mut Waiting) -> usize {
        let (mut last, mut is_unsorted, mut count) = (self.last & LOW, false, 0);
        for unit in bytes.chunks_exact(UNIT) {
            let [word0, word1] = words(unit);
            if !is_plain(word0) {
                break;
            }
            is_unsorted |= word1 >> 32 < last;
            last = word1 >> 32;
            count += 1;
        }
        if count > 0 {
            self.last = self.high | last;
            out.queue.is_unsorted |= is_unsorted;
            let plain = bytes[..count * UNIT].chunks_exact(UNIT);
            out.queue.units.extend(plain.map(words));
        }
        count * UNIT
    }

    fn arrived(&mut self, found: &mut Found) {
        let Some(mut arriving) = self.arriving.take() else {
            return;
        };
        arriving.bytes.truncate(arriving.size);
        if arriving.kind == MARK {
            found.marks.push(Marked {
                stamp: arriving.stamp,
                thread: self.thread,
                name: arriving.bytes,
            });
            return;
        }
        let register = |at: usize| u64_at(&arriving.bytes, at * 8).unwrap_or(0);
        let registers = Registers {
            instruction: register(0),
            stack: register(1),
            frame: register(2),
            link: register(3),
        };
        let bytes = arriving.bytes.split_off(REGISTER_BYTES.min(arriving.size));
        self.stack = Some(CopiedStack {
            registers,
            bytes,
            python: Chain::default(),
        });
    }

    fn unit(&mut self, unit: &[u8], out: &mut Waiting, found: &mut Found) {
        if let Some(arriving) = &mut self.arriving {
            arriving.bytes.extend_from_slice(unit);
            if arriving.bytes.len() >= arriving.size {
                self.arrived(found);
            }
            return;
        }
        let [word0, word1] = words(unit);
        if self.is_in_time {
            self.is_in_time = false;
            self.thread = ((word1 >> 32) as u32).saturating_sub(1);
            out.queue.units.begin_run(self.thread, self.high);
            found.pairs.push((self.last, word0));
            return;
        }
        let kind = word0 >> KIND & 31;
        let family = (word0 >> FAMILY & 15) as usize;
        let value = word0 & VALUE;
        if kind == TIME {
            self.is_in_time = true;
            self.high = word1 >> 32 << 32;
            out.queue.is_unsorted |= word1 < self.last;
            self.last = word1;
            return;
        }
        let size = self.size_high | (word1 & LOW);
        let stamp = self.high | word1 >> 32;
        out.queue.is_unsorted |= stamp < self.last;
        self.last = stamp;
        let event = match kind {
            SIZE_HIGH => {
                self.size_high = value << 32;
                return;
            }
            TOUCHED => {
                self.touched = Some(value);
                return;
            }
            STACK | MARK if value <= MOST_BYTES => {
                self.arriving = Some(Arriving {
                    kind,
                    stamp,
                    size: value as usize,
                    bytes: Vec::new(),
                });
                if value == 0 {
                    self.arrived(found);
                }
                return;
            }
            ALLOCATE => AllocFamily::ALL.get(family).map(|family| Event::Allocate {
                family: *family,
                address: value,
                size,
                alignment: match family.is_aligned() {
                    true => 1 << (word0 >> 57 & 63),
                    false => 0,
                },
            }),
            EXISTS => Some(Event::Existing {
                address: value,
                size,
            }),
            FREE => FreeFamily::ALL.get(family).map(|family| Event::Free {
                family: *family,
                address: value,
                size: if family.is_sized() { size } else { 0 },
                touched: self.touched,
            }),
            RESIZE_FROM => Some(Event::ResizeFrom {
                address: value,
                touched: self.touched,
            }),
            RESIZE_TO => Some(Event::ResizeTo {
                address: value,
                size,
            }),
            THREAD_BEGINS => Some(Event::ThreadBegins),
            THREAD_ENDS => Some(Event::ThreadEnds),
            FORKS => Some(Event::Fork { child: u32::MAX }),
            DROPPED => Some(Event::Dropped { count: value }),
            TRIMS => Some(Event::Trim { keep: size }),
            MAPPED | UNMAPPED => {
                self.size_high = 0;
                found.own.push(Own {
                    stamp,
                    address: value,
                    bytes: size,
                    is_mapped: kind == MAPPED,
                });
                return;
            }
            _ => None,
        };
        self.size_high = 0;
        self.touched = None;
        let stack = self.stack.take();
        let Some(event) = event else {
            self.unknown += 1;
            return;
        };
        if kind == FORKS {
            out.belongs(Beside::Fork(value as u32, stamp));
        } else if let Some(stack) = stack {
            out.belongs(Beside::Stack(stack));
        }
        // An event after a stack may be plain. It does no harm to treat it as a rare one.
        out.queue.units.push_rare(stamp, event);
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;

    fn units(words: &[(u64, u64)]) -> Vec<u8> {
        let bytes = |(a, b): &(u64, u64)| [a.to_le_bytes(), b.to_le_bytes()].concat();
        words.iter().flat_map(bytes).collect()
    }

    /// Stamp, thread and event of all.
    fn events(waiting: &mut Waiting) -> Vec<(u64, u32, Event)> {
        let mut batch = Batch::default();
        waiting.queue.give(u64::MAX, &mut batch);
        batch.told()
    }

    #[test]
    fn an_event_takes_what_stands_before_it_and_may_come_in_pieces() {
        let bytes = units(&[
            (TIME << 48, 7 << 32 | 5),
            (1_000, 2 << 32 | 4242),
            (SIZE_HIGH << 48 | 1, 6 << 32),
            (ALLOCATE << 48 | 2 << 53 | 6 << 57 | 0x1000, 6 << 32 | 3),
            (TOUCHED << 48 | 9, 8 << 32),
            (FREE << 48 | 0x1000, 8 << 32 | 77),
            (SIZE_HIGH << 48 | 1, 9 << 32),
            (MAPPED << 48 | 0x2000, 9 << 32 | 4_096),
            (UNMAPPED << 48 | 0x3000, 9 << 32 | 5),
            (TRIMS << 48, 9 << 32 | 64),
        ]);
        for cut in (0..bytes.len()).step_by(UNIT) {
            let (mut decoder, mut waiting, mut found) =
                (Decoder::default(), Waiting::default(), Found::default());
            decoder.read(&bytes[..cut], &mut waiting, &mut found);
            decoder.read(&bytes[cut..], &mut waiting, &mut found);
            let out = events(&mut waiting);
            assert_eq!(found.pairs, [(7 << 32 | 5, 1_000)]);
            let own = |address, bytes, is_mapped| Own {
                stamp: 7 << 32 | 9,
                address,
                bytes,
                is_mapped,
            };
            assert_eq!(
                found.own,
                [own(0x2000, (1 << 32) + 4_096, true), own(0x3000, 5, false)]
            );
            assert_eq!(out[2].2, Event::Trim { keep: 64 });
            assert_eq!(
                out.iter()
                    .map(|one| (one.0 & 0xff, one.1))
                    .collect::<Vec<_>>(),
                [(6, 1), (8, 1), (9, 1)]
            );
            assert_eq!(
                out[0].2,
                Event::Allocate {
                    family: AllocFamily::Aligned,
                    address: 0x1000,
                    size: (1 << 32) + 3,
                    alignment: 64
                }
            );
            assert_eq!(
                out[1].2,
                Event::Free {
                    family: FreeFamily::Free,
                    address: 0x1000,
                    size: 0,
                    touched: Some(9)
                }
            );
        }
    }

    #[test]
    fn a_stack_and_a_name_may_come_in_pieces_and_a_stack_belongs_to_the_event_behind_it() {
        let bytes = units(&[
            (TIME << 48, 5),
            (1_000, 2 << 32),
            (STACK << 48 | 52, 6 << 32),
            (0x40, 0x7ff0),
            (0x7fff, 0),
            (1, 2),
            (3, 0xffff),
            (MARK << 48 | 5, 7 << 32),
            (u64::from_le_bytes(*b"serve..."), 0),
            (ALLOCATE << 48 | 0x1000, 8 << 32 | 3),
            (ALLOCATE << 48 | 0x2000, 9 << 32 | 3),
        ]);
        for cut in (0..bytes.len()).step_by(UNIT) {
            let (mut decoder, mut waiting, mut found) =
                (Decoder::default(), Waiting::default(), Found::default());
            decoder.read(&bytes[..cut], &mut waiting, &mut found);
            decoder.read(&bytes[cut..], &mut waiting, &mut found);
            let out = events(&mut waiting);
            assert_eq!(waiting.beside.len(), 1);
            let (0, Beside::Stack(stack)) = &waiting.beside[0] else {
                panic!("{:?}", waiting.beside);
            };
            assert_eq!((out.len(), decoder.unknown), (2, 0));
            let registers = Registers {
                instruction: 0x40,
                stack: 0x7ff0,
                frame: 0x7fff,
                link: 0,
            };
            assert_eq!(stack.registers, registers);
            assert_eq!((stack.bytes.len(), stack.bytes[16]), (20, 3));
            assert_eq!(waiting.stack_bytes, 20);
            let mark = &found.marks[0];
            assert_eq!(
                (&mark.name[..], mark.stamp, mark.thread),
                (&b"serve"[..], 7, 1)
            );
        }
    }

    #[test]
    fn nonsense_is_counted() {
        let (mut decoder, mut waiting, mut found) =
            (Decoder::default(), Waiting::default(), Found::default());
        decoder.read(
            &units(&[
                (31 << 48, 0),
                (ALLOCATE << 48 | 15 << 53, 0),
                (STACK << 48 | (MOST_BYTES + 1), 0),
            ]),
            &mut waiting,
            &mut found,
        );
        assert_eq!((decoder.unknown, waiting.len()), (3, 0));
    }
}
