//! The listing that `loam allocators` prints.

use comfy_table::{presets, Table};

use loam_format::plain;
use loam_lab::allocators::{Allocator, Status};
use loam_report::style::bold;

/// A table of what is there, then what is absent and how to get it.
pub fn render(allocators: &[Allocator]) -> String {
    let bold = bold();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let heading = |text: &str| format!("{bold}{text}{bold:#}");
    table.set_header(["NAME", "VERSION", "LIBRARY", "FROM"].map(heading));
    for allocator in allocators.iter().filter(|a| a.status == Status::Found) {
        let path = allocator.path.as_ref().map_or_else(
            || "(nothing is preloaded)".to_owned(),
            |path| path.display().to_string(),
        );
        let version = allocator
            .version
            .clone()
            .unwrap_or_else(|| "unknown".to_owned());
        let cells = [&allocator.name, &version, &path, &allocator.source];
        table.add_row(cells.map(|cell| plain::line(cell).into_owned()));
    }
    let mut text = trimmed(&table);
    let missing: Vec<&Allocator> = allocators
        .iter()
        .filter(|a| a.status != Status::Found)
        .collect();
    if !missing.is_empty() {
        text += &format!("\n{bold}Not usable here{bold:#}\n");
        for allocator in &missing {
            text += &absence(allocator);
        }
    }
    text
}

/// `mimalloc3: not built from crate X. Get it: make peers`
pub fn absence(allocator: &Allocator) -> String {
    let reason = allocator.reason.as_deref().unwrap_or("absent");
    match &allocator.remedy {
        Some(remedy) => format!("  {}: {reason}. To get it: {remedy}\n", allocator.name),
        None => format!("  {}: {reason}.\n", allocator.name),
    }
}

fn trimmed(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}
