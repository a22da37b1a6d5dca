//! `loam run --allocator`: `stats`, `top`, `export` and `doctor` find the figures that another
//! allocator reports. Figures that it does not report are absent.

use crate::common::{compile, export, get, loam, root, skip, Ran, Talker};
use serde_json::Value;

/// A program that knows its live bytes.
struct Truth {
    talker: Talker,
    _folder: tempfile::TempDir,
}

impl Truth {
    fn on(allocator: &str) -> Truth {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("truth");
        let source = root().join("tests/doctor/truth.c");
        compile(&["-O1", "-pthread"], &source, &program);
        let mut command = loam();
        command.args(["run", "--allocator", allocator, "--"]);
        // A fifth of 64 MiB stays, in blocks of 16 to 516 bytes.
        command.arg(&program).args(["0", "1", "20", "64"]);
        Truth {
            talker: Talker::start(&mut command),
            _folder: folder,
        }
    }

    fn live(&mut self) -> f64 {
        self.talker.ask("live").parse().unwrap()
    }

    fn ask(&self, verb: &[&str]) -> Ran {
        Ran::of(loam().args(verb).arg(self.talker.pid()).output().unwrap())
    }

    fn json(&self, verb: &[&str]) -> Value {
        let ran = self.ask(verb);
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    }

    /// Its counters, once the helper has read them after the program was ready. The helper reads
    /// them twice in half a second.
    fn counters(&self, is_new: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..600 {
            last = self.json(&["stats", "--json"])["processes"][0].clone();
            if is_new(&last["counters"]["process"]) {
                return last;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{last:#}");
    }
}

/// The allocators of that kind on this machine.
fn here(kinds: &[&str]) -> Vec<String> {
    let ran = Ran::of(loam().arg("allocators").output().unwrap());
    let usable = ran.out.split("\n\n").next().unwrap_or_default();
    let names = usable
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| kinds.iter().any(|kind| name.starts_with(kind)))
        .map(str::to_owned)
        .collect()
}

fn helper_is_here() -> bool {
    let is_here = root().join("build/libpeer-counters.so").is_file();
    if !is_here {
        skip("peers: build/libpeer-counters.so is not built (`make library`)");
    }
    is_here
}

#[test]
fn what_jemalloc_and_tcmalloc_tell_is_what_the_program_holds() {
    if !helper_is_here() {
        return;
    }
    let names = here(&["jemalloc", "tcmalloc"]);
    if names.is_empty() {
        return skip("peers: neither jemalloc nor tcmalloc is installed");
    }
    for name in names {
        let mut truth = Truth::on(&name);
        let live = truth.live();
        let is_close = |process: &Value| {
            let told = process["live_bytes"].as_f64().unwrap_or(0.0);
            // The C library and the helper hold some bytes too, and tcmalloc counts blocks in its
            // caches as the program's.
            (told / live - 1.0).abs() < 0.1
        };
        let found = truth.counters(is_close);
        let family = name.split('-').next().unwrap();
        let allocator = found["allocator"]["name"].as_str().unwrap();
        assert!(allocator.contains(family), "{name}: {found:#}");
        let process = &found["counters"]["process"];
        assert!(
            process["span_free_bytes"].as_u64().unwrap() > 1 << 20,
            "{process}"
        );
        // Neither allocator counts blocks or locks.
        for absent in ["live_blocks", "lock_acquisitions", "spans"] {
            assert_eq!(process[absent], Value::Null, "{name}: {absent}");
        }
        let page = truth.ask(&["stats"]);
        assert!(page.out.contains("tells of itself"), "{page:?}");
        assert!(!page.out.contains("Loam"), "{page:?}");

        let doctor = truth.json(&["doctor", "--json"]);
        let told = doctor["evidence"]["heap"]["live_bytes"].as_f64().unwrap();
        assert!((told / live - 1.0).abs() < 0.1, "{name}: {doctor:#}");
        // Four of five small blocks are free, in scattered places.
        assert_eq!(doctor["findings"][0]["kind"], "fragmentation", "{doctor:#}");

        let (_exporter, address) = export(&[]);
        let metrics = get(&address, "/metrics", "");
        let own = format!("pid=\"{}\"", truth.talker.pid());
        let has = |metric: &str| {
            let mut lines = metrics.lines().filter(|line| line.starts_with(metric));
            lines.any(|line| line.contains(&own))
        };
        assert!(has("loam_live_bytes{"), "{name}: {metrics}");
        assert!(!has("loam_live_blocks{"), "{name}: {metrics}");
        let top = truth.ask(&["top", "--batch", "--looks", "1"]);
        assert_eq!(top.code, Some(0), "{top:?}");
    }
}

#[test]
fn what_mimalloc_does_not_tell_is_absent_and_not_zero() {
    if !helper_is_here() {
        return;
    }
    let names = here(&["mimalloc"]);
    if names.is_empty() {
        return skip("peers: mimalloc is not installed");
    }
    for name in names {
        let truth = Truth::on(&name);
        let found = truth.counters(|process| process["committed_bytes"].as_u64() > Some(1 << 20));
        let process = &found["counters"]["process"];
        for absent in [
            "live_bytes",
            "cached_bytes",
            "span_free_bytes",
            "dirty_bytes",
        ] {
            assert_eq!(process[absent], Value::Null, "{name}: {absent}");
        }
        let doctor = truth.json(&["doctor", "--json"]);
        let error = doctor["evidence"]["heap_error"].as_str().unwrap();
        assert!(error.contains("only that it has committed"), "{error}");
        let unseen = doctor["ruled_out"].as_array().unwrap();
        let leak = unseen.iter().find(|out| out["kind"] == "fragmentation");
        assert_eq!(leak.unwrap()["was_looked_at"], false, "{doctor:#}");
    }
}

/// Their blocks and free pages can not be seen, whether a helper tells figures or not.
#[test]
fn an_allocator_that_tells_figures_is_not_taken_for_loam() {
    for allocator in here(&["jemalloc", "tcmalloc", "mimalloc"]) {
        if !helper_is_here() {
            return;
        }
        let truth = Truth::on(&allocator);
        truth.counters(|_| true);
        for (verb, refusal) in [
            (
                &["trim"] as &[&str],
                "whose free pages can not be told from outside",
            ),
            (
                &["trim", "--dry-run"],
                "whose free pages can not be told from outside",
            ),
            (&["pins"], "whose blocks can not be seen from outside"),
            (&["map"], "whose blocks can not be seen from outside"),
            (&["census"], "whose blocks can not be seen from outside"),
        ] {
            let ran = truth.ask(verb);
            let said = ran.err.replace('\n', " ");
            assert_eq!(ran.code, Some(2), "{verb:?} on {allocator}: {ran:?}");
            assert!(said.contains(refusal), "{verb:?} on {allocator}: {ran:?}");
            assert!(
                !format!("{}{said}", ran.out).contains("Loam"),
                "{verb:?}: {ran:?}"
            );
        }
    }
}

/// The C library takes static thread-local memory out of each thread's stack, the helper's too.
#[test]
fn the_helper_starts_in_a_program_with_large_static_tls() {
    let names = here(&["jemalloc", "tcmalloc", "mimalloc"]);
    if !helper_is_here() || names.is_empty() {
        return skip("peers: no allocator that tells figures");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("large_tls");
    let source = root().join("tests/company/large_tls.c");
    compile(&["-O1", "-pthread"], &source, &program);
    let mut command = loam();
    command.args(["run", "--allocator", &names[0], "--", "timeout", "20"]);
    // It ends when it has a second thread.
    let ran = Ran::of(command.arg(&program).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn who_tells_nothing_runs_all_the_same_and_it_is_said() {
    let names = here(&["tbbmalloc", "snmalloc", "rpmalloc"]);
    if names.is_empty() {
        return skip("peers: none of tbbmalloc, snmalloc and rpmalloc is installed");
    }
    for name in names {
        let run = ["run", "--allocator", &name, "--", "/bin/echo", "well"];
        let ran = Ran::of(loam().args(run).output().unwrap());
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "well\n"), "{ran:?}");
        assert!(ran.err.contains("tells no figures of its own"), "{ran:?}");
    }
    let ran = Ran::of(
        loam()
            .args(["run", "--allocator", "nosuch", "--", "true"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("unknown allocator"), "{ran:?}");
    let system = ["run", "--allocator", "system", "--", "/bin/echo", "well"];
    let ran = Ran::of(loam().args(system).output().unwrap());
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (Some(0), "well\n", "")
    );
}
