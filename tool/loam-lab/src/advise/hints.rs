//! What to change in the program itself. A hint names a part of the program's memory that is worth
//! a change, the cause, and the remedy.

use loam_format::units::Unit;
use loam_format::words;
use loam_process::symbols::Symbols;
use serde::Serialize;

use super::apart::Separated;
use super::rooms::Room;
use crate::replay::lives::Clock;
use crate::traces::shapes::{Doubling, PeakSize, Shapes};
use crate::traces::stacks::Stacks;

/// The share of the peak that a hint must bring to be worth a change (`super::WORTH`).
const SHARE: f64 = 1.0 - super::WORTH;
/// The fewest bytes that a hint must bring: saving less is not worth a change. Chosen.
const LEAST_BYTES: u64 = 1 << 20;
/// A container grows step by step if one request in this many is a resize that moves the block.
/// Chosen.
const MOVES: u64 = 10;
/// Such moves grow a block by less than this factor. A container that doubles is no trouble.
const STEP: f64 = 1.4;
/// How many call sites are named.
const NAMED: usize = 5;

/// What a hint is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Blocks whose size is just above a size class.
    SizeAboveClass,
    /// A container grows step by step.
    GrowingContainer,
    /// Large buffers are kept by a cache without a cut-off.
    BufferCache,
    /// Long-lived blocks lie among short-lived ones.
    Separate,
    /// One size holds the peak.
    LargestSize,
}

/// A hint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hint {
    /// What it is about.
    pub kind: Kind,
    /// Bytes that the change would save; absent where they can not be estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What was found and what to do, in sentences.
    pub text: String,
}

/// What hints are made from.
#[derive(Debug)]
pub struct Sources<'a> {
    /// What is unusual in the requests.
    pub shapes: &'a Shapes,
    /// The label of the recorded allocator.
    pub allocator: &'a str,
    /// The rooms that this allocator gives the peak's sizes.
    pub rooms: &'a [Room],
    /// The replay with long-lived blocks apart, if it is worth it.
    pub separated: Option<&'a Separated>,
    /// The stacks, if the trace has some.
    pub stacks: Option<&'a Stacks>,
}

/// All hints, the most telling first.
pub fn of(sources: &Sources) -> Vec<Hint> {
    let shapes = sources.shapes;
    let mut hints = Vec::new();
    hints.extend(sources.separated.map(|one| separate(one, sources.stacks)));
    hints.extend(buffers(shapes));
    hints.extend(above_class(shapes, sources.rooms, sources.allocator));
    hints.extend(growing(shapes));
    hints.extend(largest(shapes));
    hints
}

fn bytes(value: u64) -> String {
    Unit::Bytes.show(value as f64)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn is_worth(saved: u64, peak: u64) -> bool {
    saved >= LEAST_BYTES && saved as f64 >= SHARE * peak as f64
}

/// Sizes that are at most an eighth larger than a smaller class.
pub fn above_class(shapes: &Shapes, rooms: &[Room], allocator: &str) -> Option<Hint> {
    let room = |size: u64| {
        rooms
            .iter()
            .find(|room| room.size == size && room.below > 0)
    };
    let saving = |one: &PeakSize| {
        let room = room(one.size)?;
        let each = room.room.checked_sub(room.room_below)?;
        Some((each.saturating_mul(one.blocks), *one, *room))
    };
    let (saved, one, room) = (shapes.sizes.iter())
        .filter_map(saving)
        .max_by_key(|(saved, ..)| *saved)?;
    is_worth(saved, shapes.peak_bytes).then(|| Hint {
        kind: Kind::SizeAboveClass,
        bytes: Some(saved),
        text: format!(
            "{} blocks of {} bytes live at the peak, just above a size class of {allocator}, which \
             gives each {} bytes. With {} bytes or fewer each would get {}: {} less at the peak.",
            one.blocks,
            one.size,
            room.room,
            room.below,
            room.room_below,
            bytes(saved)
        ),
    })
}

/// Blocks that grow by small steps and move.
pub fn growing(shapes: &Shapes) -> Option<Hint> {
    let is_often = shapes.moved > 0 && shapes.moved * MOVES > shapes.requests;
    let step = shapes.grown as f64 / shapes.copied.max(1) as f64;
    (is_often && step < STEP && shapes.copied >= LEAST_BYTES).then(|| Hint {
        kind: Kind::GrowingContainer,
        bytes: None,
        text: format!(
            "{} of {} requests are resizes that moved a block, each by {} on average, and copied \
             {}: a container grows step by step. Reserve its room at once, or grow by a factor.",
            shapes.moved,
            shapes.requests,
            bytes((shapes.grown - shapes.copied) / shapes.moved),
            bytes(shapes.copied)
        ),
    })
}

/// Three of four requests are small, and rare large buffers hold the memory: the larger a block is,
/// the rarer is a request for it and the longer it stays. A cache that keeps the largest buffer
/// shows this pattern (article 003). Large blocks that all stay are the program's working data
/// instead.
pub fn buffers(shapes: &Shapes) -> Option<Hint> {
    /// At least this many sizes above the cut-off must show the pattern, each with at least
    /// `BLOCKS` blocks.
    const SIZES: usize = 3;
    const BLOCKS: u64 = 4;
    /// The share of large blocks that stay must be this many times that of the small ones.
    const STAY: f64 = 3.0;
    let requests: u64 = shapes.doublings.iter().map(|one| one.requests).sum();
    let mut seen = 0;
    let cut = shapes.doublings.iter().position(|one| {
        seen += one.requests;
        seen * 4 >= requests * 3 && requests > 0
    })?;
    let (below, above) = shapes.doublings.split_at(cut + 1);
    let sum = |all: &[Doubling], of: fn(&Doubling) -> u64| all.iter().map(of).sum::<u64>();
    let stay = |all: &[Doubling]| {
        percent(
            sum(all, |one| one.peak_blocks),
            sum(all, |one| one.requests),
        )
    };
    let held = sum(above, |one| one.peak_bytes);
    let used: Vec<&Doubling> = above.iter().filter(|one| one.requests > 0).collect();
    let is_rarer = used
        .windows(2)
        .all(|two| two[1].requests <= two[0].requests);
    let shares: Vec<f64> = (used.iter())
        .filter(|one| one.peak_blocks >= BLOCKS)
        .map(|one| percent(one.peak_blocks, one.requests))
        .collect();
    let rises = shares.len() >= SIZES
        && shares[0] < 50.0
        && shares.windows(2).all(|two| two[1] >= 0.9 * two[0])
        && shares[shares.len() - 1] >= 1.5 * shares[0];
    let is_it = is_worth(held, shapes.peak_bytes)
        && held * 2 >= shapes.peak_bytes
        && is_rarer
        && rises
        && stay(above) >= STAY * stay(below);
    let limit = 1u64 << cut;
    is_it.then(|| Hint {
        kind: Kind::BufferCache,
        bytes: None,
        text: format!(
            "Of all requests {:.0} % are of up to {} bytes, and {:.0} % of the peak lies in larger \
             blocks. The larger a block, the rarer it is asked for and the longer it stays: {:.0} \
             % of them live at the peak, of the small ones {:.1} %. If a cache of buffers keeps \
             them, let it keep none above {} bytes, and hand out none for a much smaller request.",
            percent(sum(below, |one| one.requests), requests),
            limit,
            percent(held, shapes.peak_bytes),
            stay(above),
            stay(below),
            limit
        ),
    })
}

/// What separation saved, and the call sites of the long-lived blocks.
fn separate(one: &Separated, stacks: Option<&Stacks>) -> Hint {
    let how = match one.by_site {
        true => "By call sites, each with the lifetime that most of its bytes have",
        false => "By each block's own life, so that no split by call sites saves more",
    };
    let mut text = format!(
        "With the blocks that live {} ({:.0} % of the requested bytes) in a heap of their own the \
         program has {} of the average memory, {} less, and {} of the program's processor time. \
         {how}. `loam_heap_create` makes such a heap.",
        Clock::words(one.class),
        100.0 * one.share,
        super::ratio(&Some(one.ratio)),
        bytes(one.bytes),
        super::ratio(&one.time_ratio)
    );
    match stacks.map(|stacks| call_sites(stacks, one.class)) {
        None => text += " Record with --stacks to see whose blocks they are.",
        Some(named) if named.is_empty() => {
            text +=
                " No call site is theirs alone: what decides is why a block is kept, not where \
                     it is allocated.";
        }
        Some(named) => text += &format!(" They come from {}.", named.join("; ")),
    }
    Hint {
        kind: Kind::Separate,
        bytes: Some(one.bytes),
        text,
    }
}

/// The call sites with the most bytes that live as long, in words. A call site is named only if
/// most of its bytes live that long: otherwise its blocks can not be moved.
fn call_sites(stacks: &Stacks, class: u8) -> Vec<String> {
    let long = |lives: &[f64]| lives[usize::from(class)..].iter().sum::<f64>();
    let all: f64 = stacks.sites.iter().map(|site| long(&site.lives)).sum();
    let mut sites: Vec<_> = (stacks.sites.iter())
        .filter(|site| long(&site.lives) * 2.0 >= site.lives.iter().sum())
        .filter(|site| long(&site.lives) > 0.0 && long(&site.lives) >= SHARE * all)
        .collect();
    sites.sort_by(|a, b| long(&b.lives).total_cmp(&long(&a.lives)));
    let mut symbols = Symbols::default();
    sites
        .into_iter()
        .take(NAMED)
        .map(|site| {
            let names = stacks.names(site, &mut symbols);
            let inner: Vec<String> = names.iter().rev().take(3).rev().cloned().collect();
            let own: f64 = site.lives.iter().sum();
            format!(
                "{} ({:.0} % of the long-lived bytes; {:.0} % of its own live as long)",
                inner.join(" > "),
                100.0 * long(&site.lives) / all,
                100.0 * long(&site.lives) / own
            )
        })
        .collect()
}

/// Hint for a doubling of size that holds a third of the peak.
fn largest(shapes: &Shapes) -> Option<Hint> {
    let largest = (shapes.doublings.iter().enumerate()).max_by_key(|(_, one)| one.peak_bytes)?;
    let (doubling, one) = largest;
    (one.peak_bytes * 3 > shapes.peak_bytes).then(|| Hint {
        kind: Kind::LargestSize,
        bytes: None,
        text: format!(
            "{:.0} % of what lives at the peak are {} of up to {}: fewer or smaller ones of these \
             save more than any heap does.",
            percent(one.peak_bytes, shapes.peak_bytes),
            words::count(one.peak_blocks as usize, "block"),
            bytes(1 << doubling)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::shapes::Doubling;

    fn shapes(peak: u64) -> Shapes {
        Shapes {
            peak_bytes: peak,
            requests: 1_000,
            ..Shapes::default()
        }
    }

    #[test]
    fn a_size_just_above_a_class_is_named_where_it_is_worth_it() {
        let room = |size, room, below, room_below| Room {
            size,
            room,
            below,
            room_below,
        };
        let mut one = shapes(100 << 20);
        one.sizes = vec![PeakSize {
            size: 1_040,
            blocks: 100_000,
        }];
        let hint = above_class(&one, &[room(1_040, 1_280, 1_024, 1_024)], "it").unwrap();
        assert_eq!(hint.bytes, Some(25_600_000));
        // Three cases without a hint: no class just below, a class that is hardly smaller, and few
        // blocks.
        assert_eq!(above_class(&one, &[room(1_040, 1_280, 0, 0)], "it"), None);
        assert_eq!(
            above_class(&one, &[room(1_040, 1_040, 1_039, 1_024)], "it"),
            None
        );
        one.sizes[0].blocks = 1_000;
        assert_eq!(
            above_class(&one, &[room(1_040, 1_280, 1_024, 1_024)], "it"),
            None
        );
    }

    #[test]
    fn small_steps_that_move_are_named_and_doublings_are_not() {
        let grows = |moved, copied, grown| {
            growing(&Shapes {
                moved,
                copied,
                grown,
                ..shapes(1 << 30)
            })
        };
        assert!(grows(200, 100 << 20, 110 << 20).is_some());
        assert_eq!(grows(200, 100 << 20, 200 << 20), None);
        assert_eq!(grows(50, 100 << 20, 110 << 20), None);
        assert_eq!(grows(200, 1 << 10, 2 << 10), None);
    }

    #[test]
    fn large_buffers_that_stay_are_named_and_large_blocks_that_go_are_not() {
        // For each doubling: requests, and blocks at the peak.
        let made = |rows: &[(usize, u64, u64)]| {
            let mut one = shapes(0);
            for (at, requests, peak_blocks) in rows {
                one.doublings[*at] = Doubling {
                    requests: *requests,
                    freed: requests - peak_blocks,
                    peak_blocks: *peak_blocks,
                    peak_bytes: peak_blocks << at,
                };
            }
            one.peak_bytes = one.doublings.iter().map(|one| one.peak_bytes).sum();
            buffers(&one)
        };
        let small = [(10, 32_500, 1_300), (11, 12_000, 800)];
        let large = [
            (12, 3_700, 400),
            (13, 1_000, 220),
            (14, 280, 120),
            (15, 80, 60),
        ];
        let with = |large: &[(usize, u64, u64)]| made(&[&small[..], large].concat());
        assert!(with(&large).unwrap().text.contains("up to 2048 bytes"));
        // Three cases without a hint: with a cut-off the large blocks go; a program's own large
        // blocks all stay; large blocks that are requested often are no rarities.
        assert_eq!(
            with(&large.map(|(at, requests, _)| (at, requests, requests / 30))),
            None
        );
        assert_eq!(
            with(&large.map(|(at, requests, _)| (at, requests, requests))),
            None
        );
        assert_eq!(with(&[(12, 400, 50), (13, 800, 300), (14, 900, 800)]), None);
    }
}
