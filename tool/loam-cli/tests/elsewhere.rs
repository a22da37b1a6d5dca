//! Each verb that looks at a process, against one that is elsewhere: in a PID namespace, in a user
//! namespace, and with a root of its own, as a container has all three. `docs/trust.md` has the
//! table.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{compile, library, loam, recorder, root, skip, Ran, Talker};

/// A folder that is a whole system: a program, its loader and its C library.
fn system(program: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let shown = Command::new("ldd").arg(program).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let files = shown
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in files {
        let place = dir.path().join(&file[1..]);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
    fs::create_dir_all(dir.path().join("proc")).unwrap();
    fs::create_dir_all(dir.path().join("tmp")).unwrap();
    fs::copy(program, dir.path().join("patient")).unwrap();
    // As merged systems have it: files of libraries are named without it.
    if !dir.path().join("usr").exists() {
        symlink(".", dir.path().join("usr")).unwrap();
    }
    dir
}

/// Verbs, each with its words; PID is the patient's number.
const VERBS: [&[&str]; 8] = [
    &["doctor", "PID"],
    &["stats", "PID"],
    &["census", "PID"],
    &["pins", "PID"],
    &["map", "PID", "--output", "/dev/null"],
    &["check", "PID"],
    &["trim", "PID", "--dry-run"],
    &["trim", "PID"],
];

#[test]
fn every_verb_looks_at_a_process_of_another_namespace_and_another_root() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("truth");
    let source = root().join("tests/doctor/truth.c");
    compile(&["-O1", "-pthread"], &source, &program);
    let system = system(&program);
    let home = system.path().to_str().unwrap().to_owned();
    let inside = PathBuf::from("/patient");
    let places: [(&str, Vec<&str>, &Path); 4] = [
        ("a PID namespace", vec!["-fp", "--mount-proc"], &program),
        ("a user namespace", vec!["-Ur"], &program),
        ("another root", vec!["-f", "--root", &home], &inside),
        (
            "a container of all",
            vec!["-Urfpm", "--mount-proc", "--root", &home],
            &inside,
        ),
    ];
    for (name, options, program) in places {
        let apart = |words: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(&options).arg(program).args(words);
            command
                .env_remove("LD_PRELOAD")
                .env_remove("GLIBC_TUNABLES");
            command
        };
        let mut command = apart(&["0", "2", "50", "16"]);
        // This user may not make the place.
        let is_there = Command::new("unshare").args(&options).arg(program).output();
        if !is_there.is_ok_and(|ran| !String::from_utf8_lossy(&ran.stderr).contains("unshare:")) {
            skip(&format!("elsewhere: {name} can not be made here"));
            continue;
        }
        let mut patient = Talker::start(&mut command);
        let outer = patient.pid();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        let pid = match children.trim() {
            "" => outer,
            child => child.to_owned(),
        };
        for verb in VERBS {
            let is_trim = verb[0] == "trim";
            if is_trim && !cfg!(target_arch = "x86_64") {
                continue;
            }
            let mut words: Vec<&str> = verb.to_vec();
            words[1] = &pid;
            let mut command = loam();
            let ran = Ran::of(
                command
                    .current_dir(folder.path())
                    .args(words)
                    .output()
                    .unwrap(),
            );
            assert!(
                matches!(ran.code, Some(0 | 1)),
                "{verb:?} in {name}: {ran:?}"
            );
            // Its heap was found, and not only its mappings.
            let heap = ["doctor", "pins", "census"].contains(&verb[0]);
            assert!(
                !heap || ran.out.contains("glibc"),
                "{verb:?} in {name}: {ran:?}"
            );
        }
        // None of them hurt it.
        let held: u64 = patient.ask("live").parse().unwrap();
        assert!(held > 4 << 20, "{name}: {held}");
    }
}

/// A whole record needs a recorder and a folder that both see, and says so before it asks anything
/// of the process.
#[test]
fn a_record_of_a_process_of_another_namespace_is_refused_with_the_way() {
    let (Some(library), Some(_)) = (library(), recorder()) else {
        skip("elsewhere: the library is not built (make library)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("truth");
    let source = root().join("tests/doctor/truth.c");
    // Linked, because `unshare` would take a preload itself.
    let link = format!(
        "-Wl,--no-as-needed,-rpath,{}",
        library.parent().unwrap().display()
    );
    compile(
        &["-O1", "-pthread", &link, library.to_str().unwrap()],
        &source,
        &program,
    );
    let system = system(&program);
    let home = system.path().to_str().unwrap().to_owned();
    for (options, program, said) in [
        (
            vec!["-fp", "--mount-proc"],
            program.to_str().unwrap(),
            "in a namespace of its own",
        ),
        (vec!["-f", "--root", &home], "/patient", "does not see /"),
    ] {
        let mut command = Command::new("unshare");
        command
            .args(&options)
            .arg(program)
            .args(["0", "2", "50", "16"]);
        let is_there = Command::new("unshare").args(&options).arg(program).output();
        if !is_there.is_ok_and(|ran| !String::from_utf8_lossy(&ran.stderr).contains("unshare:")) {
            skip("elsewhere: no namespaces can be made here");
            continue;
        }
        let mut patient = Talker::start(command.env_remove("LD_PRELOAD"));
        let outer = patient.pid();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        let trace = folder.path().join("trace");
        let mut record = loam();
        record.args([
            "record",
            "--overwrite",
            "--pid",
            children.trim(),
            "--output",
        ]);
        let ran = Ran::of(record.arg(&trace).output().unwrap());
        assert!(
            ran.code == Some(2) && ran.err.contains(said) && ran.err.contains("docker exec"),
            "{options:?}: {ran:?}"
        );
        assert!(patient.ask("live").parse::<u64>().unwrap() > 0);
    }
}
