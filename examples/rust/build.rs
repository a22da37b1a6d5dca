//! Stands for a dependency that brings C and C++ code, as RocksDB or OpenSSL do.

fn main() {
    println!("cargo::rerun-if-changed=src/words.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("src/words.cpp")
        .compile("words");
}
