//! How many pages of each large block were resident in its life. A trace says so at the block's end, and the replay
//! needs it at its beginning: a first walk writes it into a side file by number of the block's *stage* (its beginning,
//! each resize), a second walk reads that from start to end.
//!
//! Where nobody looked, the share of pages that blocks of like size had is taken, else all.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use loam_format::trace::Touch;

/// Shares are told apart by doublings of the size.
const CLASSES: usize = 64;
/// Entries of a page of the cache in front of the side file: stages end mostly near where they began.
const PAGE: u64 = 1 << 14;
/// Pages of that cache.
const PAGES: usize = 64;

/// Pages of a block of this size.
pub fn pages(size: u64, page_bytes: u64) -> u64 {
    size.div_ceil(page_bytes)
}

/// Whether the replayer needs to know how many pages of it were touched.
pub fn is_large(size: u64, page_bytes: u64) -> bool {
    size >= 2 * page_bytes
}

/// The side file while it is written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    cache: HashMap<u64, Page>,
    clock: u64,
    stages: u64,
    known: [(u64, u64); CLASSES],
    page_bytes: u64,
}

#[derive(Debug)]
struct Page {
    values: Vec<u32>,
    used: u64,
}

/// What is known of shares.
#[derive(Debug, Clone)]
pub struct Shares {
    known: [(u64, u64); CLASSES],
}

impl Writer {
    /// Begins.
    pub fn new(file: File, page_bytes: u64) -> Writer {
        Writer {
            file,
            cache: HashMap::new(),
            clock: 0,
            stages: 0,
            known: [(0, 0); CLASSES],
            page_bytes,
        }
    }

    /// A large block's next stage.
    pub fn begin(&mut self) -> u64 {
        self.stages += 1;
        self.stages - 1
    }

    /// Somebody saw that many pages of it; the most counts. Whether nobody had before.
    pub fn saw(&mut self, stage: u64, size: u64, touched: u64) -> io::Result<bool> {
        let all = pages(size, self.page_bytes);
        let touched = touched.min(all);
        let value = u32::try_from(touched).unwrap_or(u32::MAX - 1) + 1;
        let slot = &mut self.page(stage / PAGE)?.values[(stage % PAGE) as usize];
        let before = u64::from(slot.saturating_sub(1));
        let first = *slot == 0;
        *slot = (*slot).max(value);
        let share = &mut self.known[class(size)];
        share.0 += touched.saturating_sub(before);
        share.1 += if first { all } else { 0 };
        Ok(first)
    }

    fn page(&mut self, number: u64) -> io::Result<&mut Page> {
        self.clock += 1;
        if !self.cache.contains_key(&number) {
            if self.cache.len() >= PAGES {
                let oldest = self.cache.iter().min_by_key(|(_, page)| page.used);
                if let Some(oldest) = oldest.map(|(number, _)| *number) {
                    self.evict(oldest)?;
                }
            }
            let mut bytes = vec![0; PAGE as usize * 4];
            let mut got = 0;
            while got < bytes.len() {
                let offset = number * PAGE * 4 + got as u64;
                match self.file.read_at(&mut bytes[got..], offset)? {
                    0 => break,
                    n => got += n,
                }
            }
            let words = bytes.chunks_exact(4);
            let values = words.map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
            let values = values.collect();
            self.cache.insert(number, Page { values, used: 0 });
        }
        let clock = self.clock;
        let page = self.cache.get_mut(&number).expect("it was just put there");
        page.used = clock;
        Ok(page)
    }

    fn evict(&mut self, number: u64) -> io::Result<()> {
        let Some(page) = self.cache.remove(&number) else {
            return Ok(());
        };
        let bytes: Vec<u8> = page
            .values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.file.write_all_at(&bytes, number * PAGE * 4)
    }

    /// The side file from its start, and the shares.
    pub fn finish(mut self) -> io::Result<(Reader, Shares)> {
        let numbers: Vec<u64> = self.cache.keys().copied().collect();
        for number in numbers {
            self.evict(number)?;
        }
        self.file.flush()?;
        // Stages that nobody saw are holes of the file, or lie behind its end.
        self.file.set_len(self.stages * 4)?;
        self.file.seek(SeekFrom::Start(0))?;
        let reader = Reader {
            input: BufReader::with_capacity(1 << 16, self.file),
        };
        Ok((reader, Shares { known: self.known }))
    }
}

/// The side file while it is read.
#[derive(Debug)]
pub struct Reader {
    input: BufReader<File>,
}

impl Reader {
    /// Pages of the next stage; none: nobody looked.
    pub fn next(&mut self) -> io::Result<Option<u64>> {
        let mut bytes = [0; 4];
        self.input.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes).checked_sub(1).map(u64::from))
    }
}

impl Shares {
    /// Pages of a block of this size of which nobody knows.
    pub fn guess(&self, size: u64, page_bytes: u64) -> u64 {
        let all = pages(size, page_bytes);
        let own = self.known[class(size)];
        let (touched, of) = if own.1 > 0 {
            own
        } else {
            let sums = |(a, b), (c, d): &(u64, u64)| (a + c, b + d);
            self.known.iter().fold((0, 0), sums)
        };
        if of == 0 {
            return all;
        }
        (all as f64 * touched as f64 / of as f64).round() as u64
    }
}

fn class(size: u64) -> usize {
    (63 - size.max(1).leading_zeros()) as usize
}

/// Pages of live blocks, as they were seen from outside: a side file in the order of their times.
#[derive(Debug)]
pub struct Outside {
    input: BufReader<File>,
    next: Option<(u64, u64, u64)>,
}

impl Outside {
    /// Writes a row.
    pub fn write(out: &mut impl Write, touch: &Touch) -> io::Result<()> {
        let (Some(time), Some(address), Some(pages)) = (touch.time, touch.address, touch.pages)
        else {
            return Ok(());
        };
        for word in [time, address, pages] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }

    /// Reads from the start.
    pub fn new(mut file: File) -> io::Result<Outside> {
        file.seek(SeekFrom::Start(0))?;
        let mut outside = Outside {
            input: BufReader::new(file),
            next: None,
        };
        outside.advance()?;
        Ok(outside)
    }

    fn advance(&mut self) -> io::Result<()> {
        let mut bytes = [0; 24];
        self.next = match self.input.read_exact(&mut bytes) {
            Ok(()) => {
                let word = |at: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&bytes[at..at + 8]);
                    u64::from_le_bytes(word)
                };
                Some((word(0), word(8), word(16)))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// The next row before `time`: address and pages.
    pub fn before(&mut self, time: u64) -> io::Result<Option<(u64, u64)>> {
        match self.next {
            Some((at, address, pages)) if at < time => {
                self.advance()?;
                Ok(Some((address, pages)))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_read_in_the_order_of_stages() {
        let mut writer = Writer::new(tempfile::tempfile().unwrap(), 4_096);
        let count = PAGE * (PAGES as u64 + 3);
        for stage in 0..count {
            assert_eq!(writer.begin(), stage);
        }
        // Far apart, so that pages of the cache come and go.
        for stage in (0..count)
            .step_by(1_000)
            .chain((0..count).rev().step_by(777))
        {
            writer.saw(stage, 100 * 4_096, stage % 100).unwrap();
        }
        let (mut reader, shares) = writer.finish().unwrap();
        let (mut sum, mut looks) = (0, 0);
        for stage in 0..count {
            let seen = stage % 1_000 == 0 || (count - 1 - stage) % 777 == 0;
            let expected = seen.then_some(stage % 100);
            assert_eq!(reader.next().unwrap(), expected, "{stage}");
            sum += expected.unwrap_or(0);
            looks += u64::from(seen);
        }
        let guess = shares.guess(100 * 4_096, 4_096);
        assert!(guess.abs_diff(sum / looks) <= 1, "{guess}");
    }

    #[test]
    fn without_knowledge_all_pages_are_touched() {
        let writer = Writer::new(tempfile::tempfile().unwrap(), 4_096);
        let (_, shares) = writer.finish().unwrap();
        assert_eq!(shares.guess(40_961, 4_096), 11);
    }
}
