//! `loam check` on a program that is made for each case, with a stand-in for the heap.
//!
//! The stand-in passes every call on to the C library. It has the heap's symbol, so that it is
//! recognised as the heap.

use crate::common;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{compile, Lab, Ran};
use serde_json::Value;

const HEAP: &str = r#"
#include <errno.h>
#include <stddef.h>
void *__libc_malloc(size_t); void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t); void __libc_free(void *);
void *__libc_memalign(size_t, size_t);
int loam_counters = 1;
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void *reallocarray(void *p, size_t n, size_t m) { return __libc_realloc(p, n * m); }
void free(void *p) { __libc_free(p); }
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
  *p = __libc_memalign(a, n);
  return *p ? 0 : ENOMEM;
}
"#;

/// A program that uses the family, prints `ready` and waits for the end of its input.
const MAIN: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <malloc.h>
int main(int count, char **words) {
  void *volatile p = malloc(10);
  free(p);
  p = memalign(64, 10);
  free(p);
  for (int i = 1; i < count; ++i) {
    const char *how = words[i];
    if (how[0] == 'D') p = dlopen(how + 1, RTLD_NOW | RTLD_DEEPBIND);
    else if (how[0] == 'M') p = dlmopen(LM_ID_NEWLM, how + 1, RTLD_NOW);
    else p = dlopen(how, RTLD_NOW);
    if (!p) { puts(dlerror()); return 3; }
  }
  puts("ready");
  fflush(stdout);
  while (getchar() >= 0) {}
  return 0;
}
"#;

const PLUGIN: &str = "#include <stdlib.h>\nvoid *use(void) { return malloc(3); }\n\
                      void give(void *p) { free(p); }\n";

const OWN: &str = r#"
#include <stddef.h>
static char bytes[1 << 20];
static size_t used;
VISIBLE void *malloc(size_t n) {
  used += (n + 15) & ~15ul;
  return bytes + used - ((n + 15) & ~15ul);
}
VISIBLE void free(void *p) { (void)p; }
void *use(void) { return malloc(3); }
"#;

/// A folder with a heap, in which programs are made.
struct Bench {
    lab: Lab,
    heap: String,
}

impl Bench {
    fn new() -> Bench {
        let lab = Lab::new();
        let bench = Bench {
            heap: lab.path("libloam.so").display().to_string(),
            lab,
        };
        bench.make("libloam.so", HEAP, &["-shared", "-fPIC", "-fno-builtin"]);
        bench
    }

    fn path(&self, name: &str) -> String {
        self.lab.path(name).display().to_string()
    }

    /// Compiles a program or library. Returns its path.
    fn make(&self, name: &str, code: &str, options: &[&str]) -> String {
        let source = self.lab.path(&format!("{name}.c"));
        fs::write(&source, code).unwrap();
        // Libraries come after the source, so that the source's symbols are found in them.
        let before: Vec<&str> = options.iter().copied().filter(|o| !is_library(o)).collect();
        let libraries: Vec<&str> = options.iter().copied().filter(|o| is_library(o)).collect();
        let status = Command::new("cc")
            .args(&before)
            .arg(&source)
            .args(&libraries)
            .arg("-o")
            .arg(self.lab.path(name))
            .status()
            .unwrap();
        assert!(status.success(), "cc failed on {name}");
        self.path(name)
    }

    fn library(&self, name: &str, code: &str, options: &[&str]) -> String {
        let all = [&["-shared", "-fPIC", "-fno-builtin"], options].concat();
        self.make(name, code, &all)
    }

    /// `loam check --json PROGRAM`, on the heap.
    fn check(&self, program: &str) -> Checked {
        self.checked(&["--library", &self.heap, program], &[])
    }

    fn checked(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Checked {
        let mut command = common::loam();
        command.arg("check").arg("--json").args(arguments);
        let output = command.envs(environment.iter().copied()).output().unwrap();
        let ran = Ran::of(output);
        let json = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        Checked { json, ran }
    }

    /// Starts the program with that `LD_PRELOAD`, and checks the process.
    fn check_running(&self, program: &str, preload: &str, arguments: &[&str]) -> Checked {
        let running = Running::start(
            Command::new(program)
                .args(arguments)
                .env("LD_PRELOAD", preload),
        );
        self.checked(&[&running.pid()], &[])
    }
}

fn is_library(option: &str) -> bool {
    option.starts_with("-l") || option.ends_with(".so") || option.ends_with(".o")
}

/// The output of `loam check --json`.
struct Checked {
    json: Value,
    ran: Ran,
}

impl Checked {
    fn codes(&self) -> Vec<(&str, &str)> {
        let findings = self.json["findings"].as_array().unwrap();
        let word = |finding: &'static str, value: &Value| value[finding].as_str().map(str::len);
        assert!(
            findings.iter().all(|f| word("remedy", f) > Some(10)),
            "each has a remedy"
        );
        findings
            .iter()
            .map(|f| (f["code"].as_str().unwrap(), f["severity"].as_str().unwrap()))
            .collect()
    }

    fn is(&self, verdict: &str, code: i32, findings: &[(&str, &str)]) -> &Checked {
        assert_eq!(self.codes(), findings, "{:#}", self.json);
        assert_eq!(self.json["verdict"], verdict, "{:#}", self.json);
        assert_eq!(self.ran.code, Some(code));
        self
    }

    fn says(&self, words: &str) -> &Checked {
        let whole = self.json["findings"].to_string();
        assert!(whole.contains(words), "{words} in {whole}");
        self
    }

    /// The provider of the `function` that the module of that name uses.
    fn provider(&self, module: &str, function: &str) -> (String, String) {
        let name = |value: &Value| {
            let path = Path::new(value.as_str().unwrap_or_default());
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let bindings = self.json["bindings"].as_array().unwrap();
        let found = bindings
            .iter()
            .find(|b| name(&b["module"]) == module && b["function"] == function)
            .unwrap_or_else(|| panic!("{module} has no {function}: {:#}", self.json));
        (
            name(&found["provider"]),
            found["known_by"].as_str().unwrap().to_owned(),
        )
    }
}

/// A child that prints `ready`, and that ends with its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_ordinary_program_takes_the_heap_in_every_module() {
    let bench = Bench::new();
    let program = bench.make("plain", MAIN, &["-Wl,-z,now"]);
    let checked = bench.check(&program);
    checked.is("taken", 0, &[("opens-namespaces", "note")]);
    let expected = ("libloam.so".to_owned(), "search-order".to_owned());
    for (module, function) in [
        ("plain", "malloc"),
        ("plain", "memalign"),
        ("libc.so.6", "free"),
    ] {
        assert_eq!(checked.provider(module, function), expected);
    }
    let checked = bench.check_running(&program, &bench.heap, &[]);
    checked.is("taken", 0, &[]);
    let expected = ("libloam.so".to_owned(), "memory".to_owned());
    assert_eq!(checked.provider("plain", "malloc"), expected);
    assert_eq!(checked.json["modules"][1]["origin"], "preloaded");
}

#[test]
fn what_is_bound_at_the_first_call_is_known_by_the_search_order() {
    let bench = Bench::new();
    let program = bench.make("lazy", MAIN, &["-Wl,-z,lazy", "-no-pie"]);
    let code = MAIN.replace(
        "for (int i",
        "if (count < 0) p = realloc(p, 9);\n  for (int i",
    );
    assert!(code.len() > MAIN.len());
    let program_2 = bench.make("lazy2", &code, &["-Wl,-z,lazy", "-no-pie"]);
    bench
        .check_running(&program, &bench.heap, &[])
        .is("taken", 0, &[]);
    let checked = bench.check_running(&program_2, &bench.heap, &[]);
    checked.is("taken", 0, &[]);
    assert_eq!(checked.provider("lazy2", "malloc").1, "memory");
    assert_eq!(
        checked.provider("lazy2", "realloc"),
        ("libloam.so".into(), "search-order".into())
    );
}

#[test]
fn a_process_without_the_heap_is_told_whose_malloc_it_uses() {
    let bench = Bench::new();
    let program = bench.make("plain", MAIN, &[]);
    let checked = bench.check_running(&program, "", &[]);
    checked
        .is("not", 1, &[("not-loaded", "fails")])
        .says("libc.so.6")
        .says("loam run");
}

/// A file that begins as one for Windows would be taken for a script of the shell's, and a process
/// of Wine's for one of its loader.
#[test]
fn a_program_for_windows_is_told() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let program = dir.join("server.exe");
    common::executable(&program, "MZ\u{90}\0\u{3}\0");
    for verb in ["check", "run", "record"] {
        let ran = common::loam_in(dir, &[verb, "./server.exe"]);
        assert_ne!(ran.code, Some(0), "{verb}: {ran:?}");
        assert!(ran.err.contains("a program for Windows"), "{verb}: {ran:?}");
    }
    // As Wine does: its own library, and the program's file.
    std::fs::copy("/bin/true", dir.join("ntdll.so")).unwrap();
    let script = "import mmap, sys, time\n\
                  files = [open(name, 'rb') for name in sys.argv[1:]]\n\
                  maps = [mmap.mmap(one.fileno(), 0, prot=mmap.PROT_READ) for one in files]\n\
                  print('ready', flush=True)\n\
                  sys.stdin.read()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script, "ntdll.so", "server.exe"]);
    let wine = common::Talker::start(command.current_dir(dir));
    let pid = wine.pid();
    let ran = common::loam_in(dir, &["check", &pid]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err
            .contains("server.exe, a program for Windows, in Wine"),
        "{ran:?}"
    );
}

#[test]
fn a_static_program_takes_the_heap_only_from_inside() {
    let bench = Bench::new();
    let code =
        "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); return getchar(); }";
    let fixed = bench.make("fixed", code, &["-static"]);
    bench
        .check(&fixed)
        .is("not", 1, &[("static-executable", "fails")])
        .says("libloam.a");
    bench
        .check_running(&fixed, &bench.heap, &[])
        .is("not", 1, &[("static-executable", "fails")]);
    let inside = "int loam_counters = 1;\n".to_owned() + code;
    let inside = bench.make("inside", &inside, &["-static"]);
    bench.checked(&[&inside], &[]).is("taken", 0, &[]);
    bench.check_running(&inside, "", &[]).is("taken", 0, &[]);
}

#[test]
fn a_program_that_is_linked_with_the_heap_needs_no_preload() {
    let bench = Bench::new();
    let program = bench.make("linked", MAIN, &[bench.heap.as_str()]);
    let checked = bench.checked(&[&program], &[]);
    checked.is("taken", 0, &[("opens-namespaces", "note")]);
    assert_eq!(checked.json["modules"][1]["origin"], "linked");
    assert_eq!(checked.json["preloads"].as_array().unwrap().len(), 0);
}

#[test]
fn two_copies_of_the_heap_are_one_too_many() {
    let bench = Bench::new();
    let object = bench.make("heap.o", HEAP, &["-c", "-fno-builtin"]);
    let program = bench.make("both", PLUGIN_MAIN, &["-rdynamic", &object]);
    bench
        .check(&program)
        .is("partly", 1, &[("two-heaps", "unsafe")]);
}

const PLUGIN_MAIN: &str =
    "#include <stdlib.h>\nint main(void) { void *p = malloc(1); free(p); return !p; }\n";

#[test]
fn another_allocator_that_is_searched_first_keeps_the_heap_out() {
    let bench = Bench::new();
    let own = OWN.replace("VISIBLE", "") + "int main(void) { return !use(); }";
    let program = bench.make("own", &own, &["-rdynamic", "-fno-builtin"]);
    let checked = bench.check(&program);
    // It provides only malloc and free, so the C library's calloc belongs to another allocator too.
    checked.is(
        "not",
        1,
        &[("searched-first", "fails"), ("partial-override", "unsafe")],
    );
    checked.says("exports malloc");
    assert_eq!(checked.provider("libc.so.6", "malloc").0, "own");
}

#[test]
fn half_an_override_in_front_of_the_heap_is_unsafe() {
    let bench = Bench::new();
    let half = HEAP.replace("int loam_counters = 1;", "");
    let cut = half.find("void *memalign").unwrap();
    let half = bench.library("libhalf.so", &half[..cut], &[]);
    let program = bench.make("plain", MAIN, &["-Wl,-z,now"]);
    let preload = format!("{half}:{}", bench.heap);
    let checked = bench.check_running(&program, &preload, &[]);
    checked.is(
        "not",
        1,
        &[("searched-first", "fails"), ("partial-override", "unsafe")],
    );
    checked.says("memalign from libloam.so");
    assert_eq!(checked.provider("plain", "memalign").0, "libloam.so");
    assert_eq!(checked.provider("plain", "malloc").0, "libhalf.so");
}

/// A heap that has every form and, unlike the stand-in that passes calls on, the C library's names.
/// As in the heap since it has them, its forms end in the program's own.
fn heap_with_operators(bench: &Bench, name: &str, more: &str) -> String {
    let operators = "void *_Znwm(unsigned long n) { return malloc(n); } void _ZdlPv(void *p) \
                     { free(p); }\n\
                     void *_Znam(unsigned long n) { return malloc(n); } void _ZdaPv(void *p) \
                     { free(p); }\n\
                     void *_ZnwmRKSt9nothrow_t(unsigned long n, void *t) { return malloc(n); }\n\
                     void _ZdlPvm(void *p, unsigned long n) { free(p); } void _ZdaPvm(void *p, \
                     unsigned long n) { free(p); }\n";
    let code = format!(
        "#include <stdlib.h>\nint loam_counters = 1;\n{FAMILY_OF_ITS_OWN}{operators}{more}"
    );
    bench.library(name, &code, &["-w"])
}

const FAMILY_OF_ITS_OWN: &str = "void *malloc(size_t n) { return 0; } void free(void *p) {} void \
     *calloc(size_t n, size_t m) { return 0; }\n\
     void *realloc(void *p, size_t n) { return 0; } void *memalign(size_t a, size_t n) \
     { return 0; }\n\
     void *aligned_alloc(size_t a, size_t n) { return 0; } int posix_memalign(void **p, size_t a, \
     size_t n) { return 12; }\n\
     void *reallocarray(void *p, size_t n, size_t m) { return 0; }\n";

#[test]
fn operators_replaced_in_part_are_unsafe_only_where_the_other_forms_end_elsewhere() {
    // gperftools#1569: new and delete are the program's, but the sized delete that its code calls
    // is not.
    let bench = Bench::new();
    let old = heap_with_operators(&bench, "libold.so", "");
    let new = heap_with_operators(
        &bench,
        "libnew.so",
        "void *__libc_malloc(size_t n) { return malloc(n); }",
    );
    let partial = "#include <stdlib.h>\n\
                   void *_Znwm(unsigned long n) { return (char *)malloc(n + 32) + 32; }\n\
                   DELETE\n\
                   void _ZdlPvm(void *, unsigned long);\n\
                   void *_ZnwmRKSt9nothrow_t(unsigned long, void *);\n\
                   int main(void) \
                   { _ZdlPvm(_Znwm(8), 8); _ZdlPvm(_ZnwmRKSt9nothrow_t(8, 0), 8); return 0; }\n";
    let pair = partial.replace("DELETE", "void _ZdlPv(void *p) { free((char *)p - 32); }");
    let options = [
        "-rdynamic",
        "-fno-builtin",
        "-Wl,--unresolved-symbols=ignore-all",
    ];
    let program = bench.make("pair", &pair, &options);
    let check = |heap: &str, program: &str| bench.checked(&["--library", heap, program], &[]);
    let torn = check(&old, &program);
    torn.is("partly", 1, &[("torn-operators", "unsafe")]);
    torn.says("one in the heap");
    check(&new, &program).is("taken", 0, &[("own-operators", "note")]);
    // If the program has no delete of its own, nothing shows whether its blocks have a header.
    let alone = bench.make("alone", &partial.replace("DELETE", ""), &options);
    check(&new, &alone).is("taken", 0, &[("own-operators", "note")]);
    // In this library, its own pair stays inside, but the sized delete does not.
    let library = pair.replace("int main(void)", "int use(void)");
    let inside = bench.library("libinside.so", &library, &["-Wl,-Bsymbolic"]);
    let user = bench.make(
        "user",
        "int use(void);\nint main(void) { return use(); }",
        &[&inside, options[2]],
    );
    check(&new, &user).is("partly", 1, &[("torn-operators", "unsafe")]);
}

#[test]
fn a_library_with_an_allocator_stands_idle_or_keeps_its_own_calls() {
    let bench = Bench::new();
    /// Name, visibility, options of the linker, severity, exit code, and the message.
    type Case = (
        &'static str,
        &'static str,
        &'static [&'static str],
        &'static str,
        i32,
        &'static str,
    );
    let cases: [Case; 3] = [
        ("idle", "", &[], "note", 0, "stands idle"),
        (
            "symbolic",
            "",
            &["-Wl,-Bsymbolic"],
            "partial",
            1,
            "-Bsymbolic",
        ),
        (
            "protected",
            "__attribute__((visibility(\"protected\")))",
            &[],
            "partial",
            1,
            "protected",
        ),
    ];
    for (name, visible, options, severity, code, said) in cases {
        let own = OWN.replace("VISIBLE", visible);
        let library = bench.library(&format!("lib{name}.so"), &own, options);
        let main = "void *use(void);\nint main(void) { return !use(); }";
        let program = bench.make(name, main, &[&library]);
        let verdict = if code == 0 { "taken" } else { "partly" };
        bench
            .check(&program)
            .is(verdict, code, &[("second-allocator", severity)])
            .says(said);
    }
}

#[test]
fn an_allocator_that_is_compiled_in_is_found_by_its_names() {
    let bench = Bench::new();
    for (name, said) in [
        ("je_malloc", "jemalloc"),
        ("_rjem_malloc", "jemalloc"),
        ("mi_malloc", "mimalloc"),
    ] {
        let code =
            format!("int {name}(void) {{ return 1; }}\nint main(void) {{ return {name}() - 1; }}");
        let program = bench.make(name, &code, &[]);
        bench
            .check(&program)
            .is("partly", 1, &[("second-allocator", "partial")])
            .says(said);
    }
    let hidden = OWN.replace("VISIBLE", "static") + "int main(void) { return !use(); }";
    let program = bench.make("hidden", &hidden, &["-fno-builtin"]);
    bench
        .check(&program)
        .is("partly", 1, &[("second-allocator", "partial")]);
}

#[test]
fn calls_of_another_allocators_own_functions_are_unsafe() {
    let bench = Bench::new();
    let library = bench.library(
        "libother.so",
        "void *mallocx(long n, int f) { return 0; }",
        &[],
    );
    let main = "void *mallocx(long, int);\nint main(void) { return mallocx(1, 0) != 0; }";
    let program = bench.make("caller", main, &[&library]);
    bench
        .check(&program)
        .is("partly", 1, &[("own-interface", "unsafe")])
        .says("mallocx of jemalloc");
}

#[test]
fn a_plugin_that_searches_its_own_libraries_first_is_found_in_the_process() {
    let bench = Bench::new();
    let plugin = bench.library("libplugin.so", PLUGIN, &[]);
    let program = bench.make("opener", MAIN, &[]);
    let checked = bench.check_running(&program, &bench.heap, &[&plugin]);
    checked.is("taken", 0, &[]);
    assert_eq!(checked.provider("libplugin.so", "malloc").0, "libloam.so");
    let checked = bench.check_running(&program, &bench.heap, &[&format!("D{plugin}")]);
    checked
        .is("partly", 1, &[("bound-elsewhere", "unsafe")])
        .says("RTLD_DEEPBIND");
    assert_eq!(
        checked.provider("libplugin.so", "malloc"),
        ("libc.so.6".into(), "memory".into())
    );
    let checked = bench.check_running(&program, &bench.heap, &[&format!("M{plugin}")]);
    checked
        .is("partly", 1, &[("other-namespace", "partial")])
        .says("dlmopen");
    let modules = checked.json["modules"].as_array().unwrap();
    assert!(modules.iter().any(|module| module["namespace"] == 1));
}

#[test]
fn a_preload_that_does_not_come_in_is_told_with_the_reason() {
    let bench = Bench::new();
    let program = bench.make("plain", MAIN, &[]);
    let foreign = bench.path("foreign.so");
    let mut bytes = fs::read(&bench.heap).unwrap();
    bytes[18] = 22; // e_machine: S/390
    bytes[19] = 0;
    fs::write(&foreign, bytes).unwrap();
    let text = bench.path("text.so");
    fs::write(&text, "no library").unwrap();
    let absent = bench.path("absent.so");
    for (library, said) in [
        (foreign.as_str(), "is for s390"),
        (text.as_str(), "is no library"),
        (absent.as_str(), "could not be opened"),
        ("libno-such-heap.so", "full path"),
    ] {
        let checked = bench.check_running(&program, library, &[]);
        checked
            .is("not", 1, &[("preload-failed", "fails")])
            .says(said);
    }
    let checked = bench.checked(&["--library", &foreign, &program], &[]);
    checked
        .is(
            "not",
            1,
            &[("preload-failed", "fails"), ("opens-namespaces", "note")],
        )
        .says("is for s390");
    // If a preload of another library fails, that is only a note.
    let both = format!("{}:{absent}", bench.heap);
    bench
        .check_running(&program, &both, &[])
        .is("taken", 0, &[("preload-failed", "note")]);
}

#[test]
fn a_heap_for_one_c_library_does_not_suit_a_program_of_another() {
    let bench = Bench::new();
    // The program is never started, so its loader need not exist.
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    let program = bench.make("muslish", PLUGIN_MAIN, &[musl]);
    let checked = bench.check(&program);
    assert!(checked.codes().contains(&("preload-failed", "fails")));
    checked.says("with musl");
}

#[test]
fn sanitizers_go_and_missing_libraries_are_named() {
    let bench = Bench::new();
    let asan = "void __asan_init(void) {}\nint main(void) { return 0; }";
    let program = bench.make("asan", asan, &[]);
    bench
        .check(&program)
        .is("not", 1, &[("sanitizer", "fails")])
        .says("AddressSanitizer");
    let go =
        "__attribute__((section(\".go.buildinfo\"))) int go = 1;\nint main(void) { return 0; }";
    let program = bench.make("gopher", go, &[]);
    bench
        .check(&program)
        .is("partly", 1, &[("go-runtime", "partial")]);
    let library = bench.library("libgone.so", "void *use(void) { return 0; }", &[]);
    let main = "void *use(void);\nint main(void) { return use() != 0; }";
    let program = bench.make("needy", main, &[&library]);
    fs::remove_file(&library).unwrap();
    bench
        .check(&program)
        .is("not", 1, &[("missing-library", "fails")])
        .says("libgone.so");
}

#[test]
fn libraries_are_found_where_the_program_says_and_scripts_are_looked_through() {
    let bench = Bench::new();
    fs::create_dir(bench.path("lib")).unwrap();
    let library = bench.library("lib/libmine.so", PLUGIN, &["-Wl,-soname,libmine.so"]);
    let main = "void *use(void);\nint main(void) { return !use(); }";
    for tags in ["-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"] {
        let program = bench.make("finder", main, &["-Wl,-rpath,$ORIGIN/lib", tags, &library]);
        let checked = bench.check(&program);
        checked.is("taken", 0, &[]);
        assert_eq!(checked.provider("libmine.so", "malloc").0, "libloam.so");
        let script = bench.path("script");
        fs::write(&script, format!("#!{program}\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let checked = bench.check(&script);
        assert_eq!(checked.json["program"], program);
    }
    let program = bench.make("lost", main, &[&library]);
    bench
        .check(&program)
        .is("not", 1, &[("missing-library", "fails")]);
    let folder = bench.path("lib");
    let arguments = ["--library", &bench.heap, &program];
    bench
        .checked(&arguments, &[("LD_LIBRARY_PATH", &folder)])
        .is("taken", 0, &[]);
}

#[test]
fn raised_privileges_keep_the_preload_out() {
    let bench = Bench::new();
    let raised = bench.make("raised", MAIN, &[]);
    let nobody = 65534;
    if std::os::unix::fs::chown(&raised, Some(nobody), None).is_err() {
        common::skip("only root may give files away");
        return;
    }
    fs::set_permissions(&raised, fs::Permissions::from_mode(0o4755)).unwrap();
    let expected = [("raised-privileges", "fails"), ("opens-namespaces", "note")];
    bench
        .check(&raised)
        .is("not", 1, &expected)
        .says("set-user-ID");
    // The same again, but another user starts it than the one that it becomes.
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&raised);
    command.uid(nobody - 1).env("LD_PRELOAD", &bench.heap);
    let running = Running::start(&mut command);
    let checked = bench.checked(&[&running.pid()], &[]);
    checked
        .is("not", 1, &[("raised-privileges", "fails")])
        .says("AT_SECURE");
}

#[test]
fn a_heap_that_was_replaced_on_disk_is_mentioned() {
    let bench = Bench::new();
    let program = bench.make("plain", MAIN, &[]);
    let running = Running::start(Command::new(&program).env("LD_PRELOAD", &bench.heap));
    let copy = bench.path("copy");
    fs::copy(&bench.heap, &copy).unwrap();
    fs::rename(&copy, &bench.heap).unwrap();
    let checked = bench.checked(&[&running.pid()], &[]);
    checked.is("taken", 0, &[("replaced-file", "note")]);
}

#[test]
fn what_can_not_be_examined_is_an_error_with_a_reason() {
    let bench = Bench::new();
    fs::write(bench.path("broken"), b"\x7fELF\x02\x01\x01").unwrap();
    fs::set_permissions(bench.path("broken"), fs::Permissions::from_mode(0o755)).unwrap();
    let broken = bench.path("broken");
    for (target, said) in [
        ("4194999", "no process"),
        ("loam-no-such-program", "not found in PATH"),
        ("./7", "no such file"),
        (broken.as_str(), "can not be checked"),
        ("/", "is a folder"),
    ] {
        let mut command = common::loam();
        command.args(["check", "--library", &bench.heap, target]);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(said), "{said} in {}", ran.err);
    }
}

#[test]
fn people_are_told_the_verdict_first_and_the_remedy_last() {
    let bench = Bench::new();
    let program = bench.make("fixed", PLUGIN_MAIN, &["-static"]);
    let mut command = common::loam();
    command.args(["check", "--library", &bench.heap, &program]);
    let ran = Ran::of(command.output().unwrap());
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        lines[0].contains("another allocator than Loam"),
        "{}",
        ran.out
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("fails [static-executable]")),
        "{}",
        ran.out
    );
    assert!(
        lines
            .last()
            .unwrap()
            .starts_with("  Remedy: link it with libloam.a"),
        "{}",
        ran.out
    );
}

/// The heap, if it has been built: `LOAM_LIBRARY`, or where `make` leaves it.
fn real_heap() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/libloam.so");
    let named = std::env::var_os("LOAM_LIBRARY").map(PathBuf::from);
    named.into_iter().chain([built]).find(|path| path.is_file())
}

#[test]
fn the_real_heap_takes_a_program_with_operators_and_all() {
    let Some(heap) = real_heap() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let bench = Bench::new();
    let source = bench.lab.path("plus.cpp");
    let code = "#include <cstdio>\nint main() { int *p = new int[4]; p[0] = 1; delete[] p; \
                std::puts(\"ready\"); std::fflush(stdout); return std::getchar() == 0; }";
    fs::write(&source, code).unwrap();
    let program = bench.lab.path("plus");
    compile(
        &["-x", "c++", "-Wl,-z,now", "-Wl,--no-as-needed", "-lstdc++"],
        &source,
        &program,
    );
    let program = program.display().to_string();
    let heap = heap.canonicalize().unwrap().display().to_string();
    bench
        .checked(&["--library", &heap, &program], &[])
        .is("taken", 0, &[]);
    let checked = bench.check_running(&program, &heap, &[]);
    checked.is("taken", 0, &[]);
    assert_eq!(
        checked.provider("plus", "_Znam"),
        ("libloam.so".into(), "memory".into())
    );
}
