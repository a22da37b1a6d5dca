//! The thread that looks at recorded processes from outside: their memory ten times a second, and
//! what of it is the heap's as often and whenever it changes, as far as that costs at most 1 % of
//! the time.

use std::collections::HashMap;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use loam_format::trace::{Sample, Touch};
use loam_process::gently::{self, Looked};
use loam_process::mappings::Mapping;
use loam_process::pagemap::Pagemap;
use loam_process::process::{face, private_bytes};
use loam_process::rings::{now, Blocks, GRANULE};

use crate::board::{lock, Board, Live, Note};
use crate::describe::Modules;

/// How often processes are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// How often it is seen whether their memory changed meanwhile.
const GLANCE: Duration = Duration::from_millis(5);
/// Glances may take this part of the time (1/N).
const GLANCES: u32 = 50;
/// A look is due when memory changed by this part of it (1/N) and by at least LEAST_CHANGE bytes.
const CHANGE: u64 = 16;
const LEAST_CHANGE: u64 = 1 << 20;
/// Looks may take this part of a process's time (1/N).
const SHARE: u32 = 100;
/// This much time is granted at the start, when memory changes most. So a program that runs for a
/// second has enough looks.
const BEGINNING: Duration = Duration::from_millis(20);
/// When a process is described anew.
const DESCRIBED_AT: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(2),
    Duration::from_secs(20),
];

/// What is remembered of a process.
#[derive(Debug)]
struct Watched {
    /// When the next sample is due, whatever happens.
    next: Instant,
    /// What all looks took.
    spent: Duration,
    /// Private resident bytes at the last look.
    seen: u64,
    described: usize,
    /// The large block that was looked at last.
    last_block: u64,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            next: Instant::now(),
            spent: Duration::ZERO,
            seen: 0,
            described: 0,
            last_block: 0,
        }
    }

    fn may_look(&self, age: Duration) -> bool {
        self.spent <= BEGINNING + age / SHARE
    }
}

/// Samples until nobody takes samples any more or all is drained.
pub fn sample(began: u64, notes: &SyncSender<Note>, board: &Board) {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let mut watched: HashMap<u32, Watched> = HashMap::new();
    let mut modules = Modules::default();
    while !board.is_drained.load(std::sync::atomic::Ordering::SeqCst) {
        let begin = Instant::now();
        let live = board.live().clone();
        watched.retain(|stream, _| live.iter().any(|one| one.stream == *stream));
        let mut looks = Duration::ZERO;
        for one in &live {
            let known = watched.entry(one.stream).or_insert_with(Watched::new);
            let before = known.spent;
            if !glance(one, known, began, ticks, &mut modules, notes, board) {
                return;
            }
            looks += known.spent.saturating_sub(before);
        }
        let glances = begin.elapsed().saturating_sub(looks);
        std::thread::sleep(GLANCE.max(glances * GLANCES));
    }
}

/// Samples a process if it is time, or if its memory changed and looks are still to be had. False:
/// nobody takes samples.
fn glance(
    one: &Live,
    known: &mut Watched,
    began: u64,
    ticks: u64,
    modules: &mut Modules,
    notes: &SyncSender<Note>,
    board: &Board,
) -> bool {
    let begin = Instant::now();
    let Some(private) = private_bytes(one.pid) else {
        // It has just ended.
        return true;
    };
    let change = private.abs_diff(known.seen);
    let has_changed = change >= LEAST_CHANGE.max(known.seen / CHANGE);
    // Before its first block a look would say nothing.
    let has_blocks = !lock(&one.blocks).granules.is_empty();
    let looks = has_blocks && known.may_look(one.since.elapsed());
    if begin < known.next && !(has_changed && looks) {
        return true;
    }
    known.next = begin + EVERY;
    let Some(mut sample) = cheap(one.pid, ticks) else {
        return true;
    };
    sample.time = Some(now().saturating_sub(began));
    let mut is_taken = true;
    if looks {
        known.seen = private;
        let begin = Instant::now();
        let touches = look(one, known, began, &mut sample);
        known.spent += begin.elapsed();
        is_taken &= touches.is_empty() || notes.send(Note::Touches(one.stream, touches)).is_ok();
    }
    is_taken &= notes.send(Note::Sample(one.stream, sample)).is_ok();
    let due = DESCRIBED_AT.get(known.described);
    if due.is_some_and(|age| one.since.elapsed() >= *age) {
        known.described += 1;
        let mut process = one.process.clone();
        (_, process.modules) = board.know_modules((one.stream, one.pid), &modules.of(one.pid));
        is_taken &= process.modules.is_empty()
            || notes
                .send(Note::Update(one.stream, Box::new(process)))
                .is_ok();
    }
    is_taken
}

/// What the system has counted already.
pub fn cheap(pid: i32, ticks: u64) -> Option<Sample> {
    let process = procfs::process::Process::new(pid).ok()?;
    let mut status = process.status().ok()?;
    let stat = process.stat().ok()?;
    if status.rssanon.is_none() {
        // Where the first thread has ended, another one shows the memory.
        status = procfs::process::Process::new(face(pid))
            .ok()?
            .status()
            .ok()?;
    }
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

/// Adds to the sample how much of the process's memory is the heap's; the sample's time becomes the
/// middle of the look. Returns how many pages of each large block were resident then.
fn look(one: &Live, known: &mut Watched, began: u64, sample: &mut Sample) -> Vec<Touch> {
    let begin = now();
    let Ok(looked) = gently::read(one.pid) else {
        return Vec::new();
    };
    let time = (begin + (now() - begin) / 2).saturating_sub(began);
    let Ok(map) = Pagemap::open(one.pid) else {
        return Vec::new();
    };
    classify(&looked, &lock(&one.blocks), &map, sample);
    sample.time = Some(time);
    let (touches, last) = touched(
        &lock(&one.blocks).large.clone(),
        &map,
        known.last_block,
        time,
    );
    known.last_block = last;
    touches
}

/// The heap: private anonymous memory of mappings in which a block ever began, but for what the
/// program mapped itself. The kernel merges the two where they lie side by side. Lazily freed bytes
/// are left out if they are not known.
fn classify(looked: &Looked, blocks: &Blocks, map: &Pagemap, sample: &mut Sample) {
    let holds_blocks = |mapping: &&Mapping| {
        // The last piece may belong to the next mapping in part: then it counts for both.
        let pieces = mapping.start >> GRANULE..=mapping.end.saturating_sub(1) >> GRANULE;
        blocks.granules.range(pieces).next().is_some()
    };
    let is_of_a_file = |mapping: &&Mapping| mapping.name.starts_with('/');
    let private = looked.mappings.iter().filter(|mapping| !mapping.shared);
    let heap = private
        .filter(|mapping| !is_of_a_file(mapping))
        .filter(holds_blocks);
    let (mut resident, mut huge, mut lazily_freed) = (0, 0, 0);
    for mapping in heap {
        let own = blocks.own.overlapping(mapping.start..mapping.end);
        let own = own.map(|own| (own.start.max(mapping.start), own.end.min(mapping.end)));
        let own: u64 = own
            .map(|(start, end)| resident_bytes(map, start, end))
            .sum();
        resident += mapping.anonymous.saturating_sub(own);
        huge += mapping.huge;
        lazily_freed += mapping.lazily_freed;
    }
    sample.resident_heap = Some(resident);
    sample.huge = Some(huge);
    sample.lazily_freed = looked.is_whole.then_some(lazily_freed);
    sample.mappings = Some(looked.mappings.len() as u64);
}

/// Resident pages of large live blocks behind `from`, as many as a moment allows; and the last
/// block's address.
fn touched(large: &HashMap<u64, u64>, map: &Pagemap, from: u64, time: u64) -> (Vec<Touch>, u64) {
    const MOMENT: Duration = Duration::from_millis(5);
    let page = rustix::param::page_size() as u64;
    let begin = Instant::now();
    let mut touches = Vec::new();
    let mut blocks: Vec<(u64, u64)> = large.iter().map(|(at, size)| (*at, *size)).collect();
    blocks.sort_unstable();
    let next = blocks.partition_point(|(address, _)| *address <= from);
    for (address, size) in &blocks[next..] {
        let (first, end) = (
            address / page * page,
            (address + size).next_multiple_of(page),
        );
        touches.push(Touch {
            time: Some(time),
            address: Some(*address),
            pages: Some(resident_bytes(map, first, end) / page),
        });
        if begin.elapsed() > MOMENT {
            return (touches, *address);
        }
    }
    // All were seen; the next look begins again.
    (touches, 0)
}

/// Resident bytes of whole pages; none of a process that has just ended.
fn resident_bytes(map: &Pagemap, first: u64, end: u64) -> u64 {
    let page = rustix::param::page_size() as u64;
    let mut present = 0;
    // What was told before an error counts.
    let _ = map.look(first / page, (end - first) / page, |is_resident| {
        present += u64::from(is_resident);
    });
    present * page
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
        let large = HashMap::from([(block.as_ptr() as u64, block.len() as u64)]);
        let (touches, last) = touched(&large, &map, 0, 5);
        let pages = touches[0].pages.unwrap();
        assert!((64..=65).contains(&pages) && last == 0, "{pages:?}");
    }

    #[test]
    fn a_large_heap_is_looked_at_without_smaps() {
        let page = rustix::param::page_size() as u64;
        let bytes = 80 << 20;
        let block = vec![1_u8; bytes as usize];
        let address = block.as_ptr() as u64;
        let one = Live {
            stream: 0,
            pid: std::process::id() as i32,
            process: loam_format::trace::Process::default(),
            since: Instant::now(),
            blocks: crate::board::Shared::default(),
        };
        lock(&one.blocks).granules.insert(address >> GRANULE);
        lock(&one.blocks).large.insert(address, bytes);
        let mut sample = Sample::default();
        let touches = look(&one, &mut Watched::new(), 0, &mut sample);
        // Only smaps has the lazily freed bytes.
        let has_smaps = gently::read(one.pid).unwrap().is_whole;
        assert_eq!(sample.lazily_freed.is_some(), has_smaps);
        assert!(touches[0].pages.unwrap() >= bytes / page);
        assert!(sample.resident_heap.unwrap() >= bytes && sample.mappings.unwrap() > 4);
        drop(block);
    }

    #[test]
    fn looks_are_dear_but_for_the_beginning() {
        let mut watched = Watched::new();
        assert!(watched.may_look(Duration::ZERO));
        watched.spent = Duration::from_millis(25);
        assert!(!watched.may_look(Duration::from_millis(400)));
        assert!(watched.may_look(Duration::from_millis(600)));
    }
}
