//! `loam census`: programs that know their own objects and what they lost, live and as cores.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::common::{library, loam, root, skip, Ran, Talker};
use serde_json::Value;

/// `tests/census/shop.cpp`, compiled once for all tests, and the same without symbols.
fn shop() -> Option<&'static [PathBuf; 2]> {
    static BUILT: OnceLock<Option<(tempfile::TempDir, [PathBuf; 2])>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("shop");
        let stripped = folder.path().join("shop-stripped");
        let is_built =
            build("shop", &["-pthread"], &program) && build("shop", &["-pthread", "-s"], &stripped);
        is_built.then_some((folder, [program, stripped]))
    });
    if built.is_none() {
        skip("there is no C++ compiler");
    }
    built.as_ref().map(|(_, programs)| programs)
}

fn build(name: &str, options: &[&str], product: &Path) -> bool {
    Command::new("c++")
        .args(["-O1", "-std=c++17"])
        .args(options)
        .arg("-I")
        .arg(root().join("include"))
        .arg(root().join(format!("tests/census/{name}.cpp")))
        .arg("-o")
        .arg(product)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn start(program: &Path) -> Talker {
    start_on(program, None)
}

/// On the C library's heap, or with a library preloaded.
fn start_on(program: &Path, heap: Option<&Path>) -> Talker {
    let mut command = Command::new(program);
    command
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES");
    if let Some(heap) = heap {
        command.env("LD_PRELOAD", heap);
    }
    Talker::start(&mut command)
}

/// glibc's heap, and Loam's if it has been built.
fn heaps() -> Vec<Option<PathBuf>> {
    let loam = library();
    if loam.is_none() {
        skip("the library has not been built");
    }
    std::iter::once(None).chain(loam.map(Some)).collect()
}

fn census(target: &str) -> Value {
    let ran = Ran::of(loam().args(["census", "--json", target]).output().unwrap());
    assert!(ran.code == Some(0), "{}", ran.err);
    serde_json::from_str::<Value>(&ran.out).unwrap()["census"].take()
}

fn row<'a>(census: &'a Value, name: &str) -> &'a Value {
    let rows = census["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {rows:#?}"))
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap()
}

/// What `shop` makes, and what it loses.
fn assert_shop(census: &Value) {
    for (name, blocks) in [
        ("shop::Session", 6_000),
        ("shop::Poly", 20_000),
        ("shop::Circle", 20_500),
    ] {
        assert_eq!(number(row(census, name), "blocks"), blocks, "{name}");
        assert_eq!(number(row(census, name), "lost_blocks"), 0, "{name}");
    }
    // A session has a name and 200 numbers.
    let sessions = row(census, "shop::Session");
    assert!(
        number(sessions, "with_parts_bytes") >= 6_000 * (1_600 + 40),
        "{sessions}"
    );
    assert!(number(sessions, "held_bytes") >= number(sessions, "with_parts_bytes"));
    assert_eq!(number(row(census, "shop::Left"), "blocks"), 6_000);
    let lost = number(&census["lost"], "blocks");
    assert!(
        (5_800 + 3_990..=6_000 + 4_200).contains(&lost),
        "{lost}: {:#}",
        census["groups"]
    );
    // No one tag holds the numbers that two of them share.
    let tags = row(census, "shop::Tag");
    assert_eq!(number(tags, "blocks"), 200);
    assert!(number(tags, "with_parts_bytes") >= 100 * 8_000, "{tags}");
    let visits = row(census, "block with shop::Visit at +16");
    assert_eq!(number(visits, "blocks"), 300);
    // A pointer to just before an array keeps it from being called lost.
    let doubtful = number(&census["doubtful"], "bytes");
    assert!((8_000..20_000).contains(&doubtful), "{doubtful}");
    let groups = census["groups"].as_array().unwrap();
    let is_array = |group: &Value| (8_000..9_000).contains(&number(group, "size"));
    assert!(!groups.iter().any(is_array), "{groups:#?}");
    let rows = census["rows"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| number(row, "with_parts_bytes")).sum();
    assert_eq!(sum, number(&census["live"], "bytes"));
}

#[test]
fn types_holders_and_lost_blocks_are_what_the_program_knows() {
    let Some(programs) = shop() else { return };
    for program in programs {
        let shop = start(program);
        let census = census(&shop.pid());
        assert_shop(&census);
        let is_stripped = program.ends_with("shop-stripped");
        if !is_stripped {
            let path = row(&census, "shop::Session")["path"].to_string();
            assert!(
                path.contains("`shop::sessions` (variable of shop)"),
                "{path}"
            );
            let stock = row(&census, "`shop::stock` (variable of shop), a shop::Stock");
            assert_eq!(stock["kind"], "object");
            assert!(number(stock, "with_parts_bytes") >= 80_000, "{stock}");
            assert_eq!(
                number(row(&census, "object with file_ops"), "blocks"),
                1_000
            );
        }
    }
}

#[test]
fn on_loam_types_holders_and_lost_blocks_are_the_same() {
    let (Some([program, _]), Some(heap)) = (shop(), library()) else {
        return skip("there is no compiler, or the library has not been built");
    };
    let shop = start_on(program, Some(&heap));
    let census = census(&shop.pid());
    let allocator = census["allocator"].as_str().unwrap();
    assert!(allocator.starts_with("Loam "), "{allocator}");
    assert_shop(&census);
    let path = row(&census, "shop::Session")["path"].to_string();
    assert!(path.contains("variable of shop"), "{path}");
    // The end of a full buffer is the next block's address: that is no owner.
    let typed = census["rows"].as_array().unwrap().iter();
    let several: u64 = typed
        .filter(|row| row["kind"] == "shared")
        .map(|row| number(row, "with_parts_bytes"))
        .sum();
    assert!(several * 50 < number(&census["live"], "bytes"), "{several}");
}

/// Blocks of all sizes on all paths of the heap, private heaps included, of which half are freed by
/// other threads.
#[test]
fn each_live_block_is_counted_and_no_freed_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("known");
    if !build("known", &["-pthread", "-ldl"], &program) {
        return skip("there is no C++ compiler");
    }
    for heap in heaps() {
        let mut known = start_on(&program, heap.as_deref());
        let live: u64 = known.line().parse().unwrap();
        let census = census(&known.pid());
        let objects = row(&census, "known::Live");
        assert_eq!(number(objects, "blocks"), live, "{heap:?}");
        assert_eq!(number(objects, "lost_blocks"), 0, "{heap:?}");
        let rows = census["rows"].as_array().unwrap();
        assert!(
            !rows.iter().any(|row| row["name"] == "known::Freed"),
            "{rows:#?}"
        );
        assert_eq!(number(row(&census, "known::Lost"), "blocks"), 6_000);
        let lost = number(row(&census, "known::Lost"), "lost_blocks");
        assert!((5_700..=6_000).contains(&lost), "{lost} {heap:?}");
        assert_eq!(number(&census["lost"], "blocks"), lost, "{census:#}");
    }
}

/// Loam's first records lie among variables: those of its library, or of the program.
#[test]
fn pointers_beside_the_heaps_first_records_hold_what_they_point_to() {
    let archive = root().join("build/libloam.a");
    let (Some(library), true) = (library(), archive.exists()) else {
        return skip("the library has not been built");
    };
    let folder = tempfile::tempdir().unwrap();
    let whole = format!(
        "-Wl,--whole-archive,{},--no-whole-archive",
        archive.display()
    );
    for (options, heap) in [(None, Some(library)), (Some(whole), None)] {
        let program = folder.path().join("beside");
        let options = ["-pthread"].into_iter().chain(options.as_deref());
        if !build("beside", &options.collect::<Vec<_>>(), &program) {
            return skip("there is no C++ compiler");
        }
        let mut beside = start_on(&program, heap.as_deref());
        let live: u64 = beside.line().parse().unwrap();
        let census = census(&beside.pid());
        assert!(census["allocator"].as_str().unwrap().starts_with("Loam "));
        let objects = row(&census, "beside::Live");
        assert_eq!(number(objects, "blocks"), live, "{heap:?}");
        assert_eq!(number(objects, "lost_blocks"), 0, "{heap:?}");
    }
}

/// A core of a process that runs on.
fn core_of(folder: &Path, pid: &str) -> Option<PathBuf> {
    let made = Command::new("gcore")
        .arg("-o")
        .arg(folder.join("core"))
        .arg(pid)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        skip("there is no gcore, or it may not attach");
        return None;
    }
    Some(folder.join(format!("core.{pid}")))
}

/// Its heap begins behind its thread-local variables, and no mapping of a core has a name.
#[test]
fn a_core_of_a_static_program_says_what_its_process_said() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shop-static");
    // With the text of the version.
    let options = ["-pthread", "-static", "-Wl,-u,gnu_get_libc_version"];
    if !build("shop", &options, &program) {
        return skip("there is no C++ compiler, or no static C library");
    }
    let shop = start(&program);
    let live = census(&shop.pid());
    let Some(core) = core_of(folder.path(), &shop.pid()) else {
        return;
    };
    let of_core = census(core.to_str().unwrap());
    assert_eq!(of_core["live"], live["live"]);
    assert_eq!(of_core["allocator"], live["allocator"]);
}

#[test]
fn a_core_says_what_its_process_said() {
    let Some([program, _]) = shop() else { return };
    for heap in heaps() {
        let folder = tempfile::tempdir().unwrap();
        let shop = start_on(program, heap.as_deref());
        let live = census(&shop.pid());
        let Some(core) = core_of(folder.path(), &shop.pid()) else {
            return;
        };
        let of_core = census(core.to_str().unwrap());
        assert_shop(&of_core);
        assert_eq!(of_core["live"], live["live"]);
        assert_eq!(of_core["allocator"], live["allocator"]);
        for name in ["shop::Session", "shop::Poly", "shop::Left"] {
            for field in ["blocks", "own_bytes", "with_parts_bytes"] {
                assert_eq!(
                    row(&of_core, name)[field],
                    row(&live, name)[field],
                    "{name} {field}"
                );
            }
        }
        if heap.is_none() {
            packed_and_cut(folder.path(), &core, &of_core);
        }
    }
}

/// libc++ names its types in another way, and its containers differ.
#[test]
fn programs_with_libcxx_have_types_too() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shop-libcxx");
    let is_built = Command::new("clang++")
        .args(["-stdlib=libc++", "-O1", "-std=c++17", "-pthread"])
        .arg(root().join("tests/census/shop.cpp"))
        .arg("-o")
        .arg(&program)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_built {
        return skip("there is no clang with libc++ (Debian packages clang and libc++-dev)");
    }
    let shop = start(&program);
    assert_shop(&census(&shop.pid()));
}

/// The same compressed; and cut off: what is left is read, and the rest is said.
fn packed_and_cut(folder: &Path, core: &Path, of_core: &Value) {
    let bytes = std::fs::read(core).unwrap();
    let packed = folder.join("core.zst");
    std::fs::write(&packed, zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
    assert_eq!(census(packed.to_str().unwrap())["rows"], of_core["rows"]);
    let packed = folder.join("core.lz4");
    let mut packer = lz4_flex::frame::FrameEncoder::new(std::fs::File::create(&packed).unwrap());
    packer.write_all(&bytes).unwrap();
    packer.finish().unwrap();
    assert_eq!(census(packed.to_str().unwrap())["rows"], of_core["rows"]);
    let cut = folder.join("core.cut");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let ran = Ran::of(loam().arg("census").arg(&cut).output().unwrap());
    // Without the part that names the files there is no census, and otherwise one of what is left.
    let said = format!("{}{}", ran.out, ran.err).replace('\n', " ");
    assert!(said.contains("the core is cut off:"), "{said}");
    // Where the C library's name is in the missing part, the cut is the cause.
    std::fs::write(&cut, &bytes[..8192]).unwrap();
    let ran = Ran::of(loam().arg("census").arg(&cut).output().unwrap());
    let said = ran.err.replace('\n', " ");
    assert!(
        said.contains("lie in the part of the core that is missing"),
        "{said}"
    );
    assert!(!said.contains("no GNU C Library"), "{said}");
}

/// LeakSanitizer's verdict on the same program: sizes and counts.
#[test]
fn lost_blocks_are_those_that_leaksanitizer_finds() {
    let Some([program, _]) = shop() else { return };
    let folder = tempfile::tempdir().unwrap();
    let sanitized = folder.path().join("shop-lsan");
    if !build("shop", &["-pthread", "-fsanitize=leak"], &sanitized) {
        return skip("the compiler has no LeakSanitizer");
    }
    let output = Command::new(&sanitized).arg("check").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let Some(line) = said
        .lines()
        .find(|line| line.starts_with("SUMMARY: LeakSanitizer:"))
    else {
        return skip("LeakSanitizer does not run here");
    };
    let words: Vec<&str> = line.split(' ').collect();
    let place = words
        .iter()
        .position(|word| *word == "allocation(s).")
        .unwrap();
    let theirs: f64 = words[place - 1].parse().unwrap();
    let shop = start(program);
    let ours = number(&census(&shop.pid())["lost"], "blocks") as f64;
    assert!((ours / theirs - 1.0).abs() < 0.05, "{ours} {theirs}");
}

/// A Python program that says when it is ready; none where there is no Python.
fn python(script: &str) -> Option<Talker> {
    let version = Command::new("python3").arg("-V").output();
    if !version.is_ok_and(|ran| ran.status.success()) {
        skip("there is no python3");
        return None;
    }
    let mut command = Command::new("python3");
    command.args(["-S", "-c", script]).env_remove("LD_PRELOAD");
    Some(Talker::start(&mut command))
}

#[test]
fn pythons_objects_are_counted_by_type() {
    let script = "
import gc, sys, time
class Session:
    def __init__(self, n):
        self.name = 'a session with a long name ' * 2 + str(n)
        self.values = [float(n + i) for i in range(20)]
class Slotted:
    __slots__ = ('a', 'b')
sessions = {n: Session(n) for n in range(3000)}
slotted = [Slotted() for n in range(2000)]
gc.collect()
print('ready', flush=True)
sys.stdin.readline()
";
    let Some(python) = python(script) else { return };
    let census = census(&python.pid());
    assert_eq!(number(row(&census, "Session"), "blocks"), 3_000);
    assert_eq!(number(row(&census, "Slotted"), "blocks"), 2_000);
    assert!(number(row(&census, "float"), "blocks") >= 60_000);
    assert!(number(row(&census, "str"), "blocks") >= 3_000);
    let live = number(&census["live"], "bytes");
    let rows = census["rows"].as_array().unwrap();
    let typed = rows.iter().filter(|row| row["kind"] == "python");
    let typed: u64 = typed.map(|row| number(row, "with_parts_bytes")).sum();
    assert!(typed as f64 > 0.9 * live as f64, "{typed} of {live}");
    let lost = number(&census["lost"], "bytes");
    assert!(lost as f64 <= 0.001 * live as f64, "{:#}", census["groups"]);
    assert!(number(&census["pools"], "arena_bytes") > number(&census["pools"], "block_bytes"));
}

#[test]
fn two_censuses_are_compared_and_leaks_are_a_finding() {
    let Some([program, _]) = shop() else { return };
    let folder = tempfile::tempdir().unwrap();
    let shop = start(program);
    let ran = Ran::of(
        loam()
            .args(["census", "--leaks", &shop.pid()])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("shop::Left"), "{}", ran.out);
    let ran = Ran::of(
        loam()
            .args(["census", "--json", &shop.pid()])
            .output()
            .unwrap(),
    );
    let (a, b) = (folder.path().join("a.json"), folder.path().join("b.json"));
    std::fs::write(&a, &ran.out).unwrap();
    let mut later: Value = serde_json::from_str(&ran.out).unwrap();
    let rows = later["census"]["rows"].as_array_mut().unwrap();
    let row = rows
        .iter_mut()
        .find(|row| row["name"] == "shop::Poly")
        .unwrap();
    row["blocks"] = 20_500.into();
    row["with_parts_bytes"] = (number(row, "with_parts_bytes") + 500_000).into();
    std::fs::write(&b, later.to_string()).unwrap();
    let ran = Ran::of(
        loam()
            .args(["census", "--diff"])
            .args([&a, &b])
            .output()
            .unwrap(),
    );
    assert!(ran.code == Some(0), "{}", ran.err);
    assert!(
        ran.out.contains("shop::Poly") && ran.out.contains("+500"),
        "{}",
        ran.out
    );
}

#[test]
fn contents_are_shown_only_where_that_is_asked_for() {
    let Some([program, _]) = shop() else { return };
    let shop = start(program);
    let secret = "a node of a lost list";
    for (options, is_shown) in [
        (&["--leaks"][..], false),
        (&["--leaks", "--show-content"], true),
    ] {
        let mut command = loam();
        let ran = Ran::of(
            command
                .arg("census")
                .args(options)
                .arg(shop.pid())
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        // A node begins with a pointer, so its text comes in words.
        let word: String = secret.as_bytes()[..8]
            .iter()
            .rev()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(ran.out.contains(&word), is_shown, "{}", ran.out);
        assert!(!ran.out.contains(secret));
    }
}

/// Rings, a pointer many million times, very many mappings, damaged headers, blocks that come and
/// go: the census ends, and its figures add up.
#[test]
fn hostile_heaps_are_counted_and_what_was_not_followed_is_said() {
    hostile(&["ring 200000", "star 4", "mappings 20000", "damage", "churn"]);
}

/// The same at length: a billion pointers to one block.
#[test]
#[ignore = "long: it reads 8 GiB of pointers"]
fn larger_hostile_heaps_are_counted_too() {
    hostile(&["ring 4000000", "star 128", "mappings 60000"]);
}

fn hostile(heaps_of: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hostile");
    if !build("hostile", &["-pthread"], &program) {
        return skip("there is no C++ compiler");
    }
    for heap in heaps() {
        for what in heaps_of {
            let mut command = Command::new(&program);
            command.args(what.split(' ')).env_remove("LD_PRELOAD");
            if let Some(heap) = &heap {
                command.env("LD_PRELOAD", heap);
            }
            let target = Talker::start(&mut command);
            let census = census(&target.pid());
            let live = &census["live"];
            let rows = census["rows"].as_array().unwrap();
            let sum: u64 = rows.iter().map(|row| number(row, "with_parts_bytes")).sum();
            assert_eq!(sum, number(live, "bytes"), "{what} {heap:?}");
            let is_damaged = *what == "damage" && heap.is_none();
            let problems = census["problems"].as_array().unwrap();
            let least = match *what {
                "ring 200000" => 200_000,
                "damage" if heap.is_some() => 20_000,
                _ => 1,
            };
            assert!(number(live, "blocks") >= least, "{what} {heap:?}: {live}");
            if is_damaged {
                let said = format!("{problems:?}");
                assert!(said.contains("arena"), "{said}");
            } else if *what != "churn" {
                assert_eq!(number(&census["lost"], "blocks"), 0, "{what} {heap:?}");
            }
        }
    }
}

#[test]
fn the_doctor_names_the_type_that_grows_and_how_it_is_reached() {
    let Some([program, _]) = shop() else { return };
    for heap in heaps() {
        let mut command = Command::new(program);
        command.arg("grow").env_remove("LD_PRELOAD");
        if let Some(heap) = &heap {
            command.env("LD_PRELOAD", heap);
        }
        let shop = Talker::start(&mut command);
        let mut doctor = loam();
        let ran = Ran::of(
            doctor
                .args(["doctor", &shop.pid(), "--watch", "8"])
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let said = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let lost = "shop::Left: +";
        assert!(said.contains(lost) && said.contains("lost"), "{said}");
        assert!(said.contains("shop::Session: +"), "{said}");
        if heap.is_none() {
            let path = "`shop::sessions` (variable of shop) -> pointers";
            assert!(said.contains(path), "{said}");
        }
    }
}

#[test]
fn the_doctor_finds_arenas_of_cpython_that_few_objects_keep() {
    let script = "
import sys
stays, goes = [], []
for n in range(400):
    goes.append([str(k) + 'x' * 40 for k in range(2000)])
    stays.append('one that stays ' + str(n) * 9)
del goes
print('ready', flush=True)
sys.stdin.readline()
";
    let Some(python) = python(script) else { return };
    let ran = Ran::of(
        loam()
            .args(["doctor", "--json", &python.pid()])
            .output()
            .unwrap(),
    );
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["kind"] == "python_arenas");
    let found = found.unwrap_or_else(|| panic!("{document:#}"));
    let verdict = found["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("CPython keeps ") && verdict.ends_with(" of objects"),
        "{verdict}"
    );
    let pools = &document["evidence"]["python_pools"];
    let (bytes, live) = (number(pools, "bytes"), number(pools, "live_bytes"));
    assert!(bytes > 50 << 20 && live < 16 << 20, "{pools}");
    assert!(number(found, "gain_bytes") == bytes - live);
}

#[test]
fn what_is_no_core_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core");
    for bytes in [
        &b"nothing"[..],
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0",
    ] {
        std::fs::write(&file, bytes).unwrap();
        let ran = Ran::of(loam().arg("census").arg(&file).output().unwrap());
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains("no ELF core"), "{}", ran.err);
    }
}
