//! Units of 16 bytes into events: what a ring's bytes mean, in their own order.

use loam_format::trace::{AllocFamily, Event, FreeFamily};

use super::layout::UNIT_BYTES;

const TIME: u64 = 1;
const ALLOCATE: u64 = 2;
const FREE: u64 = 3;
const RESIZE_FROM: u64 = 4;
const RESIZE_TO: u64 = 5;
const THREAD_BEGINS: u64 = 6;
const THREAD_ENDS: u64 = 7;
const FORKS: u64 = 8;
const DROPPED: u64 = 9;
const SIZE_HIGH: u64 = 10;
const TOUCHED: u64 = 11;
const MAPPED: u64 = 12;
const UNMAPPED: u64 = 13;
const TRIMS: u64 = 14;

const VALUE: u64 = (1 << 48) - 1;

/// An event of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped {
    /// By the processor's counter.
    pub stamp: u64,
    /// The thread, numbered from 0.
    pub thread: u32,
    /// Number of the fork, if it is one.
    pub fork: u32,
    /// What happened.
    pub event: Event,
}

/// Memory that the program maps or unmaps itself, beside its heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Own {
    /// By the processor's counter.
    pub stamp: u64,
    /// Where.
    pub address: u64,
    /// How much; pages that it reaches into are meant as a whole.
    pub bytes: u64,
    /// Whether it is there from now on, or goes.
    pub is_mapped: bool,
}

/// What a ring's units say.
#[derive(Debug, Default)]
pub struct Read {
    /// One moment by both clocks, for each time record.
    pub pairs: Vec<(u64, u64)>,
    /// The program's own memory.
    pub own: Vec<Own>,
}

/// Reads a ring's units one after the other; an event may take several, and they may come in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    thread: u32,
    high: u64,
    /// The stamp of what was read last.
    pub last: u64,
    is_in_time: bool,
    size_high: u64,
    touched: Option<u64>,
    /// Units that mean nothing.
    pub unknown: u64,
}

impl Decoder {
    /// Reads units: events go to `out`, all else to `read`.
    pub fn read(&mut self, bytes: &[u8], out: &mut Vec<Stamped>, read: &mut Read) {
        for unit in bytes.chunks_exact(UNIT_BYTES as usize) {
            let (first, second) = unit.split_at(8);
            let word0 = u64::from_le_bytes(first.try_into().expect("eight bytes"));
            let word1 = u64::from_le_bytes(second.try_into().expect("eight bytes"));
            self.unit(word0, word1, out, read);
        }
    }

    #[inline]
    fn unit(&mut self, word0: u64, word1: u64, out: &mut Vec<Stamped>, read: &mut Read) {
        if self.is_in_time {
            self.is_in_time = false;
            self.thread = ((word1 >> 32) as u32).saturating_sub(1);
            read.pairs.push((self.last, word0));
            return;
        }
        let kind = word0 >> 48 & 31;
        let family = (word0 >> 53 & 15) as usize;
        let value = word0 & VALUE;
        if kind == TIME {
            self.is_in_time = true;
            self.high = word1 >> 32 << 32;
            self.last = word1;
            return;
        }
        let size = self.size_high | (word1 & u64::from(u32::MAX));
        let stamp = self.high | word1 >> 32;
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
            ALLOCATE => AllocFamily::ALL.get(family).map(|family| Event::Allocate {
                family: *family,
                address: value,
                size,
                alignment: match family.is_aligned() {
                    true => 1 << (word0 >> 57 & 63),
                    false => 0,
                },
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
                read.own.push(Own {
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
        let Some(event) = event else {
            self.unknown += 1;
            return;
        };
        out.push(Stamped {
            stamp,
            thread: self.thread,
            fork: if kind == FORKS { value as u32 } else { 0 },
            event,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(words: &[(u64, u64)]) -> Vec<u8> {
        let bytes = |(a, b): &(u64, u64)| [a.to_le_bytes(), b.to_le_bytes()].concat();
        words.iter().flat_map(bytes).collect()
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
        for cut in (0..bytes.len()).step_by(UNIT_BYTES as usize) {
            let (mut decoder, mut out, mut read) =
                (Decoder::default(), Vec::new(), Read::default());
            decoder.read(&bytes[..cut], &mut out, &mut read);
            decoder.read(&bytes[cut..], &mut out, &mut read);
            assert_eq!(read.pairs, [(7 << 32 | 5, 1_000)]);
            let own = |address, bytes, is_mapped| Own {
                stamp: 7 << 32 | 9,
                address,
                bytes,
                is_mapped,
            };
            assert_eq!(
                read.own,
                [own(0x2000, (1 << 32) + 4_096, true), own(0x3000, 5, false)]
            );
            assert_eq!(out[2].event, Event::Trim { keep: 64 });
            assert_eq!(
                out.iter()
                    .map(|one| (one.stamp & 0xff, one.thread))
                    .collect::<Vec<_>>(),
                [(6, 1), (8, 1), (9, 1)]
            );
            assert_eq!(
                out[0].event,
                Event::Allocate {
                    family: AllocFamily::Aligned,
                    address: 0x1000,
                    size: (1 << 32) + 3,
                    alignment: 64
                }
            );
            assert_eq!(
                out[1].event,
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
    fn nonsense_is_counted() {
        let (mut decoder, mut out, mut read) = (Decoder::default(), Vec::new(), Read::default());
        decoder.read(
            &units(&[(31 << 48, 0), (ALLOCATE << 48 | 15 << 53, 0)]),
            &mut out,
            &mut read,
        );
        assert_eq!((decoder.unknown, out.len()), (2, 0));
    }
}
