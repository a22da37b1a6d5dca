//! The output of `loam stats` for people.

use comfy_table::{presets, Cell, CellAlignment, Table};

use loam_counters::snapshot::{ClassFigures, HeapFigures, Values};
use loam_counters::view::View;
use loam_counters::watch::rates;
use loam_counters::{verdict, Snapshot};
use loam_format::counters::ids;
use loam_format::counters::list::LIST;
use loam_format::units::{bytes, decimal, seconds};
use loam_format::{plain, words};
use loam_process::process::Identity;
use loam_process::residence::Kind;
use loam_report::columns;
use loam_report::style::{bold, dim};

/// How many size classes are listed, unless the user asks for one heap.
const CLASSES_SHOWN: usize = 6;
/// How many locks are listed.
const LOCKS_SHOWN: usize = 4;

/// The page about one process. With `heap`, only that heap of it.
pub fn render(view: &View, heap: Option<&HeapFigures>) -> String {
    let mut text = headline(view);
    if let (Some(heap), Some(snapshot)) = (heap, view.snapshot()) {
        return text + "\n" + &one_heap(heap, snapshot);
    }
    text += "\n";
    text += &account(view);
    text += &beside(view);
    match (&view.counters, view.snapshot()) {
        (_, Some(snapshot)) if snapshot.is_peer => text += &of_peer(snapshot),
        (_, Some(snapshot)) => text += &counters(snapshot),
        (Err(error), _) => {
            text += &format!("\nIts heap is Loam, but the counters can not be read: {error}.\n");
        }
        _ => text += &what_loam_would_add(view),
    }
    text
}

fn headline(view: &View) -> String {
    let bold = bold();
    let identity = &view.identity;
    let on = match (view.snapshot(), &view.allocator) {
        (Some(snapshot), _) => format!("on {}", snapshot.allocator()),
        (None, Some(allocator)) => format!("on {}", allocator.name),
        (None, None) => "on an unknown allocator".to_owned(),
    };
    let threads = words::count(view.outline.threads as usize, "thread");
    let verdict = verdict::of(view).sentence;
    format!(
        "{bold}{}{bold:#} ({}), {on}, {threads}\n{bold}{}{bold:#}.\n",
        identity.name,
        identity.key.pid,
        words::capitalised(&verdict)
    )
}

fn account(view: &View) -> String {
    let resident = view.account.resident;
    let mut table = sheet(&["RESIDENT", "%"], "WHERE");
    for (share, amount) in &view.account.lines {
        row(
            &mut table,
            share.title(),
            [bytes(*amount as f64), percent(*amount, resident)],
        );
    }
    row(
        &mut table,
        "resident",
        [bytes(resident as f64), "100".to_owned()],
    );
    lines(&table)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Figures that are not lines of the account, because they overlap with them.
fn beside(view: &View) -> String {
    let total = view.residence.total();
    let mut facts = vec![format!(
        "{} with shared pages divided",
        bytes(view.residence.proportional as f64)
    )];
    let mut fact = |amount: u64, what: &str| {
        if amount > 0 {
            facts.push(format!("{} {what}", bytes(amount as f64)));
        }
    };
    fact(total.huge, "in huge pages");
    fact(total.lazily_freed, "lazily freed");
    fact(total.swapped, "swapped out");
    fact(
        view.account.untouched,
        "of live blocks that were never touched beside",
    );
    fact(view.residence.hugetlb, "of hugetlbfs beside");
    fact(view.outline.peak_resident, "at the peak");
    let second = format!(
        "{} mappings, {} of address space; {} page faults, {} of them with the disk",
        decimal(total.mappings as f64),
        bytes(total.size as f64),
        decimal(
            view.outline
                .minor_faults
                .saturating_add(view.outline.major_faults) as f64
        ),
        decimal(view.outline.major_faults as f64),
    );
    format!("\nResident: {}.\n{second}.\n", facts.join(", "))
}

fn what_loam_would_add(view: &View) -> String {
    let heaps = view.residence.resident_of(&[Kind::Heap, Kind::Anonymous]);
    let holder = view.allocator.as_ref().map_or_else(
        || "Its allocator".to_owned(),
        |found| format!("{} ({})", words::capitalised(&found.name), found.file),
    );
    let hidden = format!(
        "\n{holder} does not show what the {} of heap and anonymous memory hold.",
        bytes(heaps as f64)
    );
    if view
        .allocator
        .as_ref()
        .is_some_and(|found| !found.can_be_preceded())
    {
        return hidden + "\n";
    }
    format!(
        "{hidden} On Loam the same page says what is live, cached, free between live blocks and \
         kept, class by class, with lock contention and purging, while the program runs: loam run \
         -- {}\n",
        to_copy(&view.identity)
    )
}

/// The whole command line or nothing: a part of it would be another command.
fn to_copy(identity: &Identity) -> String {
    const LONGEST: usize = 240;
    match columns::width(&identity.command) <= LONGEST {
        true => identity.command.clone(),
        false => format!("{} ARGUMENTS", plain::word(&identity.argument0)),
    }
}

/// The figures that another allocator reports, and no others.
fn of_peer(snapshot: &Snapshot) -> String {
    let known = LIST.counters.iter().filter_map(|counter| {
        let value = snapshot.heaps.first()?.values.known(&counter.id)?;
        Some(format!("  {:>9}  {}", bytes(value as f64), counter.meaning))
    });
    let lines: Vec<String> = known.collect();
    format!(
        "\n{} tells of itself:\n{}\n",
        words::capitalised(&snapshot.allocator()),
        lines.join("\n")
    )
}

fn counters(snapshot: &Snapshot) -> String {
    let mut text = heap_facts(&snapshot.process);
    if snapshot.heaps.len() > 1 {
        text += &heaps(snapshot);
    }
    let mut classes: Vec<(&HeapFigures, &ClassFigures)> = snapshot
        .heaps
        .iter()
        .flat_map(|heap| heap.classes.iter().map(move |class| (heap, class)))
        .filter(|(_, class)| class.waste() > 0)
        .collect();
    classes.sort_by_key(|(_, class)| std::cmp::Reverse(class.waste()));
    let more = classes.len().saturating_sub(CLASSES_SHOWN);
    classes.truncate(CLASSES_SHOWN);
    if !classes.is_empty() {
        let several = snapshot.heaps.len() > 1;
        text += "\n";
        text += &class_table(
            classes
                .iter()
                .map(|(heap, class)| (several.then_some(*heap), *class)),
        );
        if more > 0 {
            let dim = dim();
            text += &format!(
                "{dim}{} with less waste: loam stats PID --heap NAME{dim:#}\n",
                words::count_of(more, "more class", "more classes")
            );
        }
    }
    text += &locks(snapshot);
    for note in &snapshot.notes {
        text += &format!("\nNote: {note}.\n");
    }
    text
}

/// Sentences about the heap's work since the start.
fn heap_facts(values: &Values) -> String {
    let whole = |id| values.whole(id);
    let count = |id| decimal(whole(id) as f64);
    let size = |id| bytes(whole(id) as f64);
    let charged = match values.known(ids::CHARGED_BYTES) {
        Some(amount) => format!(" ({} of the system's commit charge)", bytes(amount as f64)),
        None => String::new(),
    };
    let mut text = format!(
        "\nHeap: {} blocks live; {} used, {} committed{charged}, {} reserved; peak {} in spans and \
         runs.\n",
        count(ids::LIVE_BLOCKS),
        size(ids::USED_BYTES),
        size(ids::COMMITTED_BYTES),
        size(ids::RESERVED_BYTES),
        size(ids::PEAK_USED_BYTES),
    );
    text += &format!(
        "Free: {}% of what is backed; longest free run {}; {} of pages given back in {} calls \
         ({}).\n",
        values
            .real(ids::FREE_RATIO)
            .map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}", 100.0 * ratio)),
        size(ids::LARGEST_FREE_RUN_BYTES),
        size(ids::PURGED_TOTAL_BYTES),
        count(ids::PURGE_CALLS),
        seconds(whole(ids::PURGE_NANOSECONDS) as f64 * 1e-9),
    );
    text += &format!(
        "Locks: {} taken, {} waited for, {} avoided by queueing ({} blocks freed from afar).\n",
        count(ids::LOCK_ACQUISITIONS),
        count(ids::LOCK_CONTENTIONS),
        count(ids::LOCK_REFUSALS),
        count(ids::REMOTE_BLOCKS),
    );
    text + &sampled(values)
}

fn sampled(values: &Values) -> String {
    let Some(allocs) = values.real(ids::ALLOCS) else {
        return unsampled(values);
    };
    let frees = values.real(ids::FREES).unwrap_or(0.0);
    let hits = values.real(ids::CACHED_ALLOCS).unwrap_or(0.0) / allocs.max(1.0);
    let mean = |time: &str, number: &str| {
        let number = values.real(number).filter(|number| *number > 0.0)?;
        Some(seconds(values.real(time)? / number * 1e-9))
    };
    let mut text = format!(
        "Calls: {} allocations ({:.1}% from the thread's cache), {} frees",
        decimal(allocs),
        100.0 * hits,
        decimal(frees)
    );
    if let Some(time) = mean(ids::TIMED_ALLOC_NANOSECONDS, ids::TIMED_ALLOCS) {
        text += &format!("; an allocation takes {time}");
    }
    if let Some(time) = mean(ids::TIMED_FREE_NANOSECONDS, ids::TIMED_FREES) {
        text += &format!(", a free {time}");
    }
    text + ", on average.\n"
}

/// What is known, without sampling, about the calls that the caches served.
fn unsampled(values: &Values) -> String {
    let known = rates::allocs_of_caches(values).and_then(|all| {
        let misses = values.real(ids::CACHE_MISSES)?;
        Some((all, rates::share_of_hits(all, misses)?))
    });
    let Some((all, hits)) = known else {
        return "Calls: not counted; start the program with LOAM_SAMPLE set for rates and times.\n"
            .to_owned();
    };
    format!(
        "Calls: at least {} allocations up to 32 KiB, {:.1}% of them or more from the thread's \
         cache; {} frees to caches. All calls, and their times, with LOAM_SAMPLE set.\n",
        decimal(all),
        100.0 * hits,
        decimal(values.whole(ids::CACHE_FREES) as f64),
    )
}

fn heaps(snapshot: &Snapshot) -> String {
    let mut table = sheet(
        &[
            "NUMBER", "LIVE", "BLOCKS", "CACHED", "FREE", "SPANS", "WAITED",
        ],
        "HEAP",
    );
    for heap in &snapshot.heaps {
        let values = &heap.values;
        let size = |id| bytes(values.whole(id) as f64);
        let count = |id| decimal(values.whole(id) as f64);
        row(
            &mut table,
            &heap.label(),
            [
                heap.number.to_string(),
                size(ids::LIVE_BYTES),
                count(ids::LIVE_BLOCKS),
                size(ids::CACHED_BYTES),
                size(ids::SPAN_FREE_BYTES),
                count(ids::SPANS),
                count(ids::LOCK_CONTENTIONS),
            ],
        );
    }
    format!("\n{}", lines(&table))
}

fn one_heap(heap: &HeapFigures, snapshot: &Snapshot) -> String {
    let values = &heap.values;
    let size = |id| bytes(values.whole(id) as f64);
    let count = |id| decimal(values.whole(id) as f64);
    let mut text = format!(
        "Heap {} ({}): {} live in {} blocks, {} cached, {} free in {} spans.\n",
        heap.number,
        heap.label(),
        size(ids::LIVE_BYTES),
        count(ids::LIVE_BLOCKS),
        size(ids::CACHED_BYTES),
        size(ids::SPAN_FREE_BYTES),
        count(ids::SPANS),
    );
    text += &format!(
        "{} of {} lock acquisitions had to wait; {} blocks freed from afar.\n\n",
        count(ids::LOCK_CONTENTIONS),
        count(ids::LOCK_ACQUISITIONS),
        count(ids::REMOTE_BLOCKS)
    );
    let mut classes: Vec<&ClassFigures> = heap.classes.iter().collect();
    classes.sort_by_key(|class| class.block_bytes);
    if classes.is_empty() {
        text += "No block of a size class was ever in it.\n";
    } else {
        text += &class_table(classes.into_iter().map(|class| (None, class)));
    }
    for note in &snapshot.notes {
        text += &format!("\nNote: {note}.\n");
    }
    text
}

fn class_table<'a>(
    classes: impl Iterator<Item = (Option<&'a HeapFigures>, &'a ClassFigures)>,
) -> String {
    let mut table = sheet(
        &[
            "LIVE", "BLOCKS", "CACHED", "FREE", "WASTE", "SPANS", "FULL", "WAITED",
        ],
        "SIZE CLASS",
    );
    for (heap, class) in classes {
        let values = &class.values;
        let count = |id| decimal(values.whole(id) as f64);
        let size = bytes(class.block_bytes as f64);
        let name = heap.map_or_else(
            || size.clone(),
            |heap| format!("{size} of {}", heap.label()),
        );
        row(
            &mut table,
            &name,
            [
                bytes(class.live_bytes() as f64),
                count(ids::CLASS_LIVE_BLOCKS),
                count(ids::CLASS_CACHED_BLOCKS),
                count(ids::CLASS_FREE_BLOCKS),
                bytes(class.waste() as f64),
                count(ids::CLASS_SPANS),
                count(ids::CLASS_FULL_SPANS),
                count(ids::CLASS_LOCK_CONTENTIONS),
            ],
        );
    }
    lines(&table)
}

fn locks(snapshot: &Snapshot) -> String {
    let mut contended: Vec<_> = snapshot
        .locks
        .iter()
        .filter(|lock| lock.waited > 0)
        .collect();
    if contended.is_empty() {
        return String::new();
    }
    contended.sort_by_key(|lock| std::cmp::Reverse(lock.waited));
    contended.truncate(LOCKS_SHOWN);
    let mut table = sheet(&["WAITED", "TAKEN", "SHARE"], "LOCK");
    for lock in contended {
        let name = match lock
            .heap
            .and_then(|number| snapshot.heap(&number.to_string()))
        {
            Some(heap) if snapshot.heaps.len() > 1 => format!("{} of {}", lock.name, heap.label()),
            _ => lock.name.clone(),
        };
        row(
            &mut table,
            &name,
            [
                decimal(lock.waited as f64),
                decimal(lock.taken as f64),
                format!("{}%", percent(lock.waited, lock.taken)),
            ],
        );
    }
    format!("\n{}", lines(&table))
}

/// A table with text in the first column and figures in the others.
pub fn sheet(columns: &[&str], first: &str) -> Table {
    let bold = bold();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec![Cell::new(format!("{bold}{first}{bold:#}"))];
    for column in columns {
        let cell = Cell::new(format!("{bold}{column}{bold:#}"));
        header.push(cell.set_alignment(CellAlignment::Right));
    }
    table.set_header(header);
    table
}

pub fn row<const N: usize>(table: &mut Table, first: &str, figures: [String; N]) {
    let mut cells = vec![Cell::new(first)];
    let figures = figures.into_iter().map(Cell::new);
    cells.extend(figures.map(|cell| cell.set_alignment(CellAlignment::Right)));
    table.add_row(cells);
}

pub fn lines(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}
