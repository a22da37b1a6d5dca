//! The thread that looks at recorded processes from outside: their memory ten times a second, what lies in it as often
//! as that costs at most 1 % of the time.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use loam_format::trace::{Sample, Touch};
use loam_process::mappings::{self, Mapping};
use loam_process::pagemap::Pagemap;
use loam_process::rings::now;

use super::blocks::GRANULE;
use super::board::{Board, Live, Note};
use super::describe::Modules;

/// How often processes are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// What is dear may take one part in so many of the time.
const SHARE: u32 = 100;
/// When a process is described anew.
const DESCRIBED_AT: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(2),
    Duration::from_secs(20),
];

/// One thing that may not be done too often.
#[derive(Debug)]
struct Dear {
    next: Instant,
}

impl Dear {
    fn do_if_due<T>(&mut self, act: impl FnOnce() -> T) -> Option<T> {
        let begin = Instant::now();
        if begin < self.next {
            return None;
        }
        let result = act();
        self.next = Instant::now() + begin.elapsed() * SHARE;
        Some(result)
    }
}

/// What is remembered of a process.
#[derive(Debug)]
struct Watched {
    mappings: Dear,
    pages: Dear,
    described: usize,
    /// The large block that was looked at last.
    last_block: u64,
}

/// Samples until nobody takes samples any more or all is drained.
pub fn sample(began: u64, notes: &SyncSender<Note>, board: &Board) {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let mut watched: HashMap<u32, Watched> = HashMap::new();
    let mut modules = Modules::default();
    let mut next = Instant::now();
    while !board.is_drained.load(std::sync::atomic::Ordering::SeqCst) {
        let live = board.live().clone();
        watched.retain(|stream, _| live.iter().any(|one| one.stream == *stream));
        for one in &live {
            let begin = Instant::now();
            let known = watched.entry(one.stream).or_insert_with(|| Watched {
                mappings: Dear { next: begin },
                pages: Dear { next: begin },
                described: 0,
                last_block: 0,
            });
            if !look(one, known, began, ticks, &mut modules, notes, board) {
                return;
            }
        }
        next = (next + EVERY).max(Instant::now());
        std::thread::sleep(
            next.saturating_duration_since(Instant::now())
                .max(EVERY / 2),
        );
    }
}

/// False: nobody takes samples.
fn look(
    one: &Live,
    known: &mut Watched,
    began: u64,
    ticks: u64,
    modules: &mut Modules,
    notes: &SyncSender<Note>,
    board: &Board,
) -> bool {
    let Some(mut sample) = cheap(one.pid, ticks) else {
        // It has just ended.
        return true;
    };
    let has_blocks = board.blocks().contains_key(&one.stream);
    // Before its first block a look would say nothing, and put the next one off.
    let mapped = match has_blocks {
        true => known
            .mappings
            .do_if_due(|| mappings::read_all(one.pid).ok())
            .flatten(),
        false => None,
    };
    if let Some(mapped) = mapped {
        classify(&mapped, one.stream, board, &mut sample);
    }
    sample.time = Some(now().saturating_sub(began));
    let mut is_taken = notes.send(Note::Sample(one.stream, sample)).is_ok();
    let from = known.last_block;
    if let Some((touches, last)) = known
        .pages
        .do_if_due(|| touched(one, board, from, began))
        .flatten()
    {
        known.last_block = last;
        is_taken &= touches.is_empty() || notes.send(Note::Touches(one.stream, touches)).is_ok();
    }
    let due = DESCRIBED_AT.get(known.described);
    if due.is_some_and(|age| one.since.elapsed() >= *age) {
        known.described += 1;
        let mut process = one.process.clone();
        (_, process.modules) = board.know_modules(one.stream, &modules.of(one.pid));
        is_taken &= process.modules.is_empty()
            || notes
                .send(Note::Update(one.stream, Box::new(process)))
                .is_ok();
    }
    is_taken
}

/// What the system has counted already.
fn cheap(pid: i32, ticks: u64) -> Option<Sample> {
    let process = procfs::process::Process::new(pid).ok()?;
    let status = process.status().ok()?;
    let stat = process.stat().ok()?;
    let kilobytes = |value: Option<u64>| value.map(|value| value * 1024);
    let nanoseconds = |value: u64| Some(value * (1_000_000_000 / ticks));
    // A zombie has no memory, which is not the same as none.
    status.rssanon?;
    Some(Sample {
        resident_anonymous: kilobytes(status.rssanon),
        resident_file: kilobytes(status.rssfile),
        resident_shared: kilobytes(status.rssshmem),
        swapped: kilobytes(status.vmswap),
        minor_faults: Some(stat.minflt),
        major_faults: Some(stat.majflt),
        user_time: nanoseconds(stat.utime),
        system_time: nanoseconds(stat.stime),
        threads: Some(status.threads),
        ..Sample::default()
    })
}

/// Whether a mapping holds blocks, by the pieces of address space in which blocks began.
fn classify(mapped: &[Mapping], stream: u32, board: &Board, sample: &mut Sample) {
    let all = board.blocks();
    let granules = all.get(&stream).map(|blocks| &blocks.granules);
    let holds_blocks = |mapping: &&Mapping| {
        // The last piece may belong to the next mapping in part: then it counts for both.
        let pieces = mapping.start >> GRANULE..=mapping.end.saturating_sub(1) >> GRANULE;
        granules.is_some_and(|granules| granules.range(pieces).next().is_some())
    };
    let is_of_a_file = |mapping: &&Mapping| mapping.name.starts_with('/');
    let private = mapped.iter().filter(|mapping| !mapping.shared);
    let heap = private
        .filter(|mapping| !is_of_a_file(mapping))
        .filter(holds_blocks);
    let (mut resident, mut huge, mut lazily_freed) = (0, 0, 0);
    for mapping in heap {
        resident += mapping.anonymous;
        huge += mapping.huge;
        lazily_freed += mapping.lazily_freed;
    }
    sample.resident_heap = Some(resident);
    sample.huge = Some(huge);
    sample.lazily_freed = Some(lazily_freed);
    sample.mappings = Some(mapped.len() as u64);
}

/// Resident pages of large live blocks behind `from`, as many as a moment allows; and the last block's address.
fn touched(one: &Live, board: &Board, from: u64, began: u64) -> Option<(Vec<Touch>, u64)> {
    const MOMENT: Duration = Duration::from_millis(5);
    let blocks: BTreeMap<u64, u64> = board.blocks().get(&one.stream)?.large.clone();
    let map = Pagemap::open(one.pid).ok()?;
    let page = rustix::param::page_size() as u64;
    let begin = Instant::now();
    let mut touches = Vec::new();
    for (address, size) in blocks.range(from.saturating_add(1)..) {
        let pages = resident_pages(&map, *address, *size, page)?;
        touches.push(Touch {
            time: Some(now().saturating_sub(began)),
            address: Some(*address),
            pages: Some(pages),
        });
        if begin.elapsed() > MOMENT {
            return Some((touches, *address));
        }
    }
    // All were seen; the next look begins again.
    Some((touches, 0))
}

fn resident_pages(map: &Pagemap, address: u64, size: u64, page: u64) -> Option<u64> {
    let (first, end) = (address / page, (address + size).div_ceil(page));
    let mut present = 0;
    map.look(first, end - first, |is_resident| {
        present += u64::from(is_resident);
    })
    .ok()?;
    Some(present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_sampled_and_its_pages_are_counted() {
        let sample = cheap(std::process::id() as i32, 100).unwrap();
        assert!(sample.resident_anonymous.unwrap() > 0 && sample.threads.unwrap() > 0);
        let page = rustix::param::page_size() as u64;
        let block = vec![1_u8; 64 * page as usize];
        let map = Pagemap::open(std::process::id() as i32).unwrap();
        let pages = resident_pages(&map, block.as_ptr() as u64, block.len() as u64, page);
        assert!((64..=65).contains(&pages.unwrap()), "{pages:?}");
    }
}
