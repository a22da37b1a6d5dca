//! Compiles the heap as one translation unit, with the flags that the heap's own build has.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Sources of `src/api` that replace functions of the C library, and what calls those.
const OVERRIDING: [&str; 4] = ["malloc.cpp", "operators.cpp", "statistics.cpp", "fork.cpp"];
/// Of the shared library only, of a unit of its own, or of no use to Rust.
const LEFT_OUT: [&str; 6] = [
    "nothrow_shared.cpp",
    "nothrow_static.cpp",
    "win32_crt.cpp",
    "win32_heap.cpp",
    "win32_state.cpp",
    "entry.cpp",
];

fn main() {
    println!("cargo::rerun-if-changed=loam");
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    let (system, processor) = (target("OS"), target("ARCH"));
    let is_known = matches!(processor.as_str(), "x86_64" | "aarch64");
    if system != "linux" || !is_known {
        panic!(
            "libloam-sys: Loam's heap runs on Linux on x86_64 and aarch64, and this build is for \
             {system} on {processor}; use the crate only there, by \
             [target.'cfg(target_os = \"linux\")'.dependencies]"
        );
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let sources = root.join("loam/src");
    let overrides = feature("OVERRIDE");

    let unit = out.join("unit.cpp");
    let mut text = String::new();
    for path in unit_of(&sources, overrides) {
        text += &format!("#include \"{}\"\n", path.display());
    }
    text += &format!("#include \"{}\"\n", root.join("loam/entry.cpp").display());
    fs::write(&unit, text).expect("OUT_DIR can be written");

    let mut heap = compiler(&root, &sources);
    if overrides {
        heap.define("LOAM_OVERRIDE", None);
    }
    heap.file(&unit).compile("loam");
    if overrides {
        // The one file that catches: after the flags of all.
        compiler(&root, &sources)
            .flag("-fexceptions")
            .file(sources.join("api/nothrow_static.cpp"))
            .compile("loam_nothrow");
    }
    println!(
        "cargo::metadata=include={}",
        root.join("loam/include").display()
    );
}

fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

fn unit_of(sources: &Path, overrides: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in entries(sources) {
        if !folder.is_dir() {
            continue;
        }
        found.extend(entries(&folder).into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_left_out = LEFT_OUT.contains(&&*name)
                || name.starts_with("windows_")
                || (!overrides && OVERRIDING.contains(&&*name) && folder.ends_with("api"));
            name.ends_with(".cpp") && !is_left_out
        }));
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}

fn compiler(root: &Path, sources: &Path) -> cc::Build {
    let flags = sources.join("compiler_flags.txt");
    let flags =
        fs::read_to_string(&flags).unwrap_or_else(|error| panic!("{}: {error}", flags.display()));
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        // Nothing of the C++ library is linked: its headers alone are read.
        .cpp_link_stdlib(None)
        // A heap that is not optimised slows down every debug build.
        .opt_level(2)
        .warnings(false)
        .include(sources)
        .include(root.join("loam/include"))
        .define(
            "LOAM_VERSION",
            &*format!("\"{}\"", env!("CARGO_PKG_VERSION")),
        );
    for line in flags
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        build.flag(line.strip_prefix("c++ ").unwrap_or(line));
    }
    build.flag(if feature("DLOPEN_TLS") {
        "-ftls-model=global-dynamic"
    } else {
        "-ftls-model=initial-exec"
    });
    build
}
