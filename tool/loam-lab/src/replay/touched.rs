//! How many pages of each large block were resident, and when. The recorder sees a block while it
//! lives (`Touch`) and just before its end. The replay needs the first of these figures at the
//! block's beginning. So a first walk writes the first and last figures into a side file, by number
//! of the block's *stage* (its beginning, each resize). A second walk reads that file from start to
//! end. Growth between two looks is a row of another file, in the order of time.
//!
//! If no look saw a block, the replay uses the share of pages of blocks of like size, else all
//! pages, and never more than the program had resident in any look.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Shares are kept for each doubling of the size.
const CLASSES: usize = 64;
/// Entries in a page of the cache before the side file. Most stages end near where they began.
const PAGE: u64 = 1 << 14;
/// Pages of that cache.
const PAGES: usize = 64;
/// Bytes of an entry of the side file.
const ENTRY: usize = 8;

fn entry(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX).min(u32::MAX - 1) + 1
}

fn parse(bytes: &[u8]) -> (u32, u32) {
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(word)
    };
    (word(0), word(4))
}

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
    /// The first and last figures, each stored as one more than its value.
    values: Vec<(u32, u32)>,
    used: u64,
}

/// The known shares of touched pages.
#[derive(Debug, Clone)]
pub struct Shares {
    known: [(u64, u64); CLASSES],
    /// The most pages that a look found resident in the whole program.
    most: Option<u64>,
}

impl Writer {
    /// Begins the file.
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

    /// Begins a large block's next stage.
    pub fn begin(&mut self) -> u64 {
        self.stages += 1;
        self.stages - 1
    }

    /// The first look at the stage found this many pages.
    pub fn first(&mut self, stage: u64, pages: u64) -> io::Result<()> {
        self.page(stage / PAGE)?.values[(stage % PAGE) as usize].0 = entry(pages);
        Ok(())
    }

    /// The last look found more pages than any look before.
    pub fn last(&mut self, stage: u64, pages: u64) -> io::Result<()> {
        self.page(stage / PAGE)?.values[(stage % PAGE) as usize].1 = entry(pages);
        Ok(())
    }

    /// Records the most pages that a look found of a block of this size.
    pub fn learn(&mut self, size: u64, pages: u64) {
        let share = &mut self.known[class(size)];
        share.0 += pages;
        share.1 += self::pages(size, self.page_bytes);
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
            let mut bytes = vec![0; PAGE as usize * ENTRY];
            let mut got = 0;
            while got < bytes.len() {
                let offset = number * PAGE * ENTRY as u64 + got as u64;
                match self.file.read_at(&mut bytes[got..], offset)? {
                    0 => break,
                    n => got += n,
                }
            }
            let values = bytes.chunks_exact(ENTRY).map(parse).collect();
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
            .flat_map(|(first, last)| [first.to_le_bytes(), last.to_le_bytes()].concat())
            .collect();
        self.file.write_all_at(&bytes, number * PAGE * ENTRY as u64)
    }

    /// Returns the side file, to be read from its start, and the shares. `most`: the most bytes
    /// that a look found resident, if any did.
    pub fn finish(mut self, most: Option<u64>) -> io::Result<(Reader, Shares)> {
        let numbers: Vec<u64> = self.cache.keys().copied().collect();
        for number in numbers {
            self.evict(number)?;
        }
        self.file.flush()?;
        // Stages without a look are holes of the file, or lie behind its end.
        self.file.set_len(self.stages * ENTRY as u64)?;
        self.file.seek(SeekFrom::Start(0))?;
        let reader = Reader {
            input: BufReader::with_capacity(1 << 16, self.file),
        };
        let most = most.map(|bytes| bytes / self.page_bytes);
        Ok((
            reader,
            Shares {
                known: self.known,
                most,
            },
        ))
    }
}

/// The side file while it is read.
#[derive(Debug)]
pub struct Reader {
    input: BufReader<File>,
}

impl Reader {
    /// Pages of the next stage at its beginning and at its end. None: no look saw it; at the end
    /// also if no look found more.
    pub fn next(&mut self) -> io::Result<(Option<u64>, Option<u64>)> {
        let mut bytes = [0; ENTRY];
        self.input.read_exact(&mut bytes)?;
        let (first, last) = parse(&bytes);
        let pages = |entry: u32| entry.checked_sub(1).map(u64::from);
        Ok((pages(first), pages(last)))
    }
}

impl Shares {
    /// The estimated pages of a block that no look saw.
    pub fn guess(&self, size: u64, page_bytes: u64) -> u64 {
        let all = pages(size, page_bytes);
        let own = self.known[class(size)];
        let (touched, of) = if own.1 > 0 {
            own
        } else {
            let sums = |(a, b), (c, d): &(u64, u64)| (a + c, b + d);
            self.known.iter().fold((0, 0), sums)
        };
        let guess = match of {
            0 => all,
            _ => (all as f64 * touched as f64 / of as f64).round() as u64,
        };
        guess.min(self.most.unwrap_or(guess))
    }
}

fn class(size: u64) -> usize {
    (63 - size.max(1).leading_zeros()) as usize
}

/// Rows of a time and two numbers, in the order of time. The file is first written and then read.
#[derive(Debug)]
pub struct RowsWriter(BufWriter<File>);

/// The same file while it is read.
#[derive(Debug)]
pub struct Rows {
    input: BufReader<File>,
    next: Option<[u64; 3]>,
}

impl RowsWriter {
    /// Begins, with an empty file.
    pub fn new(file: File) -> RowsWriter {
        RowsWriter(BufWriter::with_capacity(1 << 16, file))
    }

    /// Adds a row. Times must not decrease.
    pub fn write(&mut self, row: [u64; 3]) -> io::Result<()> {
        row.iter()
            .try_for_each(|word| self.0.write_all(&word.to_le_bytes()))
    }

    /// Returns the rows, to be read from the start.
    pub fn finish(self) -> io::Result<Rows> {
        let mut file = self.0.into_inner().map_err(io::Error::from)?;
        file.seek(SeekFrom::Start(0))?;
        let mut rows = Rows {
            input: BufReader::with_capacity(1 << 16, file),
            next: None,
        };
        rows.advance()?;
        Ok(rows)
    }
}

impl Rows {
    fn advance(&mut self) -> io::Result<()> {
        let mut bytes = [0; 24];
        self.next = match self.input.read_exact(&mut bytes) {
            Ok(()) => {
                let word = |at: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&bytes[at..at + 8]);
                    u64::from_le_bytes(word)
                };
                Some([word(0), word(8), word(16)])
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// The next row before `time`.
    pub fn before(&mut self, time: u64) -> io::Result<Option<[u64; 3]>> {
        match self.next {
            Some(row) if row[0] < time => {
                self.advance()?;
                Ok(Some(row))
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
        // The stages are far apart, so that the cache replaces its pages.
        for stage in (0..count).step_by(1_000) {
            writer.first(stage, stage % 100).unwrap();
            writer.learn(100 * 4_096, stage % 100);
        }
        for stage in (0..count).rev().step_by(777) {
            writer.last(stage, stage % 101).unwrap();
        }
        let (mut reader, shares) = writer.finish(None).unwrap();
        for stage in 0..count {
            let first = (stage % 1_000 == 0).then_some(stage % 100);
            let last = ((count - 1 - stage) % 777 == 0).then_some(stage % 101);
            assert_eq!(reader.next().unwrap(), (first, last), "{stage}");
        }
        // Every thousandth stage had no page.
        assert_eq!(shares.guess(100 * 4_096, 4_096), 0);
    }

    #[test]
    fn rows_come_back_up_to_a_time() {
        let mut writer = RowsWriter::new(tempfile::tempfile().unwrap());
        for row in [[3, 30, 1], [5, 50, 2], [5, 51, 3]] {
            writer.write(row).unwrap();
        }
        let mut rows = writer.finish().unwrap();
        assert_eq!(rows.before(3).unwrap(), None);
        assert_eq!(rows.before(5).unwrap(), Some([3, 30, 1]));
        assert_eq!(rows.before(5).unwrap(), None);
        assert_eq!(rows.before(6).unwrap(), Some([5, 50, 2]));
        assert_eq!(rows.before(u64::MAX).unwrap(), Some([5, 51, 3]));
        assert_eq!(rows.before(u64::MAX).unwrap(), None);
    }

    #[test]
    fn without_knowledge_all_pages_are_touched_but_no_more_than_the_program_had() {
        let guess = |most| {
            let writer = Writer::new(tempfile::tempfile().unwrap(), 4_096);
            writer.finish(most).unwrap().1.guess(40_961, 4_096)
        };
        assert_eq!(guess(None), 11);
        assert_eq!(guess(Some(100 * 4_096)), 11);
        assert_eq!(guess(Some(3 * 4_096)), 3);
    }
}
