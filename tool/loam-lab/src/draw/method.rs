//! The report's last section: how each figure was made, on which machine, and how every trial
//! ended.

use maud::{html, Markup};

use loam_format::results::{AllocatorRecord, Results, Status, Trial};
use loam_format::units;

use crate::analyse::stats::BOOTSTRAP_FROM;
use crate::draw::section::Section;

/// The whole section.
pub fn section(results: &Results, sections: &[Section]) -> Markup {
    html! {
        (how(results))
        h3 { "Figures" }
        dl.meanings {
            @for section in sections {
                @for (title, meaning) in &section.meanings {
                    div { dt { (section.name) ": " (title) } dd { (meaning) "." } }
                }
            }
        }
        h3 { "Machine" }
        (machine(results))
        h3 { "Allocators" }
        (allocators(results))
        h3 { "Trials" }
        (trials(results))
    }
}

fn how(results: &Results) -> Markup {
    let options = &results.options;
    let interval = if options.rounds as usize >= BOOTSTRAP_FROM {
        "95% bootstrap interval of the median"
    } else {
        "range of the rounds, because fewer than five values carry no better interval"
    };
    html! {
        ul {
            li {
                "Every trial is a fresh process of the experiment's program with the allocator's "
                "shared object preloaded; that it really is in the process is checked each time. "
                "Nothing of the caller's environment but PATH, HOME, TMPDIR and TZ reaches it."
            }
            li {
                "Form " (options.form.name()) ", seed " (options.seed) ", " (options.rounds)
                " rounds. In a round the allocators run next to each other; the order is reversed "
                "from round to round and rotated every other round. Before the first round each "
                "experiment runs once uncounted, to bring its files into the page cache."
            }
            li {
                "Figures are medians. Ratios to the row of 1.00x are formed within a round, "
                "and their median is shown with the " (interval) "."
            }
            li {
                "Memory is what the process itself reads from smaps_rollup; lazily freed and huge "
                "pages are in the results file apart. The experiment's own tables do not come "
                "from the heap under test."
            }
            li {
                "Before each trial as much memory is touched and given back, twice, as the trials "
                "before it needed at their peaks: the first touch of memory that the host took "
                "back can take ten times as long as later ones, and who runs first would pay."
            }
            li {
                "A trial is noisy if other virtual machines took more than 1% of the processors' "
                "time, or other processes more than 15%, or if the second touch took more than "
                "twice as long as the fastest one. Noisy trials do not count where at least "
                "as many quiet ones remain."
            }
            li {
                "The environment is padded by a length that differs from round to round and is "
                "the same for all allocators of a round, because the stack's place alone changes "
                "times."
            }
        }
    }
}

fn machine(results: &Results) -> Markup {
    let machine = &results.machine;
    let commit = results.tool.commit.as_deref().unwrap_or("unknown");
    let modified = if results.tool.modified {
        ", with changes"
    } else {
        ""
    };
    let launcher = units::bytes(machine.launcher_resident_bytes as f64);
    let rows = [
        ("processor", machine.cpu.clone()),
        ("cores", machine.cores.to_string()),
        ("memory", units::bytes(machine.memory_bytes as f64)),
        ("page", units::bytes(machine.page_bytes as f64)),
        (
            "virtual machine",
            if machine.virtual_machine { "yes" } else { "no" }.to_owned(),
        ),
        ("system", format!("{}, {}", machine.system, machine.kernel)),
        (
            "transparent huge pages",
            machine.transparent_hugepages.clone(),
        ),
        ("overcommit", machine.overcommit.clone()),
        ("load before", format!("{:.2}", machine.load_average)),
        ("launcher", format!("{launcher} resident")),
        (
            "loam",
            format!("{}, commit {commit}{modified}", results.tool.version),
        ),
        (
            "measured",
            format!("{} to {}", results.created, results.updated),
        ),
    ];
    html! {
        div.scroll tabindex="0" role="region" aria-label="Machine" {
            table {
                tbody {
                    @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } }
                }
            }
        }
    }
}

fn allocators(results: &Results) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Allocators" {
            table {
                thead {
                    tr {
                        @for heading in ["name", "version", "from", "library", "settings"] {
                            th scope="col" { (heading) }
                        }
                    }
                }
                tbody { @for record in &results.allocators { (allocator(record)) } }
            }
        }
    }
}

fn allocator(record: &AllocatorRecord) -> Markup {
    let version = record.version.as_deref().unwrap_or("unknown");
    let identity = record
        .build_id
        .as_deref()
        .or(record.sha256.as_deref())
        .unwrap_or("");
    html! {
        tr.absent[!record.measured] {
            th scope="row" { (record.label) }
            @if record.measured {
                td { (version) }
                td { (record.source) }
                td {
                    @match &record.path {
                        Some(path) => { (path.display()) small { (identity) } }
                        None => "nothing is preloaded"
                    }
                }
                td { @for (name, value) in &record.environment { code { (name) "=" (value) } " " } }
            } @else {
                td colspan="4" {
                    "not measured: " (record.reason.as_deref().unwrap_or("absent"))
                    @if let Some(remedy) = &record.remedy { "; to get it: " code { (remedy) } }
                }
            }
        }
    }
}

fn trials(results: &Results) -> Markup {
    html! {
        details {
            summary { "All " (results.trials.len()) " trials, in the order in which they ran" }
            div.scroll tabindex="0" role="region" aria-label="Trials" {
                table {
                    thead {
                        tr {
                            @for heading in ["experiment", "case", "allocator", "round"] {
                                th scope="col" { (heading) }
                            }
                            @for heading in ["seconds", "steal", "other load", "ns a page"] {
                                th.number scope="col" { (heading) }
                            }
                            th scope="col" { "ended" }
                        }
                    }
                    tbody { @for each in &results.trials { (trial(each)) } }
                }
            }
        }
    }
}

fn trial(trial: &Trial) -> Markup {
    let round = if trial.warm_up {
        "warm-up".to_owned()
    } else {
        (trial.round + 1).to_string()
    };
    html! {
        tr {
            td { (trial.experiment) }
            td { (trial.case) }
            td { (trial.allocator) }
            td { (round) }
            td.number { (format!("{:.2}", trial.seconds)) }
            td.number { (format!("{:.1}%", trial.steal * 100.0)) }
            td.number { (format!("{:.1}%", trial.other_load * 100.0)) }
            td.number {
                @if let Some(touch) = trial.touch {
                    (format!("{:.0}, {:.0}", touch.first_ns, touch.again_ns))
                }
            }
            td {
                @if trial.status == Status::Ok {
                    @if trial.noisy { "ok, noisy" } @else { "ok" }
                } @else {
                    (trial.reason.as_deref().unwrap_or("failed"))
                }
            }
        }
    }
}
