//! `loam trim` on services with a report (examples/keeper/service.c): once, and as a keeper.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{
    compile, get, library, loam, root, signal, skip, until, Limited, Ran, Running, Talker,
};

/// Bytes of a report, in MiB, and what a trim gives back of it at least.
const REPORT: &str = "report 60";
const LEAST: u64 = 40 << 20;

fn program(folder: &Path) -> PathBuf {
    let product = folder.join("service");
    compile(
        &["-O1", "-pthread"],
        &root().join("examples/keeper/service.c"),
        &product,
    );
    product
}

fn service(command: &mut Command) -> Talker {
    Talker::start(command.env_remove("LD_PRELOAD"))
}

fn fat(program: &Path) -> Talker {
    let mut service = service(&mut Command::new(program));
    service.ask(REPORT);
    service
}

fn trim(arguments: &[&str]) -> Ran {
    Ran::of(loam().arg("trim").args(arguments).output().unwrap())
}

/// A keeper that offers metrics, and their address.
fn keeper(arguments: &[&str]) -> (Running, String) {
    let mut child = loam()
        .arg("trim")
        .args(arguments)
        .args(["--every", "0.1", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("loam: http://");
    let address = address.unwrap_or_else(|| panic!("{line}"));
    let address = address.trim_end_matches("/metrics").to_owned();
    // What it says meanwhile is not kept back.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    (Running(child), address)
}

/// The sum of a family's series.
fn metric(address: &str, name: &str) -> f64 {
    let page = get(address, "/metrics", "text/plain");
    let series = page.lines().filter(|line| line.starts_with(name));
    series
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

#[test]
fn a_service_is_thin_after_two_commands_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = fat(&program(folder.path()));
    let pid = service.pid();
    let said = trim(&[&pid, "--dry-run"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("A trim would give back "), "{said:?}");
    let before: u64 = service.ask("resident").parse().unwrap();
    let said = trim(&[&pid]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("stops one thread for"), "{said:?}");
    assert!(said.out.contains("longest stop"), "{said:?}");
    let after: u64 = service.ask("resident").parse().unwrap();
    assert!(after + LEAST < before, "{before} then {after}");
    assert_eq!(service.ask("check"), "whole");
    // There is not as much left as is asked for.
    let said = trim(&[&pid, "--above", "40M", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("could go back"), "{said:?}");
    let said = trim(&["--all", "--above", "1000G", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("\"processes\": []"), "{said:?}");
}

#[test]
fn a_keeper_keeps_named_services_thin_until_a_signal_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let mut services: Vec<Talker> = (0..3).map(|_| fat(&program)).collect();
    let pids: Vec<String> = services.iter().map(Talker::pid).collect();
    let mut arguments: Vec<&str> = pids.iter().map(String::as_str).collect();
    arguments.extend(["--above", "20M"]);
    let (mut keeper, address) = keeper(&arguments);
    until("each service is trimmed", || {
        metric(&address, "loam_trim_trims_total") >= 3.0
    });
    assert!(metric(&address, "loam_trim_given_back_bytes_total") > 3.0 * LEAST as f64);
    assert_eq!(metric(&address, "loam_trim_watched_processes"), 3.0);
    // What comes back at once is left alone from then on.
    services[0].ask(REPORT);
    until("one rests", || {
        metric(&address, "loam_trim_resting_processes") == 1.0
    });
    let rounds = metric(&address, "loam_trim_rounds_total");
    until("more rounds", || {
        metric(&address, "loam_trim_rounds_total") > rounds + 3.0
    });
    assert_eq!(metric(&address, "loam_trim_trims_total"), 3.0);
    for service in &mut services {
        assert_eq!(service.ask("check"), "whole");
    }
    assert!(signal("TERM", keeper.0.id()));
    assert_eq!(keeper.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_keeper_of_a_group_waits_for_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let Some(group) = Limited::new("loam-trim") else {
        return skip("trim: no control group with a limit of memory can be made here");
    };
    let mut outside = fat(&program);
    let inside = format!(
        "echo $$ > {}/cgroup.procs && exec \"$0\"",
        group.0.display()
    );
    let mut inside = service(Command::new("sh").args(["-c", &inside]).arg(&program));
    inside.ask(REPORT);
    group.limit(group.used() * 4);
    let path = group.0.display().to_string();
    let (_keeper, address) = keeper(&[
        "--all",
        "--cgroup",
        &path,
        "--when-limit",
        "0.5",
        "--above",
        "20M",
    ]);
    until("some rounds", || {
        metric(&address, "loam_trim_rounds_total") > 3.0
    });
    assert_eq!(
        metric(&address, "loam_trim_trims_total"),
        0.0,
        "the limit is far"
    );
    group.limit(group.used() + (8 << 20));
    until("it is trimmed", || {
        metric(&address, "loam_trim_trims_total") == 1.0
    });
    assert_eq!(inside.ask("check"), "whole");
    let resident: u64 = outside.ask("resident").parse().unwrap();
    assert!(
        resident > LEAST,
        "what is outside of the group stays as it is"
    );
}

#[test]
fn a_keeper_ends_when_its_processes_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let service = fat(&program(folder.path()));
    let mut keeper = Running(
        loam()
            .args(["trim", &service.pid(), "--every", "0.1"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    drop(service);
    assert_eq!(keeper.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_process_on_loam_is_trimmed_by_its_own_heap() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let Some(heap) = library() else {
        return skip("the library is not built (`make library`)");
    };
    let mut busy = Talker::start(Command::new(&program).arg("busy").env("LD_PRELOAD", &heap));
    busy.ask(REPORT);
    for _ in 0..3 {
        let said = trim(&[&busy.pid()]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains("no thread was stopped"), "{said:?}");
    }
    let said = trim(&[&busy.pid(), "--dry-run"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(busy.ask("check"), "whole");

    let mut silent = Talker::start(Command::new(&program).env("LD_PRELOAD", &heap));
    let said = trim(&[&silent.pid()]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("has not called its heap"), "{said:?}");
    assert!(
        said.err
            .contains("stays until the process calls its heap again"),
        "{said:?}"
    );
    let said = trim(&[&silent.pid(), "--dry-run"]);
    assert!(
        said.out
            .contains("which is Loam and trims at the process's next slow call"),
        "{said:?}"
    );
    assert_eq!(silent.ask("check"), "whole");
}

/// Each traces one thread at a time, so that the other may find no tracer a moment later.
#[test]
fn of_two_trims_at_once_neither_is_told_that_it_lacks_a_right() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = fat(&program(folder.path()));
    for _ in 0..10 {
        let both = [(); 2].map(|()| {
            let mut command = loam();
            command.args(["trim", &service.pid()]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        });
        for one in both {
            let ran = Ran::of(one.wait_with_output().unwrap());
            let is_told = ran.err.contains("traces it already") || ran.err.contains("traced it at");
            assert!(ran.code == Some(0) || is_told, "{ran:?}");
        }
        service.ask(REPORT);
    }
    assert_eq!(service.ask("check"), "whole");
}

#[test]
fn without_the_right_to_trace_nothing_is_stopped_and_the_remedy_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = fat(&program(folder.path()));
    if !std::fs::metadata(format!("/proc/{}", service.pid())).is_ok_and(|one| owner(&one) == 0) {
        return skip("trim: this needs root");
    }
    let pid = service.pid();
    // Another user, and root in a container without the capability.
    let mut other = loam();
    other.args(["trim", &pid]).uid(65534).gid(65534);
    let without = [
        "--bounding-set=-sys_ptrace",
        "--inh-caps=-sys_ptrace",
        "env",
    ];
    // Root may trace root without the capability, but not a process of another user.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let mut stranger = Command::new(program(folder.path()));
    stranger.uid(65533).gid(65533);
    let mut stranger = self::service(&mut stranger);
    stranger.ask(REPORT);
    let mut bare_of_stranger = Command::new("setpriv");
    bare_of_stranger
        .args(without)
        .arg(env!("CARGO_BIN_EXE_loam"));
    bare_of_stranger
        .args(["trim", &stranger.pid()])
        .env_remove("LD_PRELOAD");
    for (mut command, remedy) in [(other, "root"), (bare_of_stranger, "SYS_PTRACE")] {
        let said = Ran::of(command.output().unwrap());
        assert_eq!(said.code, Some(2), "{command:?}: {said:?}");
        assert!(said.err.contains(remedy), "{command:?}: {said:?}");
    }
    for service in [&mut service, &mut stranger] {
        assert_eq!(service.ask("check"), "whole");
        assert!(service.ask("resident").parse::<u64>().unwrap() > LEAST);
    }
}

fn owner(metadata: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(metadata)
}
