//! Runs a step of the plan as a trial: prepares its environment, checks that the preload took
//! effect, and judges the output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::value::RawValue;

use loam_format::results::lines::{self, Line};
use loam_format::results::{Results, Status, Trial};
use loam_format::units;

use crate::measure::heat::Heat;
use crate::measure::launch::{self, Launch, Observed, Outcome};
use crate::measure::noise::Sample;
use crate::measure::{now, Bench, Step};

/// Environment variables that a workload may need; everything else is left out, so that no
/// setting of the caller's shell (`MALLOC_CONF`, `LD_PRELOAD`...) reaches one allocator only.
const INHERITED: [&str; 4] = ["PATH", "HOME", "TMPDIR", "TZ"];
/// Pads the environment. The length differs from round to round and is the same for all allocators
/// of a round. It moves the stack, and the stack's place alone changes times (Stabilizer, 2013).
const PADDING_VARIABLE: &str = "LOAM_LAB_PADDING";
const MOST_PADDING: u32 = 4096;

/// Runs a step. Returns none if the user stopped it.
pub fn run(
    step: &Step,
    position: u32,
    results: &Results,
    bench: &Bench,
    heat: &Heat,
) -> Option<Trial> {
    let record = results
        .allocators
        .iter()
        .find(|record| record.label == step.allocator)?;
    let padding = padding(results.options.seed, step.round);
    let environment = environment(&record.environment, record.path.as_deref(), padding);
    let arguments = arguments(step, results);
    let library = record.path.as_deref().map(canonical);
    let touch = heat.touch(&step.experiment, &step.case.name);
    let started = now();
    let before = Sample::now();
    let launch = Launch {
        program: &step.workload,
        arguments: &arguments,
        environment: &environment,
        timeout: bench.timeout,
    };
    let mut preload = if library.is_some() { "traced" } else { "none" };
    let observed = launch::run(&launch, bench.stop.as_ref(), &bench.watchdog, |pid| {
        let Some(library) = &library else {
            return Ok(());
        };
        match is_mapped(pid, library) {
            Some(true) => {
                preload = "mapped";
                Ok(())
            }
            Some(false) => Err("the library is not in the process".to_owned()),
            // The process ended before it could be inspected.
            None => is_traced(&step.workload, library, &environment),
        }
    });
    let noise = Sample::now().since(&before);
    if observed.outcome == Outcome::Stopped {
        return None;
    }
    let (status, reason, lines) = judge(&observed, library.as_deref(), step, bench);
    Some(Trial {
        experiment: step.experiment.clone(),
        case: step.case.name.clone(),
        allocator: step.allocator.clone(),
        round: step.round,
        position,
        warm_up: step.warm_up,
        status,
        reason,
        started,
        seconds: observed.seconds,
        preload: preload.to_owned(),
        steal: noise.steal,
        other_load: noise.other_load,
        touch,
        noisy: noise.is_too_much() || touch.is_some_and(|touch| heat.is_cold(&touch)),
        padding,
        stderr_tail: observed.stderr_tail,
        lines,
    })
}

fn padding(seed: u64, round: u32) -> u32 {
    // The rounds use different seeds of the generator; neighbouring seeds give unrelated numbers.
    fastrand::Rng::with_seed(seed.wrapping_add(u64::from(round) << 32)).u32(..MOST_PADDING)
}

fn environment(
    settings: &BTreeMap<String, String>,
    library: Option<&Path>,
    padding: u32,
) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
        .collect();
    environment.insert("LC_ALL".to_owned(), "C".to_owned());
    environment.insert(PADDING_VARIABLE.to_owned(), "x".repeat(padding as usize));
    environment.extend(settings.clone());
    if let Some(library) = library {
        environment.insert("LD_PRELOAD".to_owned(), library.display().to_string());
    }
    environment
}

fn arguments(step: &Step, results: &Results) -> Vec<String> {
    let mut arguments = vec![
        format!("--{}", results.options.form.name()),
        "--seed".to_owned(),
        results.options.seed.to_string(),
    ];
    arguments.extend(step.case.arguments.iter().cloned());
    arguments
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Whether the running process has the library in its memory; none if the process is gone.
fn is_mapped(pid: u32, library: &Path) -> Option<bool> {
    // A file in memory is known by what its descriptor leads to.
    let library = fs::read_link(library).unwrap_or_else(|_| library.to_path_buf());
    let library = library.to_string_lossy();
    // The kernel hands the list out page by page, so the list of a process that ends meanwhile is
    // cut off. A second look shows this: then there is no list at all.
    for _ in 0..2 {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
            .ok()
            .filter(|m| !m.is_empty())?;
        if maps.lines().any(|line| line.ends_with(library.as_ref())) {
            return Some(true);
        }
    }
    Some(false)
}

/// Asks the loader what it would load. No program but the loader runs.
fn is_traced(
    program: &Path,
    library: &Path,
    environment: &BTreeMap<String, String>,
) -> Result<(), String> {
    let output = Command::new(program)
        .env_clear()
        .envs(environment)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("what it loads could not be told: {error}"))?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let is_it = |word: &str| word.starts_with('/') && canonical(Path::new(word)) == library;
    if listing.split_whitespace().any(is_it) {
        Ok(())
    } else {
        Err("the loader does not load the library".to_owned())
    }
}

type Verdict = (Status, Option<String>, Vec<Box<RawValue>>);

fn judge(observed: &Observed, library: Option<&Path>, step: &Step, bench: &Bench) -> Verdict {
    let (lines, garbage) = read(&observed.lines);
    // The loader continues without a library that it can not use, and reports that on standard
    // error.
    let refusal = library.and_then(|_| loader_refusal(&observed.stderr_tail));
    let (status, reason) = match &observed.outcome {
        _ if refusal.is_some() => (Status::NotPreloaded, refusal),
        Outcome::Rejected(reason) => (Status::NotPreloaded, Some(reason.clone())),
        Outcome::Exited(0) => match (garbage, unavailable(&observed.lines)) {
            (Some(garbage), _) => (Status::Garbage, Some(garbage)),
            (None, Some(reason)) => (Status::Unavailable, Some(reason)),
            (None, None) => (Status::Ok, None),
        },
        Outcome::Exited(code) => (
            Status::Failed,
            Some(with_stderr(format!("it exited with {code}"), observed)),
        ),
        Outcome::Signalled(signal) => {
            let name = signal_name(*signal);
            (
                Status::Crashed,
                Some(with_stderr(format!("{name} ended it"), observed)),
            )
        }
        Outcome::TimedOut => {
            let limit = units::duration(bench.timeout.as_secs_f64());
            // A warm-up may be slow because nothing is in the page cache yet, so the first round
            // still runs.
            let ending = if step.warm_up {
                ""
            } else {
                ", and is not run again"
            };
            let reason = format!("it was stopped after {limit} (see --timeout){ending}");
            (Status::TimedOut, Some(reason))
        }
        Outcome::Unreadable(reason) => (Status::Garbage, Some(reason.clone())),
        Outcome::NotStarted(reason) => (
            Status::NotStarted,
            Some(format!("it could not be started: {reason}")),
        ),
        Outcome::Stopped => unreachable!("a stopped trial is not judged"),
    };
    (status, reason, lines)
}

fn with_stderr(what: String, observed: &Observed) -> String {
    match observed.stderr_tail.lines().last() {
        Some(line) if !line.trim().is_empty() => {
            format!("{what}: {}", loam_format::words::excerpt(line.trim(), 200))
        }
        _ => what,
    }
}

/// Keeps the lines that are JSON. Describes the first line that is not, or the lack of any.
fn read(lines: &[String]) -> (Vec<Box<RawValue>>, Option<String>) {
    let mut kept = Vec::new();
    let mut problem = None;
    let mut last = None;
    for (index, text) in lines.iter().enumerate() {
        let note = |problem: &mut Option<String>, what: String| {
            problem.get_or_insert(format!("line {} of its output {what}", index + 1));
        };
        match lines::parse_text(text) {
            Ok(line) => {
                if index == 0 && !matches!(line, Line::Start(_)) {
                    note(&mut problem, "should be a \"start\"".to_owned());
                }
                last = Some(line);
            }
            Err(error) => note(&mut problem, error.to_string()),
        }
        kept.extend(RawValue::from_string(text.clone()));
    }
    if problem.is_none() && !matches!(last, Some(Line::End(_))) {
        problem = Some(match last {
            None => "it printed nothing".to_owned(),
            Some(_) => "its output has no \"end\" line".to_owned(),
        });
    }
    (kept, problem)
}

/// A workload that can not measure anything here gives the reason in its end line.
fn unavailable(lines: &[String]) -> Option<String> {
    match lines::parse_text(lines.last()?) {
        Ok(Line::End(end)) => Some(end.get("unavailable")?.as_str()?.to_owned()),
        _ => None,
    }
}

fn loader_refusal(stderr: &str) -> Option<String> {
    let line = stderr.lines().find(|line| {
        line.contains("from LD_PRELOAD cannot be preloaded") || line.contains("symbol lookup error")
    })?;
    Some(loam_format::words::excerpt(line.trim(), 200))
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(lines: &[&str]) -> Option<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        read(&lines).1
    }

    #[test]
    fn output_is_a_start_then_an_end_and_json_throughout() {
        let (start, end) = (r#"{"type":"start"}"#, r#"{"type":"end"}"#);
        assert_eq!(problem(&[start, end]), None);
        assert!(problem(&[]).unwrap().contains("nothing"));
        assert!(problem(&[start]).unwrap().contains("no \"end\""));
        assert!(problem(&[end]).unwrap().contains("line 1"));
        assert!(problem(&[start, "oops", end]).unwrap().contains("line 2"));
    }

    #[test]
    fn the_environment_holds_what_the_allocator_needs_and_no_more() {
        let settings = BTreeMap::from([("MALLOC_CONF".to_owned(), "x".to_owned())]);
        let environment = environment(&settings, Some(Path::new("/l.so")), 3);
        assert_eq!(environment["LD_PRELOAD"], "/l.so");
        assert_eq!(environment["MALLOC_CONF"], "x");
        assert_eq!(environment[PADDING_VARIABLE], "xxx");
        assert!(!environment.contains_key("CARGO"));
    }

    #[test]
    fn all_allocators_of_a_round_get_the_same_padding() {
        assert_eq!(padding(1, 4), padding(1, 4));
        assert_ne!(padding(1, 4), padding(1, 5));
    }

    #[test]
    fn the_loaders_complaint_is_recognised() {
        let line = "ERROR: ld.so: object '/x.so' from LD_PRELOAD cannot be preloaded (file too \
                    short): ignored.";
        assert!(loader_refusal(line).is_some());
        assert!(loader_refusal("all is well").is_none());
    }
}
