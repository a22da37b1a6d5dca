//! What `loam census` prints for people.

use loam_census::census::{Census, Row};
use loam_census::diff::Change;
use loam_census::types::Kind;
use loam_format::plain;
use loam_format::units::{bytes, decimal, grouped as count, percent, signed};
use loam_report::columns;
use loam_report::style::{bold, dim};

/// Columns of a page for reading.
const WIDTH: usize = 100;
/// Columns of a name.
const NAME: usize = 46;
/// Paths that are shown.
const PATHS: usize = 5;
/// Groups of lost blocks that are shown beside the types.
const GROUPS: usize = 8;

fn show(amount: u64) -> String {
    bytes(amount as f64)
}

fn paragraph(text: &str) -> String {
    columns::wrap(text, WIDTH).join("\n") + "\n"
}

/// The name of a row, with what kind of row it is.
fn name(kind: Kind, name: &str) -> String {
    kind.title(&plain::line(name))
}

fn fitted(text: &str) -> String {
    if columns::width(text) <= NAME {
        return columns::left(text, NAME);
    }
    columns::left(&format!("{}…", columns::cut(text, NAME - 1)), NAME)
}

/// How the bytes of an example begin, if they are shown.
fn example(content: Option<&str>) -> String {
    let Some(content) = content else {
        return String::new();
    };
    let (dim, lines) = (dim(), columns::wrap(&plain::line(content), WIDTH - 4));
    let lines = lines.iter().map(|line| format!("    {dim}{line}{dim:#}\n"));
    lines.collect()
}

/// The whole page; `leaks`: lost blocks alone.
pub fn census(of: &str, census: &Census, top: usize, leaks: bool) -> String {
    let (bold, dim) = (bold(), dim());
    let live = census.live;
    let mut text = format!(
        "{bold}{}{bold:#}, on {}\n",
        plain::line(of),
        census.allocator
    );
    text += &paragraph(&format!(
        "{} live blocks have {}. {} % of these bytes have a type, or belong to objects that have \
         one.",
        count(live.blocks),
        show(live.bytes),
        percent(census.typed_bytes(), live.bytes),
    ));
    if !leaks {
        text += &rows(&census.rows, top);
        text += &contents(census);
        text += &pools(census);
    }
    text += &lost(census, if leaks { top } else { GROUPS });
    for problem in &census.problems {
        let lines = columns::wrap(&format!("not seen: {}", plain::line(problem)), WIDTH);
        for line in lines {
            text += &format!("{dim}{line}{dim:#}\n");
        }
    }
    text
}

fn rows(rows: &[Row], top: usize) -> String {
    let (bold, dim) = (bold(), dim());
    let mut text = format!(
        "\n{bold}{} {:>12} {:>12} {:>12} {:>12}{bold:#}\n",
        columns::left("TYPE", NAME),
        "BLOCKS",
        "OWN",
        "WITH PARTS",
        "HELD"
    );
    for row in rows.iter().take(top) {
        let own = match row.kind.is_type() {
            true => show(row.own_bytes),
            false => "-".to_owned(),
        };
        text += &format!(
            "{} {:>12} {:>12} {:>12} {:>12}\n",
            fitted(&name(row.kind, &row.name)),
            count(row.blocks),
            own,
            show(row.with_parts_bytes),
            show(row.held_bytes)
        );
        text += &example(row.content.as_deref());
    }
    if rows.len() > top {
        let rest: u64 = rows[top..].iter().map(|row| row.with_parts_bytes).sum();
        text += &format!(
            "{} {:>12} {:>12} {:>12}\n",
            fitted(&format!("{} others", count((rows.len() - top) as u64))),
            "",
            "",
            show(rest)
        );
    }
    let legend = "own: the objects themselves. with parts: and the blocks without a type that \
                  belong to them (buffers, nodes); this column adds up to all live bytes. held: \
                  what would be free if they were.";
    for line in columns::wrap(legend, WIDTH) {
        text += &format!("{dim}{line}{dim:#}\n");
    }
    let with_path: Vec<&Row> = rows
        .iter()
        .filter(|row| row.path.len() > 1 && row.kind != Kind::Unheld)
        .take(PATHS)
        .collect();
    if !with_path.is_empty() {
        text += "\nHow the largest are reached:\n";
    }
    for row in with_path {
        text += &path(&row.path);
    }
    text
}

fn path(steps: &[String]) -> String {
    let steps: Vec<String> = steps
        .iter()
        .map(|step| {
            let step = plain::line(step);
            match columns::width(&step) > 60 {
                true => format!("{}…", columns::cut(&step, 59)),
                false => step.into_owned(),
            }
        })
        .collect();
    let lines = columns::wrap(&steps.join(" -> "), WIDTH - 4);
    let mut text = String::new();
    for (place, line) in lines.iter().enumerate() {
        text += &format!("{}{line}\n", if place == 0 { "  " } else { "    " });
    }
    text
}

fn contents(census: &Census) -> String {
    let mut parts: Vec<_> = census.contents.iter().collect();
    parts.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes));
    let parts: Vec<String> = parts
        .iter()
        .take(8)
        .map(|(name, sum)| format!("{name} {}", show(sum.bytes)))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => {
            "\n".to_owned()
                + &paragraph(&format!(
                    "Blocks without a type look like: {}.",
                    parts.join(", ")
                ))
        }
    }
}

fn pools(census: &Census) -> String {
    let Some(pools) = &census.pools else {
        return String::new();
    };
    "\n".to_owned()
        + &paragraph(&format!(
            "CPython's own allocator keeps {} of arenas for {} blocks of {}: {} pools of {} are in \
             use.",
            show(pools.arena_bytes),
            count(pools.blocks),
            show(pools.block_bytes),
            count(pools.used_pools),
            show(pools.used_pool_bytes),
        ))
}

fn lost(census: &Census, top: usize) -> String {
    let bold = bold();
    let lost = census.lost;
    let mut text = String::from("\n");
    let looks = match census.between {
        Some(seconds) => format!("in two looks {} s apart", decimal(seconds)),
        None => "in one look".to_owned(),
    };
    if lost.blocks == 0 {
        text += &paragraph(&format!(
            "No block is lost: a pointer leads to every one ({looks})."
        ));
    } else {
        text += &paragraph(&format!(
            "{} blocks of {} are lost: no pointer leads to them ({looks}).",
            count(lost.blocks),
            show(lost.bytes)
        ));
        text += &format!(
            "{bold}{} {:>12} {:>12} {:>12} {:>12}{bold:#}\n",
            columns::left("LOST", NAME),
            "BLOCKS",
            "OF SIZE",
            "WITH PARTS",
            "ALSO HELD"
        );
    }
    for group in census.groups.iter().take(top) {
        let mut label = name(group.kind, &group.name);
        if let Some(holder) = group.holder.as_ref().filter(|_| group.heads == 0) {
            label += &format!(", of lost {}", plain::line(holder));
        }
        text += &format!(
            "{} {:>12} {:>12} {:>12} {:>12}\n",
            fitted(&label),
            count(group.blocks),
            show(group.size),
            show(group.held_bytes),
            count(group.reachable)
        );
        text += &example(group.content.as_deref());
    }
    if census.groups.len() > top {
        text += &format!(
            "{} other groups\n",
            count((census.groups.len() - top) as u64)
        );
    }
    let doubtful = census.doubtful;
    if doubtful.blocks > 0 {
        text += &paragraph(&in_doubt(doubtful.blocks, doubtful.bytes));
    }
    text
}

fn in_doubt(blocks: u64, bytes: u64) -> String {
    let (noun, are, them) = match blocks {
        1 => ("block", "is", "it"),
        _ => ("blocks", "are", "them"),
    };
    format!(
        "{} {noun} of {} {are} in doubt: only dead parts of stacks, or pointers to just before \
         {them}, lead to {them}.",
        count(blocks),
        show(bytes)
    )
}

/// What changed between two censuses.
pub fn changes(
    before: &Census,
    after: &Census,
    of: &str,
    changes: &[Change],
    seconds: f64,
    top: usize,
) -> String {
    let bold = bold();
    let mut text = format!("{bold}{}{bold:#}\n", plain::line(of));
    text += &paragraph(&format!(
        "{} live blocks have {}: {} blocks and {} more than {} s before.",
        count(after.live.blocks),
        show(after.live.bytes),
        signed(after.live.blocks as i64 - before.live.blocks as i64, count),
        signed(after.live.bytes as i64 - before.live.bytes as i64, show),
        decimal(seconds),
    ));
    if changes.is_empty() {
        return text + "Nothing grew or shrank.\n";
    }
    text += &format!(
        "\n{bold}{} {:>12} {:>12} {:>12} {:>12}{bold:#}\n",
        columns::left("TYPE", NAME),
        "BLOCKS",
        "WITH PARTS",
        "A SECOND",
        "OF THEM LOST"
    );
    for change in changes.iter().take(top) {
        let speed = match seconds > 0.0 {
            true => signed((change.bytes as f64 / seconds) as i64, show),
            false => "-".to_owned(),
        };
        let lost = match change.lost_blocks {
            0 => "none".to_owned(),
            lost => signed(lost, count),
        };
        text += &format!(
            "{} {:>12} {:>12} {:>12} {:>12}\n",
            fitted(&name(change.kind, &change.name)),
            signed(change.blocks, count),
            signed(change.bytes, show),
            speed,
            lost
        );
    }
    let growing: Vec<&Change> = changes
        .iter()
        .filter(|one| one.bytes > 0 && one.path.len() > 1)
        .take(PATHS)
        .collect();
    if !growing.is_empty() {
        text += "\nHow what grows is reached:\n";
    }
    for change in growing {
        text += &path(&change.path);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_is_in_doubt_and_several_are() {
        let (one, two) = (in_doubt(1, 280), in_doubt(2, 560));
        assert!(one.starts_with("1 block of 280 B is in doubt: "), "{one}");
        assert!(two.starts_with("2 blocks of 560 B are in doubt: "), "{two}");
    }
}
