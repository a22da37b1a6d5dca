//! Whose blocks are Loam's: those of Rust, and with the feature `override` those of C and C++ too.
//!
//! `one-heap wait` stays until its input ends, so that `loam stats PID` can look at it.

use std::ffi::{c_char, c_void};
use std::process::ExitCode;

use allocator_api2::vec::Vec as HeapVec;
use loam_alloc::Heap;

#[global_allocator]
static HEAP: loam_alloc::Loam = loam_alloc::Loam;

extern "C" {
    fn words_malloc(bytes: usize) -> *mut c_void;
    fn words_free(block: *mut c_void);
    fn words_fill(count: usize) -> *const c_void;
    fn words_text() -> *const c_void;
    fn words_clear();
    fn words_copy(text: *const c_char) -> *mut c_char;
}

fn main() -> ExitCode {
    let numbers = vec![1u64; 1000];
    let aligned = Box::new(Aligned([0; 512]));
    let mut found = vec![
        ("a Rust vector", loam_alloc::owns(numbers.as_ptr())),
        (
            "a Rust box of 256 bytes' alignment",
            loam_alloc::owns(&*aligned),
        ),
    ];
    // SAFETY: the C++ part is used as it wants to be: fill, look, clear.
    unsafe {
        let block = words_malloc(100);
        found.push(("malloc() in C", loam_alloc::owns(block)));
        words_free(block);
        found.push(("operator new in C++", loam_alloc::owns(words_fill(1000))));
        found.push(("a string of libstdc++", loam_alloc::owns(words_text())));
        words_clear();
        let copy = words_copy(c"words".as_ptr());
        found.push(("strdup() of the C library", loam_alloc::owns(copy)));
        words_free(copy.cast());
    }
    for (name, owned) in &found {
        println!("{name}: {}", if *owned { "Loam" } else { "another heap" });
    }
    private_heap();
    if std::env::args().nth(1).as_deref() == Some("wait") {
        println!("waiting");
        let _ = std::io::read_to_string(std::io::stdin());
    }
    let on_loam = found.iter().filter(|(_, owned)| *owned).count();
    let expected = if cfg!(feature = "override") {
        found.len()
    } else {
        2
    };
    ExitCode::from(u8::from(on_loam != expected))
}

#[repr(align(256))]
struct Aligned(#[allow(dead_code)] [u8; 512]);

/// A heap of its own, which goes as a whole.
fn private_heap() {
    let heap = Heap::builder()
        .name("requests")
        .maximum(8 << 20)
        .build()
        .expect("memory for a heap");
    let mut numbers: HeapVec<u64, &Heap> = HeapVec::new_in(&heap);
    numbers.extend(0..10_000);
    let name = heap
        .boxed(String::from("a name"))
        .expect("memory for a box");
    assert!(heap.owns(numbers.as_ptr()) && heap.owns(&*name));
    let threads: u64 = std::thread::scope(|scope| {
        let sums = [0, 1, 2, 3].map(|part| {
            let numbers = &numbers;
            scope.spawn(move || numbers.iter().skip(part).step_by(4).sum::<u64>())
        });
        sums.into_iter().map(|sum| sum.join().expect("a sum")).sum()
    });
    assert_eq!(threads, 49_995_000);
    let too_much = HeapVec::<u8, &Heap>::new_in(&heap).try_reserve(16 << 20);
    assert!(too_much.is_err(), "a heap of 8 MiB has no 16 MiB");
    println!("a private heap: {} blocks", heap.summary().blocks);
}
