//! The page of a census: a treemap of who holds what, the types, what is lost, and how the largest
//! are reached.

use maud::{html, Markup};

use loam_format::plain;
use loam_format::units::{bytes, grouped as count, percent, signed};
use loam_report::html::is_made_by;
use loam_report::treemap::{Treemap, TreemapPage};

use crate::census::Census;
use crate::diff::Change;
use crate::tree::Tree;
use crate::types::Kind;

const GENERATOR: &str = "loam census";
/// Rows of each table.
const ROWS: usize = 200;
/// Paths.
const PATHS: usize = 40;
/// How a place is known, in the order of [`sort`].
const SORTS: [&str; 7] = [
    "C++ class",
    "C object",
    "Python type",
    "no type",
    "variable, stack or mapping",
    "held by several",
    "lost, or not reached",
];

/// Whether these are the first bytes of one of our pages.
pub fn looks_like_page(head: &[u8]) -> bool {
    is_made_by(head, GENERATOR)
}

fn sort(kind: Kind) -> u32 {
    match kind {
        Kind::Class => 0,
        Kind::Functions => 1,
        Kind::Python => 2,
        Kind::Content => 3,
        Kind::Root | Kind::Object => 4,
        Kind::Shared | Kind::Owners => 5,
        Kind::Unheld => 6,
    }
}

fn treemap(tree: &Tree, before: Option<&Tree>) -> Treemap {
    let mut names = tree.names.clone();
    let mut places: Vec<_> = tree
        .nodes
        .iter()
        .map(|one| {
            (
                one.parent,
                one.name,
                sort(one.kind),
                one.blocks,
                one.own_bytes,
                one.held_bytes,
            )
        })
        .collect();
    let mut name_first = |place: &mut u32, name: &str| {
        names.push(name.to_owned());
        *place = names.len() as u32 - 1;
    };
    if let Some(first) = places.first_mut() {
        name_first(&mut first.1, "all live blocks");
    }
    for place in places
        .iter_mut()
        .filter(|place| place.2 == sort(Kind::Unheld))
    {
        name_first(&mut place.1, "lost, or not reached");
    }
    Treemap {
        names,
        sorts: SORTS.to_vec(),
        warned: sort(Kind::Unheld),
        places,
        before: before.map(|before| tree.before(before)),
    }
}

/// The page of one census.
pub fn of_census(of: &str, census: &Census) -> Option<String> {
    let above = html! {
        p {
            (count(census.live.blocks)) " live blocks have "
            (bytes(census.live.bytes as f64)) ", on " (census.allocator) ". "
            (percent(census.typed_bytes(), census.live.bytes))
            " % of these bytes have a type, or belong to objects that have one. "
            (count(census.lost.blocks)) " blocks of " (bytes(census.lost.bytes as f64)) " are lost."
        }
    };
    let below = html! {
        (types(census))
        (lost(census))
        (paths(census))
        @if !census.problems.is_empty() {
            section {
                h2 { "Not seen" }
                ul { @for one in &census.problems { li { (plain::line(one)) } } }
            }
        }
    };
    let title = format!("Census of {}", plain::line(of));
    page(
        &title,
        &above,
        &below,
        &treemap(census.tree.as_ref()?, None),
    )
}

/// The page of two.
pub fn of_changes(
    before: &Census,
    after: &Census,
    of: &str,
    changes: &[Change],
    seconds: f64,
) -> Option<String> {
    let blocks = after.live.blocks as i64 - before.live.blocks as i64;
    let grown = after.live.bytes as i64 - before.live.bytes as i64;
    let show = |amount: u64| bytes(amount as f64);
    let above = html! {
        p {
            (count(after.live.blocks)) " live blocks have " (show(after.live.bytes)) ": "
            (signed(blocks, count)) " blocks and " (signed(grown, show)) " more than "
            (loam_format::units::decimal(seconds)) " s before."
        }
    };
    let below = html! {
        section {
            h2 { "What grew and shrank" }
            div.scroll.rows tabindex="0" role="region" aria-label="What grew and shrank" {
                table {
                    thead { tr {
                        th scope="col" { "type" }
                        th.number scope="col" { "blocks" } th.number scope="col" { "with parts" }
                        th.number scope="col" { "lost" }
                        th scope="col" { "how it is reached" }
                    } }
                    tbody { @for one in changes.iter().take(ROWS) { tr {
                        th scope="row" { (plain::line(&one.title())) }
                        td.number { (signed(one.blocks, count)) }
                        td.number { (signed(one.bytes, show)) }
                        td.number { (signed(one.lost_blocks, count)) }
                        td { p.path { (plain::line(&one.path.join(" -> "))) } }
                    } } }
                }
            }
        }
    };
    let title = format!("Changes of {}", plain::line(of));
    let map = treemap(after.tree.as_ref()?, Some(before.tree.as_ref()?));
    page(&title, &above, &below, &map)
}

fn page(title: &str, above: &Markup, below: &Markup, map: &Treemap) -> Option<String> {
    let reading =
        "An area is what its blocks hold: what would be free if they were. Its parts are \
                   what they hold, named by type, or by what the bytes look like. Click an area to \
                   enter it.";
    let page = TreemapPage {
        generator: GENERATOR,
        version: loam_format::VERSION,
        title,
        above,
        reading,
        below,
        map,
    };
    (!map.places.is_empty()).then(|| page.render().into_string())
}

fn types(census: &Census) -> Markup {
    html! {
        section {
            h2 { "Types" }
            p {
                "Own: the objects themselves. With parts: and the blocks without a type that \
                 belong to them; this column adds "
                "up to all live bytes. Held: what would be free if they were."
            }
            div.scroll.rows tabindex="0" role="region" aria-label="Types" {
                table {
                    thead { tr {
                        th scope="col" { "type" }
                        th.number scope="col" { "blocks" } th.number scope="col" { "own" }
                        th.number scope="col" { "with parts" } th.number scope="col" { "held" }
                    } }
                    tbody {
                        @for row in census.rows.iter().take(ROWS) { tr {
                            th scope="row" { (plain::line(&row.kind.title(&row.name))) }
                            td.number { (count(row.blocks)) }
                            td.number { (bytes(row.own_bytes as f64)) }
                            td.number { (bytes(row.with_parts_bytes as f64)) }
                            td.number { (bytes(row.held_bytes as f64)) }
                        } }
                        @if census.rows.len() > ROWS { tr {
                            th scope="row" { (count((census.rows.len() - ROWS) as u64)) " others" }
                            td {} td {}
                            td.number { (bytes(census.rows[ROWS..].iter()
                                .map(|row| row.with_parts_bytes).sum::<u64>() as f64)) }
                            td {}
                        } }
                    }
                }
            }
        }
    }
}

fn lost(census: &Census) -> Markup {
    html! {
        section id="lost" {
            h2 { "Lost blocks" }
            @if census.groups.is_empty() {
                p { "No block is lost: a pointer leads to every one." }
            } @else {
                p { "No pointer leads to these blocks, but for pointers from lost blocks." }
                div.scroll.rows tabindex="0" role="region" aria-label="Lost blocks" {
                    table {
                        thead { tr {
                            th scope="col" { "type" }
                            th.number scope="col" { "blocks" } th.number scope="col" { "of size" }
                            th.number scope="col" { "held" } th.number scope="col" { "such blocks \
                                that are held" }
                            th scope="col" { "part of" }
                        } }
                        tbody { @for group in census.groups.iter().take(ROWS) { tr {
                            th scope="row" { (plain::line(&group.kind.title(&group.name))) }
                            td.number { (count(group.blocks)) }
                            td.number { (bytes(group.size as f64)) }
                            td.number { (bytes(group.held_bytes as f64)) }
                            td.number { (count(group.reachable)) }
                            td { (plain::line(group.holder.as_deref().unwrap_or(""))) }
                        } } }
                    }
                }
                @if census.groups.len() > ROWS {
                    p { (count((census.groups.len() - ROWS) as u64)) " other groups." }
                }
            }
        }
    }
}

fn paths(census: &Census) -> Markup {
    let with_path = census.rows.iter().filter(|row| row.path.len() > 1);
    html! {
        section {
            h2 { "How the largest are reached" }
            ul { @for row in with_path.take(PATHS) {
                li { p.path { (plain::line(&row.path.join(" -> "))) } }
            } }
        }
    }
}
