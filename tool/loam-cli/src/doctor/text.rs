//! What `loam doctor` prints for people.

use loam_format::units::bytes;
use loam_format::words;
use loam_report::columns;
use loam_report::style::{bold, dim};

use loam_counters::diagnosis::{Finding, RuledOut};
use loam_record::grower::Grown;
use loam_record::paths;

use super::Answer;

/// Columns of a page for reading.
const WIDTH: usize = 100;
/// Columns of the names on the left.
const LEFT: usize = 10;

/// The page.
pub fn render(answer: &Answer) -> String {
    let (bold, evidence) = (bold(), answer.evidence);
    let identity = answer.identity;
    let mut page = format!(
        "{bold}{}{bold:#} ({}), on {}, {} resident\n",
        identity.name,
        identity.key.pid,
        evidence.allocator,
        bytes(evidence.resident as f64)
    );
    let findings = &answer.diagnosis.findings;
    if !answer.diagnosis.is_sick() {
        let what = match (&answer.diagnosis.unknown, &evidence.heap) {
            (Some(unknown), _) => wrapped(&format!("I can not tell: {}.", unknown.what), 0),
            (None, Ok(_)) => "Healthy: nothing is wrong with its memory.".to_owned(),
            (None, Err(reason)) => {
                format!("Nothing was found, but malloc's heap was not seen: {reason}.")
            }
        };
        page += &format!("{bold}{what}{bold:#}\n");
        if let Some(unknown) = &answer.diagnosis.unknown {
            page += &field("next", &unknown.remedy);
        }
    }
    for finding in findings {
        page += "\n";
        page += &one(finding);
    }
    page += "\n";
    page += &account(answer);
    page += &out(&answer.diagnosis.ruled_out);
    if let Some(grown) = answer.stacks {
        page += "\n";
        page += &stacks(grown);
    }
    page
}

fn one(finding: &Finding) -> String {
    let bold = bold();
    let mut text = String::new();
    let verdict = words::capitalised(&finding.verdict);
    let note = if finding.is_fault { "" } else { " (no fault)" };
    text += &format!(
        "{bold}{}{bold:#}\n",
        wrapped(&format!("{verdict}{note}."), 0)
    );
    for (number, fact) in finding.evidence.iter().enumerate() {
        text += &field(if number == 0 { "evidence" } else { "" }, fact);
    }
    text += &field("remedy", &finding.remedy);
    if let Some(gain) = finding.gain_bytes.filter(|_| finding.is_fault) {
        let gain = match finding.gain_least_bytes {
            Some(least) if least < gain => {
                format!("{} to {}", bytes(least as f64), bytes(gain as f64))
            }
            _ => format!("up to {}", bytes(gain as f64)),
        };
        text += &field("gain", &gain);
    }
    text
}

fn field(name: &str, text: &str) -> String {
    format!("  {name:LEFT$}{}\n", wrapped(text, LEFT + 2))
}

/// Lines of at most [`WIDTH`] columns, all but the first with a margin; the first one has its
/// margin already.
fn wrapped(text: &str, margin: usize) -> String {
    columns::wrap(text, WIDTH - margin).join(&format!("\n{:margin$}", ""))
}

/// Where the heap's memory is, in one line.
fn account(answer: &Answer) -> String {
    let Ok(heap) = &answer.evidence.heap else {
        return String::new();
    };
    let mut parts = vec![format!("{} live", bytes(heap.live as f64))];
    let mut part = |amount: u64, what: &str| {
        if amount > 0 {
            parts.push(format!("{} {what}", bytes(amount as f64)));
        }
    };
    part(heap.untouched, "of that never touched");
    part(heap.between, "free between blocks");
    part(heap.kept(), "free pages kept");
    part(heap.cached, "in threads' caches");
    part(heap.top, "resident behind the last blocks");
    part(heap.records, "of records");
    let common = match heap.common {
        0 => String::new(),
        common => format!(
            ", {} of that shared with other processes since a fork()",
            bytes(common as f64)
        ),
    };
    let mut text = wrapped(
        &format!(
            "Its heap: {} resident{common}; {}.",
            bytes(heap.resident as f64),
            words::list(&parts)
        ),
        0,
    ) + "\n";
    if heap.is_peer {
        return text;
    }
    let mut trim = format!(
        "A trim now would give back {} and take about {:.1} ms.",
        bytes(heap.trim.own() as f64),
        heap.trim.milliseconds
    );
    let common = heap.trim.bytes - heap.trim.own();
    if common > 0 {
        trim += &format!(
            " {} more are shared with other processes, and a trim of this one frees nothing of \
             them.",
            bytes(common as f64)
        );
    }
    text += &wrapped(&trim, 0);
    text += "\n";
    for problem in &heap.problems {
        text += &wrapped(&format!("Not seen: {problem}."), 0);
        text += "\n";
    }
    text
}

fn out(all: &[RuledOut]) -> String {
    let dim = dim();
    let mut text = String::new();
    for (was_looked_at, title) in [(true, "Ruled out:"), (false, "Not looked at:")] {
        let those = all.iter().filter(|out| out.was_looked_at == was_looked_at);
        let lines: Vec<String> = those
            .map(|out| {
                format!(
                    "  {}",
                    wrapped(&format!("{}: {}", out.kind.title(), out.why), 4)
                )
            })
            .collect();
        if !lines.is_empty() {
            text += &format!("\n{title}\n{dim}{}{dim:#}\n", lines.join("\n"));
        }
    }
    text
}

/// The function is named through which this part came, and that is the nearest to the allocation.
const MOST: f64 = 0.8;

/// Under which stacks the heap grew.
fn stacks(grown: &Grown) -> String {
    let seen: f64 = grown.paths.iter().map(|path| path.bytes).sum();
    let total = grown.total.map_or(seen, |total| total as f64);
    let mut text = format!(
        "Under these call paths {} came to the heap in {:.0} s",
        bytes(total),
        grown.seconds
    );
    if grown.paths.is_empty() {
        return format!(
            "No memory came to the heap in {:.0} s{}.\n",
            grown.seconds,
            match grown.total {
                Some(total) if total > 0 => format!(
                    " with a page fault that was seen, though {} more are resident",
                    bytes(total as f64)
                ),
                _ => String::new(),
            }
        );
    }
    text += ":\n";
    if let Some((function, share)) = loam_lab::traces::paths::common(&grown.paths, MOST) {
        text += &format!(
            "\n  {:.0} % of it came through {}\n",
            100.0 * share,
            loam_format::plain::line(function)
        );
    }
    text += &paths::text(&grown.paths);
    // Huge pages that the kernel made later, and faults that were lost.
    if total - seen > 0.1 * total && grown.total.is_some() {
        text += &format!("\n  {} without a stack\n", bytes(total - seen));
    }
    text
}
