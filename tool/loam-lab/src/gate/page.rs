//! The answer for the terminal and for a job's summary.

use loam_format::words;
use loam_report::grid::Grid;
use loam_report::{markdown as md, terminal};

use super::judge::has_interval;
use super::{Gated, Judged, Outcome};

/// For the terminal.
pub fn text(gated: &Gated, baseline: &str) -> String {
    let mut text = terminal::wrapped(&headline(gated));
    text += &terminal::grid(&grid(gated, baseline));
    let lines = gated.causes.iter().chain(&gated.remarks);
    let lines: String = lines.map(|line| terminal::wrapped(line)).collect();
    text + "\n" + &lines
}

/// For a job's summary.
pub fn markdown(gated: &Gated, baseline: &str) -> String {
    let mut text = format!("### loam gate: {}\n", headline(gated));
    text += &md::grid(&grid(gated, baseline));
    for line in gated.causes.iter().chain(&gated.remarks) {
        text += &format!("\n{line}\n");
    }
    text
}

fn headline(gated: &Gated) -> String {
    let list = |outcome: Outcome| {
        let titles: Vec<&str> = gated.titles(&outcome).collect();
        words::list(&titles)
    };
    let (failed, unsure) = (list(Outcome::Failed), list(Outcome::Unsure));
    let unsure = match unsure.as_str() {
        "" => String::new(),
        titles => format!(" Not sure: {titles}; more trials would tell (--trials)."),
    };
    match failed.as_str() {
        "" => format!("PASSED.{unsure}"),
        titles => format!("FAILED: {titles} grew beyond the limit.{unsure}"),
    }
}

fn grid(gated: &Gated, baseline: &str) -> Grid {
    let reading = format!(
        "{} of each, on {}; the baseline is {baseline}. In brackets: the interval of the change",
        words::count(gated.trials, "trial"),
        gated.allocator
    );
    let mut grid = Grid::new(
        "Replays",
        &reading,
        &["", "baseline", "now", "change", "limit", "verdict"],
    );
    grid.rows = gated.judged.iter().map(row).collect();
    grid
}

fn row(one: &Judged) -> Vec<String> {
    let unit = one.figure.unit;
    let change = one.ratio.map_or_else(
        || "-".to_owned(),
        |ratio| {
            let percent = |value: f64| format!("{:+.1}", 100.0 * (value - 1.0));
            let interval = match has_interval(&ratio) {
                true => format!(" ({} to {})", percent(ratio.low), percent(ratio.high)),
                false => String::new(),
            };
            format!("{} %{interval}", percent(ratio.median))
        },
    );
    let verdict = match &one.outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Failed => "FAILED".to_owned(),
        Outcome::Unsure => "not sure".to_owned(),
        Outcome::NotJudged(why) if why.is_empty() => "for comparison".to_owned(),
        Outcome::NotJudged(why) => format!("not judged: {why}"),
    };
    vec![
        one.figure.title.to_owned(),
        one.before
            .map_or_else(|| "-".to_owned(), |value| unit.show(value)),
        unit.show(one.now),
        change,
        one.limit
            .map_or_else(String::new, |limit| format!("{:+} %", round(100.0 * limit))),
        verdict,
    ]
}

/// The number without the digits that come from binary fractions.
fn round(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}
