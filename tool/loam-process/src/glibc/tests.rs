use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use loam_format::memory::{Memory, Piece, ReadError};

use super::caches::Records;
use super::layout::{Layout, Version, PREVIOUS_IN_USE};
use super::metered::Metered;
use super::pages::Residency;
use super::walk::{walk, Chunk, State, Stretch, WINDOW};
use super::{GlibcError, GlibcHeap};
use crate::process::Pid;
use crate::remote::ProcessMemory;

const START: u64 = 0x5555_0000_0000;

/// Memory of chunks that may change when it is read.
struct Heap {
    bytes: Vec<u8>,
    /// The number of the read before which it changes.
    change: Option<(u32, Vec<u8>)>,
    reads: AtomicU32,
    /// Bytes that were read.
    read: AtomicU64,
    /// Offsets that can not be read, from a read on.
    holes: Vec<Range<usize>>,
    holes_from: u32,
}

/// A stretch of chunks: length, and whether each is free. The last one is the top.
fn stretch(chunks: &[(u64, bool)]) -> Vec<u8> {
    let end: u64 = chunks.iter().map(|(size, _)| size).sum();
    // Bytes of the program that look like no header.
    let mut bytes = vec![0xa7; end as usize];
    let (mut place, mut before) = (0usize, None);
    for (size, is_free) in chunks {
        let flag = if before.is_some() { 0 } else { PREVIOUS_IN_USE };
        bytes[place..place + 8].copy_from_slice(&before.unwrap_or(0u64).to_le_bytes());
        bytes[place + 8..place + 16].copy_from_slice(&(size | flag).to_le_bytes());
        place += *size as usize;
        before = is_free.then_some(*size);
    }
    bytes
}

impl Heap {
    fn of(chunks: &[(u64, bool)]) -> Heap {
        Heap {
            bytes: stretch(chunks),
            change: None,
            reads: AtomicU32::new(0),
            read: AtomicU64::new(0),
            holes: Vec::new(),
            holes_from: 0,
        }
    }

    /// The same with pages that can not be read: so many in a row, once in each `apart` pages.
    fn with_holes(mut self, apart: usize, pages: usize) -> Heap {
        let places = (apart..self.bytes.len() / 4096).step_by(apart);
        self.holes = places
            .map(|page| page * 4096..(page + pages) * 4096)
            .collect();
        self
    }

    fn walked(&self) -> (Vec<Chunk>, super::walk::End) {
        let mut found = Vec::new();
        let end = START + self.bytes.len() as u64;
        let whole = Stretch {
            start: START,
            end,
            is_main: true,
        };
        let ended = walk(self, whole, || Some(end), |chunk| found.push(chunk));
        (found, ended)
    }
}

impl Memory for Heap {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let bytes = match &self.change {
            Some((when, other)) if self.reads.load(Ordering::SeqCst) >= *when => other,
            _ => &self.bytes,
        };
        let number = self.reads.fetch_add(1, Ordering::SeqCst);
        let unmapped = ReadError::Unmapped {
            address,
            length: buffer.len(),
        };
        let start = address.checked_sub(START).ok_or_else(|| unmapped.clone())? as usize;
        let from = bytes.get(start..).and_then(|rest| rest.get(..buffer.len()));
        let from = from.ok_or(unmapped.clone())?;
        let end = start + buffer.len();
        let mut holes = self.holes.iter();
        let hole = holes.find(|hole| hole.start < end && start < hole.end);
        let hole = hole.filter(|_| number >= self.holes_from);
        // The system copies what lies before.
        let copied = hole.map_or(buffer.len(), |hole| hole.start.saturating_sub(start));
        self.read.fetch_add(copied as u64, Ordering::SeqCst);
        buffer[..copied].copy_from_slice(&from[..copied]);
        hole.map_or(Ok(()), |_| Err(unmapped))
    }
}

/// A memory that counts the calls.
struct Counted<'a, M>(&'a M, AtomicU32);

impl<'a, M> Counted<'a, M> {
    fn new(memory: &'a M) -> Counted<'a, M> {
        Counted(memory, AtomicU32::new(0))
    }
}

impl<M: Memory> Memory for Counted<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.read(address, buffer)
    }

    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.gather(pieces, buffer)
    }
}

fn bytes_of(chunks: &[Chunk], state: State) -> u64 {
    let those = chunks.iter().filter(|chunk| chunk.state == state);
    those.map(|chunk| chunk.size).sum()
}

#[test]
fn every_chunk_is_told_once_with_its_state() {
    let (found, ended) = Heap::of(&[(32, false), (64, true), (48, false), (4096, false)]).walked();
    let states: Vec<_> = found
        .iter()
        .map(|chunk| (chunk.address - START, chunk.size, chunk.state))
        .collect();
    use State::*;
    assert_eq!(
        states,
        [
            (0, 32, InUse),
            (32, 64, Free),
            (96, 48, InUse),
            (144, 4096, Top)
        ]
    );
    assert_eq!((ended.unread, ended.returns), (0, 0));
}

/// Chunks for more than one window, so that each walk reads several.
fn many() -> Vec<(u64, bool)> {
    of_count(20_000)
}

fn of_count(count: u64) -> Vec<(u64, bool)> {
    let mut chunks: Vec<(u64, bool)> = (0..count)
        .map(|number| (32 + 16 * (number % 5), number % 3 == 1))
        .collect();
    chunks.push((65536, false));
    chunks
}

#[test]
fn a_heap_that_changes_between_two_windows_is_followed_all_the_same() {
    changes_between(&many(), 1..12);
}

/// Long enough that windows are read ahead. The system decides how the reads of both threads
/// interleave, but the result is the same.
#[test]
fn a_long_heap_is_read_ahead_and_told_the_same() {
    let long = of_count(120_000);
    let heap = Heap::of(&long);
    assert!(heap.bytes.len() > 6 << 20);
    let (found, ended) = heap.walked();
    assert_eq!((ended.unread, ended.returns), (0, 0));
    let sizes = found.iter().map(|chunk| chunk.size);
    assert!(sizes.eq(long.iter().map(|(size, _)| *size)));
    // A window, and the word that leads to it.
    let windows = heap.bytes.len().div_ceil(WINDOW as usize);
    assert!(heap.reads.load(Ordering::SeqCst) as usize >= 2 * windows - 2);
    changes_between(&long, (1..60).step_by(7));
}

#[test]
fn of_long_chunks_only_pages_with_headers_are_read() {
    let mut chunks = [(100_000, true), (48, false)].repeat(300);
    // Short chunks behind them are read in whole windows again.
    chunks.extend(many());
    let heap = Heap::of(&chunks);
    let (found, ended) = heap.walked();
    assert_eq!((ended.unread, ended.returns), (0, 0));
    let told = found.iter().map(|chunk| chunk.size);
    assert!(told.eq(chunks.iter().map(|(size, _)| *size)));
    let short = many().iter().map(|(size, _)| size).sum::<u64>();
    let read = heap.read.load(Ordering::SeqCst);
    assert!(
        read < 2 * WINDOW + 300 * 2 * 4096 + 2 * short,
        "{read} bytes"
    );
    assert!(heap.reads.load(Ordering::SeqCst) < 2 * 300 + 100);
}

fn changes_between(before: &[(u64, bool)], times: impl Iterator<Item = u32>) {
    // All neighbours are joined: the start of an old chunk is now within a chunk.
    let mut after = Vec::new();
    for pair in before[..before.len() - 1].chunks(2) {
        after.push((pair[0].0 + pair[1].0, false));
    }
    after.push((65536, false));
    for when in times {
        let heap = Heap {
            change: Some((when, stretch(&after))),
            ..Heap::of(before)
        };
        let (found, ended) = heap.walked();
        let total: u64 = found.iter().map(|chunk| chunk.size).sum();
        let missing = heap.bytes.len() as u64 - total;
        assert!(
            missing <= ended.unread && ended.unread < 4096,
            "{when}: {missing} {ended:?}"
        );
    }
}

#[test]
fn a_broken_header_costs_its_surroundings_and_is_said() {
    let mut heap = Heap::of(&many());
    let sound = heap.walked().0;
    let broken = sound[10_000];
    let place = (broken.address - START) as usize + 8;
    heap.bytes[place..place + 8].fill(0xff);
    let (found, ended) = heap.walked();
    assert!((32..4096).contains(&ended.unread), "{ended:?}");
    let total: u64 = found.iter().map(|chunk| chunk.size).sum();
    assert_eq!(total + ended.unread, heap.bytes.len() as u64);
    let live = bytes_of(&sound, State::InUse);
    assert!(live - bytes_of(&found, State::InUse) < 4096);
}

/// A static program takes memory for its threads' variables before malloc does.
#[test]
fn a_few_chunks_behind_something_else_are_found_by_their_end() {
    let chunks = [(656, false), (64, true), (4096, false), (65536, false)];
    let mut heap = Heap::of(&chunks);
    let other = vec![0xa7; 3000 - 3000 % 16];
    heap.bytes.splice(0..0, other.iter().copied());
    let (found, ended) = heap.walked();
    let sizes: Vec<u64> = found.iter().map(|chunk| chunk.size).collect();
    assert_eq!(sizes, chunks.map(|(size, _)| size));
    assert_eq!(ended.unread, other.len() as u64);
    // The rest of an earlier top leads to the end as well, and not over a chunk.
    let to_the_end = (heap.bytes.len() - 16) as u64 | PREVIOUS_IN_USE;
    heap.bytes.splice(24..32, to_the_end.to_le_bytes());
    let again = heap.walked().0;
    assert_eq!(again.len(), chunks.len(), "{again:?}");
}

/// The main arena goes on after memory that the program itself took from the break. glibc marks the
/// place with two chunks of 16 bytes.
#[test]
fn memory_that_the_program_took_from_the_break_is_passed_over() {
    let fences = [(16, false), (16, false)];
    let before = [(64, false), (96, true), (32, false)];
    let chunks = many();
    let mut heap = Heap::of(&[&before[..], &fences].concat());
    let own = vec![0xa7; 1 << 20];
    heap.bytes.extend(own.iter().chain(&stretch(&chunks)));
    let (found, ended) = heap.walked();
    assert_eq!(found.len(), before.len() + chunks.len());
    assert_eq!((ended.unread, ended.returns), (32 + (1 << 20), 0));
    // Too much for the search is said.
    heap.bytes.splice(224..224, vec![0xa7; 16 << 20]);
    let (found, ended) = heap.walked();
    assert_eq!(found.len(), before.len());
    assert_eq!(ended.unread, heap.bytes.len() as u64 - 192);
    // Nothing comes after the fences of an arena that goes on elsewhere.
    let heap = Heap::of(&[&before[..], &fences].concat());
    let (found, ended) = heap.walked();
    assert_eq!((found.len(), ended.unread), (before.len(), 0));
}

/// Compiles a program, starts it, reads its heap when it says something, and ends it. None: its C
/// library is not known.
fn read_while_it_runs(
    text: &str,
    read: impl Fn(Pid) -> Result<GlibcHeap, GlibcError>,
) -> Option<GlibcHeap> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("own.c");
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("own");
    let done = Command::new("cc")
        .args(["-O0", "-w", "-o"])
        .args([&program, &source])
        .status();
    assert!(done.unwrap().success());
    let mut started = Command::new(&program);
    for variable in ["LD_PRELOAD", "GLIBC_TUNABLES"] {
        started.env_remove(variable);
    }
    started.stdout(Stdio::piped());
    let mut child = started.spawn().unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let found = read(child.id() as Pid);
    child.kill().unwrap();
    child.wait().unwrap();
    match found {
        Err(error) if !matches!(error, GlibcError::NoArena) => {
            eprintln!("skipped: {error}");
            None
        }
        found => Some(found.unwrap()),
    }
}

/// A program that takes away the right to read pages of its heap, and gives ranges of it back
/// behind malloc's back.
#[test]
fn a_hostile_process_costs_a_bounded_number_of_calls() {
    let text = "#define _GNU_SOURCE\n\
        #include <stdint.h>\n\
        #include <stdlib.h>\n\
        #include <sys/mman.h>\n\
        #include <unistd.h>\n\
        int main(void) { char* first = malloc(1000); first[0] = 1;\n\
        for (int i = 0; i < 65536; i++) *(char*)malloc(1000) = 1;\n\
        char* at = (char*)(((uintptr_t)first + 8192) & -4096);\n\
        for (int page = 0; page < 16000; page++, at += 4096) {\n\
        if (page % 4 == 0 && page < 8000) mprotect(at, 4096, PROT_NONE);\n\
        if (page % 512 == 0 && page >= 8000) munmap(at, 64 * 4096); }\n\
        write(1, \"ready\\n\", 6); pause(); }\n";
    let calls = AtomicU32::new(0);
    let found = read_while_it_runs(text, |pid| {
        let mappings = crate::mappings::read_names(pid)?;
        let version = super::version(pid, &mappings).ok_or(GlibcError::Absent)?;
        let layout = Layout::of(version).ok_or(GlibcError::Version(version))?;
        let process = ProcessMemory::of(pid);
        let memory = Counted::new(&process);
        let mut residency = Residency::open(pid);
        let found = super::read_from(&memory, &mappings, &layout, &mut residency, &mut ());
        calls.store(memory.1.load(Ordering::SeqCst), Ordering::SeqCst);
        found
    });
    let (Some(found), calls) = (found, calls.into_inner()) else {
        return;
    };
    println!("{calls} calls: {:?}", found.problems);
    assert!(calls < 40_000, "{calls}: {:?}", found.problems);
    let said = found
        .problems
        .iter()
        .any(|one| one.contains("could not be followed"));
    assert!(said, "{:?}", found.problems);
}

#[test]
fn the_heap_of_a_program_that_moves_the_break_is_read_to_its_end() {
    let text = "#define _GNU_SOURCE\n\
        #include <stdio.h>\n\
        #include <stdlib.h>\n\
        #include <unistd.h>\n\
        int main(void) { for (int i = 0; i < 1000; i++) malloc(1000);\n\
        if (sbrk(1 << 20) == (void*)-1) return 1;\n\
        for (int i = 0; i < 10000; i++) malloc(1000);\n \
        puts(\"ready\"); fflush(stdout); pause(); }\n";
    let Some(found) = read_while_it_runs(text, |pid| {
        super::read(crate::process::Stat::read(pid).unwrap().key(pid))
    }) else {
        return;
    };
    // 11,000 blocks of 1,008 bytes, and what the C library took.
    let live = found.live();
    assert!((11_088_000..11_200_000).contains(&live), "{found:?}");
    assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
}

/// A static program has its thread-local variables there.
#[test]
fn the_main_arena_begins_behind_what_the_program_took_from_the_break_first() {
    let text = "#define _GNU_SOURCE\n\
        #include <stdio.h>\n\
        #include <stdlib.h>\n\
        #include <string.h>\n\
        #include <unistd.h>\n\
        int main(void) { char* own = sbrk(3456); if (own == (void*)-1) return 1;\n\
        memset(own, 0x31, 3456);\n\
        for (int i = 0; i < 1000; i++) malloc(1000);\n\
        write(1, \"ready\\n\", 6); pause(); }\n";
    let Some(found) = read_while_it_runs(text, |pid| {
        super::read(crate::process::Stat::read(pid).unwrap().key(pid))
    }) else {
        return;
    };
    assert_eq!(found.problems, [] as [String; 0]);
    let main = &found.arenas[0];
    assert_eq!(
        (main.unread, main.size % 4096),
        (0, 4096 - 3456),
        "{main:?}"
    );
    assert!((1000..1010).contains(&main.in_use.count), "{main:?}");
}

/// Bytes that are no chunks, and then chunks. In the first third of these bytes is a lead at every
/// multiple of `apart`, into the second third.
fn after_leads(length: u64, apart: usize, chunks: &[(u64, bool)]) -> Heap {
    let mut heap = Heap::of(chunks);
    let mut before = vec![0xa7; length as usize];
    let third = length / 3;
    let lead = (third.next_multiple_of(16) + 16) | PREVIOUS_IN_USE;
    for place in (0..third as usize).step_by(apart) {
        before[place + 8..place + 16].copy_from_slice(&lead.to_le_bytes());
    }
    heap.bytes.splice(0..0, before);
    heap
}

/// How many times the heap's bytes a walk read, and how many reads it made.
fn effort(heap: &Heap) -> (f64, u32) {
    let read = heap.read.load(Ordering::SeqCst) as f64;
    let reads = heap.reads.load(Ordering::SeqCst);
    (read / heap.bytes.len() as f64, reads)
}

#[test]
fn a_false_lead_costs_its_header_and_no_window() {
    // 8,192 leads out of the window.
    let chunks = many();
    let heap = after_leads(6 << 20, 256, &chunks);
    let (found, ended) = heap.walked();
    assert_eq!((found.len(), ended.unread), (chunks.len(), 6 << 20));
    let (times, reads) = effort(&heap);
    assert!(reads > 4_000, "the leads were not followed: {reads}");
    // The twelve returns read up to four windows each.
    assert!(times < 9.0, "{times} times its bytes, {reads} reads");
}

#[test]
fn a_heap_of_nothing_but_false_leads_is_given_up_early() {
    // More leads than are followed, or chains that break after a few dozen chunks.
    let leads = after_leads(12 << 20, 32, &[(4096, false)]);
    let mut chains = Heap::of(&of_count(120_000));
    for place in (0..chains.bytes.len() - 16).step_by(1600) {
        chains.bytes[place & !15..][..16].fill(0xff);
    }
    for heap in [leads, chains] {
        let (_, ended) = heap.walked();
        let (times, reads) = effort(&heap);
        // Up to four windows for each of 64 returns, and for one more for each window of the
        // stretch.
        let most = 6.0 + 4.0 * (64 << 20) as f64 / heap.bytes.len() as f64;
        assert!(times < most, "{times} of {most}, {reads} reads, {ended:?}");
        assert!(reads < 50_000, "{reads} reads, {ended:?}");
    }
}

/// Guards within the heap, and ranges that were given back. Each page that can not be read costs a
/// few reads, and what lies between them is copied a few times at most.
#[test]
fn memory_that_can_not_be_read_costs_a_few_reads_for_each_hole() {
    // 16 MiB.
    let heap = || Heap::of(&of_count(260_000));
    let leads = || after_leads(12 << 20, 32, &many());
    const ALL: u64 = u64::MAX;
    // Once in so many pages, so many pages; the most reads, and the most bytes that are not
    // followed.
    let cases: [(&str, Heap, u32, u64); 6] = [
        (
            "a guard once in a window",
            heap().with_holes(256, 1),
            4_000,
            1 << 18,
        ),
        ("every second page", heap().with_holes(2, 1), 20_000, ALL),
        (
            "all but one page of 16",
            heap().with_holes(16, 15),
            20_000,
            ALL,
        ),
        (
            "2 MiB are gone",
            heap().with_holes(2048, 512),
            4_000,
            3 << 20,
        ),
        ("leads to guards", leads().with_holes(8, 1), 40_000, ALL),
        (
            "leads into a hole",
            leads().with_holes(1024, 1024),
            40_000,
            ALL,
        ),
    ];
    for (name, heap, most, most_unread) in cases {
        let (found, ended) = heap.walked();
        let (times, reads) = effort(&heap);
        let total: u64 = found.iter().map(|chunk| chunk.size).sum();
        let rest = total + ended.unread;
        println!(
            "{name}: {reads} reads, {times:.1} times its bytes, {} unread of {}",
            ended.unread,
            heap.bytes.len()
        );
        assert!(reads < most, "{name}: {reads} reads");
        let unread = ended.unread;
        assert!(unread <= most_unread, "{name}: {unread} unread");
        assert!(times < 20.0, "{name}: {times} times its bytes");
        assert!(
            ended.unread > 0 && rest >= heap.bytes.len() as u64,
            "{name}"
        );
    }
}

#[test]
fn a_range_that_goes_away_during_the_walk_costs_that_range() {
    for when in (1..30).step_by(3) {
        let mut heap = Heap::of(&of_count(260_000)).with_holes(2048, 512);
        heap.holes_from = when;
        let (_, ended) = heap.walked();
        let (_, reads) = effort(&heap);
        assert!(ended.unread < 3 << 20, "{when}: {ended:?}");
        assert!(reads < 4_000, "{when}: {reads}");
    }
}

#[test]
fn a_look_ends_when_its_calls_are_used_up() {
    let heap = Heap::of(&of_count(120_000)).with_holes(2, 1);
    let counted = Counted::new(&heap);
    let memory = Metered::new(&counted, 100);
    let end = START + heap.bytes.len() as u64;
    let whole = Stretch {
        start: START,
        end,
        is_main: true,
    };
    let ended = walk(&memory, whole, || Some(end), |_| ());
    assert!(memory.is_used_up() && ended.unread > 0, "{ended:?}");
    // Each of several pieces that are read together counts.
    let calls = counted.1.load(Ordering::SeqCst);
    assert!((1..=100).contains(&calls), "{calls} calls");
}

/// A program may have millions of blocks that are as long as the record of a thread's cache.
#[test]
fn blocks_as_long_as_a_caches_record_are_read_many_at_a_time() {
    let (major, minor) = (2, 36);
    let layout = Layout::of(Version { major, minor }).unwrap();
    let count = 10_000;
    let size = layout.cache_chunk();
    let heap = Heap::of(&vec![(size, false); count]);
    let memory = Counted::new(&heap);
    let mut records = Records::new(&layout, |_| true);
    for chunk in &heap.walked().0 {
        records.add(&memory, chunk);
    }
    assert_eq!(records.each_cache(&memory, |_| ()), 0);
    // Up to 64 to learn the mark, and ten calls for all.
    let calls = memory.1.load(Ordering::SeqCst);
    assert!(calls <= 64 + 10, "{calls}");
}

#[test]
fn any_bytes_end_the_walk() {
    for seed in 0..40u64 {
        let mut state = seed | 1;
        let mut heap = Heap::of(&many());
        for _ in 0..1 << 12 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed);
            let place = (state >> 20) as usize % heap.bytes.len();
            heap.bytes[place] ^= (state >> 8) as u8;
        }
        let (found, ended) = heap.walked();
        let total: u64 = found.iter().map(|chunk| chunk.size).sum();
        assert!(total + ended.unread <= 2 * heap.bytes.len() as u64);
    }
}

#[test]
fn mangled_pointers_are_undone_since_2_32() {
    let layout = |minor| Layout::of(Version { major: 2, minor }).unwrap();
    assert_eq!(layout(31).follow(0x5000, 0x1234_5670), 0x1234_5670);
    assert_eq!(layout(32).follow(0x5000, 0x1234_5670 ^ 5), 0x1234_5670);
}
