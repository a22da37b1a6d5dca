//! The text of `loam check` for people: the verdict, which module uses which functions, the
//! findings.

use comfy_table::{presets, Table};

use loam_check::examined::Examined;
use loam_check::family::{titles, Function};
use loam_check::findings::{Finding, Severity, Verdict};
use loam_check::linked::{How, Provider};
use loam_format::{plain, words};
use loam_report::style::bold;

/// The page.
pub fn render(examined: &Examined, verdict: Verdict, findings: &[Finding]) -> String {
    let bold = bold();
    let headline = headline(examined, verdict);
    let mut page = format!("{bold}{}{bold:#}\n", plain::line(&headline));
    let rows = rows(examined);
    if !rows.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let heading = |text: &str| format!("{bold}{text}{bold:#}");
        table.set_header(["MODULE", "", "USES", "OF"].map(heading));
        for row in rows {
            table.add_row(row.map(|cell| plain::line(&cell).into_owned()));
        }
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        page += &format!("\n{}\n", lines.join("\n"));
    }
    for finding in findings {
        let word = match finding.severity {
            Severity::Fails => "fails",
            Severity::Unsafe => "unsafe",
            Severity::Partial => "partial",
            Severity::Note => "note",
        };
        page += &format!(
            "\n{bold}{word}{bold:#} [{}] {} {}.\n  Remedy: {}.\n",
            finding.code,
            plain::line(&finding.module),
            plain::line(&finding.what),
            plain::line(&finding.remedy)
        );
    }
    page
}

fn headline(examined: &Examined, verdict: Verdict) -> String {
    let heap = examined
        .linked
        .modules
        .iter()
        .find(|module| module.is_loam());
    let heap = heap.map_or("the heap inside it", |module| module.path.as_str());
    let title = &examined.title;
    let (is, would) = match examined.pid {
        Some(_) => ("is", "is"),
        None => ("will be", "would be"),
    };
    match verdict {
        Verdict::Taken => {
            format!("{title} {is} on {heap}: every call of malloc and its family goes there.")
        }
        Verdict::Partly => format!("{title} {would} on {heap} only in part, or unsafely."),
        Verdict::Not => format!("{title} {would} on another allocator than Loam."),
    }
}

/// A row for each module, with the providers of the functions that it uses.
fn rows(examined: &Examined) -> Vec<[String; 4]> {
    let linked = &examined.linked;
    let mut rows = Vec::new();
    for (place, module) in linked.modules.iter().enumerate() {
        let mut by_provider: Vec<(Provider, Vec<Function>)> = Vec::new();
        for binding in linked
            .bindings
            .iter()
            .filter(|binding| binding.module == place)
        {
            match by_provider
                .iter_mut()
                .find(|(provider, _)| *provider == binding.provider)
            {
                Some((_, functions)) => functions.push(binding.function),
                None => by_provider.push((binding.provider, vec![binding.function])),
            }
        }
        if module.is_loam()
            && by_provider
                .iter()
                .all(|(provider, _)| linked.is_loam(*provider))
        {
            continue; // The heap using itself says nothing.
        }
        let space = match module.namespace {
            0 => String::new(),
            number => format!(", namespace {number}"),
        };
        for (provider, mut functions) in by_provider {
            functions.sort_unstable();
            let unread = linked
                .bindings
                .iter()
                .filter(|b| b.module == place && b.provider == provider && b.how == How::Searched);
            let unread = if examined.pid.is_some() {
                unread.count()
            } else {
                0
            };
            let note = match unread {
                0 => String::new(),
                count => format!(" ({} by search order)", words::count(count, "function")),
            };
            rows.push([
                module.name().to_owned(),
                module.origin.word().to_owned() + &space,
                titles(&functions) + &note,
                linked.provider_name(provider),
            ]);
        }
    }
    rows
}
