//! `loam run` with a stand-in for the heap: which programs it starts and refuses, and what it
//! passes on.

use crate::common;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::common::{compile, executable, Lab, Ran};

fn run(lab: &Lab, arguments: &[&str]) -> Ran {
    let library = lab.allocator("loam");
    let mut command = common::loam();
    command
        .arg("run")
        .arg("--library")
        .arg(library)
        .args(arguments);
    Ran::of(command.current_dir(lab.path("")).output().unwrap())
}

fn program(lab: &Lab, name: &str, code: &str, options: &[&str]) -> String {
    let source = lab.path(&format!("{name}.c"));
    fs::write(&source, code).unwrap();
    let product = lab.path(name);
    compile(options, &source, &product);
    product.display().to_string()
}

#[test]
fn the_program_runs_with_the_heap_in_it_and_its_exit_code_is_its_own() {
    let lab = Lab::new();
    let ran = run(
        &lab,
        &[
            "--",
            "sh",
            "-c",
            "grep -c libloam.so /proc/self/maps; exit 7",
        ],
    );
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert_ne!(ran.out.trim(), "0");
    assert_eq!(ran.err, "", "nothing is said when nothing is wrong");
}

fn script(lab: &Lab, name: &str, text: &str) -> String {
    let path = lab.path(name);
    executable(&path, text);
    path.display().to_string()
}

#[test]
fn a_script_with_the_line_ends_of_windows_is_told_as_that() {
    let lab = Lab::new();
    let path = script(&lab, "dos", "#!/bin/sh\r\necho hello\r\n");
    for arguments in [
        &["--", path.as_str()][..],
        &["--check", "--", &path],
        &["--force", "--", &path],
    ] {
        let ran = run(&lab, arguments);
        assert_eq!(ran.code, Some(127), "{ran:?}");
        assert!(
            ran.err.contains("carriage return") && !ran.err.contains('\r'),
            "{ran:?}"
        );
    }
    let path = script(&lab, "gone", "#!/no/such/shell -e\necho hello\n");
    let ran = run(&lab, &["--", &path]);
    assert_eq!(ran.code, Some(127), "{ran:?}");
    assert!(
        ran.err
            .contains("interpreter /no/such/shell does not exist"),
        "{ran:?}"
    );
    // The system finds the interpreter even if a blank follows its name.
    let path = script(&lab, "blank", "#! /bin/sh \t\nexit 3\n");
    assert_eq!(run(&lab, &["--", &path]).code, Some(3));
}

#[test]
fn a_program_whose_dynamic_linker_is_missing_is_told_as_that() {
    let lab = Lab::new();
    let path = program(
        &lab,
        "odd",
        "int main(void) { return 0; }",
        &["-Wl,--dynamic-linker=/no/such/ld.so"],
    );
    let ran = run(&lab, &["--", &path]);
    assert_eq!(ran.code, Some(127), "{ran:?}");
    assert!(
        ran.err
            .contains("dynamic linker /no/such/ld.so does not exist"),
        "{ran:?}"
    );
}

#[test]
fn a_library_whose_path_the_dynamic_linker_would_change_is_preloaded_by_a_link() {
    let lab = Lab::new();
    for name in ["$ORIGIN", "${LIB}", "a$b", "with blank", "a:b"] {
        let folder = lab.path(name);
        fs::create_dir(&folder).unwrap();
        let library = folder.join("libloam.so");
        fs::copy(lab.allocator("loam"), &library).unwrap();
        let mut command = common::loam();
        command.arg("run").arg("--library").arg(&library);
        command.args(["--", "grep", "-m1", "-F"]);
        command.arg(&library).arg("/proc/self/maps");
        let ran = Ran::of(command.env("TMPDIR", lab.path(".")).output().unwrap());
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
        assert_eq!(ran.err, "", "{name}");
    }
}

#[test]
fn signals_and_standard_input_are_the_programs_own() {
    use std::os::unix::process::ExitStatusExt;
    let lab = Lab::new();
    let library = lab.allocator("loam");
    let mut child = common::loam()
        .args(["run", "--library"])
        .arg(&library)
        .args(["--", "sh", "-c", "read word; echo got $word; kill -TERM $$"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
    assert_eq!(output.stdout, b"got hello\n");
}

#[test]
fn an_existing_preload_is_kept_behind_ours() {
    let lab = Lab::new();
    let ours = lab.allocator("loam");
    let other = lab.allocator("other");
    let mut command = common::loam();
    command
        .env("LD_PRELOAD", &other)
        .args(["run", "--library"])
        .arg(&ours);
    command.args(["--", "sh", "-c", "echo $LD_PRELOAD"]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(
        ran.out.trim(),
        format!("{}:{}", ours.display(), other.display())
    );
}

#[test]
fn what_can_not_be_started_has_the_shells_exit_codes() {
    let lab = Lab::new();
    fs::write(lab.path("text"), "x").unwrap();
    assert_eq!(run(&lab, &["--", "loam-no-such-command"]).code, Some(127));
    assert_eq!(run(&lab, &["--", "./no-such-file"]).code, Some(127));
    assert_eq!(run(&lab, &["--", "./text"]).code, Some(126));
    assert_eq!(run(&lab, &["--", "/"]).code, Some(126));
    assert_eq!(run(&lab, &["--"]).code, Some(2));
}

#[test]
fn programs_that_can_not_take_the_heap_are_refused_with_the_reason() {
    let lab = Lab::new();
    let main = "int main(void) { return 0; }";
    let own = "#include <stddef.h>\n\
               static char b[1 << 20]; static size_t n;\n\
               void *malloc(size_t s) \
               { n += (s + 15) & ~15ul; return b + n - ((s + 15) & ~15ul); }\n\
               void free(void *p) { (void)p; }\n\
               int main(void) { return 0; }";
    let fixed = program(&lab, "fixed", main, &["-static"]);
    let exporting = program(&lab, "exporting", own, &["-rdynamic", "-fno-builtin"]);
    for (path, said) in [
        (&fixed, "static executable"),
        (&exporting, "exports malloc"),
    ] {
        let ran = run(&lab, &["--", path]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.err.contains(said) && ran.err.contains("was not started"),
            "{}",
            ran.err
        );
        assert_eq!(run(&lab, &["--check", "--", path]).code, Some(1));
        let forced = run(&lab, &["--force", "--", path]);
        assert_eq!(forced.code, Some(0), "{forced:?}");
        assert!(forced.err.contains("warning"), "{}", forced.err);
    }
}

#[test]
fn a_program_with_a_sanitizer_is_refused_as_check_judges_it() {
    let lab = Lab::new();
    for (symbol, sanitizer) in [
        ("__asan_init", "AddressSanitizer"),
        ("__hwasan_init", "HWAddressSanitizer"),
        ("__msan_init", "MemorySanitizer"),
        ("__tsan_init", "ThreadSanitizer"),
        ("__lsan_init", "LeakSanitizer"),
    ] {
        let code = format!("void {symbol}(void) {{}}\nint main(void) {{ return 0; }}");
        let path = program(&lab, symbol, &code, &[]);
        let ran = run(&lab, &["--", &path]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let said = format!("was built with {sanitizer}");
        assert!(ran.err.contains(&said), "{}", ran.err);
        let library = lab.allocator("loam").display().to_string();
        let checked = common::loam_in(&lab.path(""), &["check", "--library", &library, &path]);
        assert!(checked.out.contains(&said), "{checked:?}");
    }
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let lab = Lab::new();
    let fixed = program(&lab, "fixed", "int main(void) { return 0; }", &["-static"]);
    let script = lab.path("script");
    executable(&script, &format!("#!{fixed}\n"));
    let ran = run(&lab, &["--", "./script"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("fixed is a static executable"),
        "{}",
        ran.err
    );
    executable(&script, "#!/usr/bin/env sh\necho fine\n");
    let ran = run(&lab, &["--", "./script"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "fine\n"), "{ran:?}");
}

#[test]
fn programs_that_may_take_the_heap_in_part_are_started_with_a_warning() {
    let lab = Lab::new();
    let code = "int je_malloc(void) { return 1; }\nint main(void) { return je_malloc() - 1; }";
    let path = program(&lab, "inside", code, &[]);
    let ran = run(&lab, &["--", &path]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.err.contains("warning") && ran.err.contains("jemalloc compiled in"),
        "{}",
        ran.err
    );
}

#[test]
fn a_heap_that_is_none_is_an_error() {
    let lab = Lab::new();
    fs::write(lab.path("text.so"), "not a library").unwrap();
    for (library, said) in [
        ("./no.so", "can not be read"),
        ("./text.so", "not an ELF file"),
    ] {
        let mut command = common::loam();
        command
            .current_dir(lab.path(""))
            .args(["run", "--library", library, "--", "true"]);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(said), "{said} in {}", ran.err);
    }
}

#[test]
fn another_user_starting_a_set_user_id_program_is_refused() {
    // Only a user with the right to give files away can run this test.
    let lab = Lab::new();
    let path = program(&lab, "raised", "int main(void) { return 0; }", &[]);
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        common::skip("only root may give files away");
        return;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    let ran = run(&lab, &["--", &path]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("set-user-ID"), "{}", ran.err);
}
