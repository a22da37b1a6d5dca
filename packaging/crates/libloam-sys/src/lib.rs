//! The C interface of Loam's heap, as its headers declare it. The headers explain each function:
//! `loam/include/loam/loam.h` in this crate, whose folder a build script finds in
//! `DEP_LOAM_INCLUDE`.
//!
//! Functions named `loam_rust_...` are this crate's own: the heap behind `malloc`, whether or not
//! `malloc` is Loam's (feature `override`).

#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_uint, c_void};

/// A heap. Opaque.
#[repr(C)]
pub struct loam_heap {
    _opaque: [u8; 0],
}

/// What a call says; `LOAM_OK` is 0.
pub type loam_status = c_int;
/// Nothing was refused.
pub const LOAM_OK: loam_status = 0;

/// A block is overwritten with zeros when it is freed.
pub const LOAM_HEAP_ZERO_ON_FREE: c_uint = 1 << 3;
/// Bytes behind every block are watched.
pub const LOAM_HEAP_CANARY: c_uint = 1 << 4;
/// Freed blocks are filled and kept for a while.
pub const LOAM_HEAP_POISON: c_uint = 1 << 5;

/// Called when a heap cannot serve a request.
pub type loam_failure_callback =
    Option<unsafe extern "C" fn(*mut c_void, *mut loam_heap, usize) -> c_int>;

/// Options of a new heap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct loam_heap_options {
    pub size: usize,
    pub initial: usize,
    pub maximum: usize,
    pub flags: c_uint,
    pub reserved: c_uint,
    pub on_failure: loam_failure_callback,
    pub context: *mut c_void,
    pub name: *const c_char,
}

/// What `loam_summary` fills.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct loam_heap_summary {
    pub size: usize,
    pub allocated: usize,
    pub committed: usize,
    pub reserved: usize,
    pub maximum: usize,
    pub peak_committed: usize,
    pub cached: usize,
    pub free: usize,
    pub records: usize,
    pub blocks: usize,
    pub spans: usize,
    pub large_blocks: usize,
}

extern "C" {
    pub fn loam_status_text(status: c_int) -> *const c_char;
    pub fn loam_last_status() -> loam_status;
    pub fn loam_version() -> c_uint;
    pub fn loam_version_text() -> *const c_char;

    pub fn loam_heap_create(options: *const loam_heap_options) -> *mut loam_heap;
    pub fn loam_heap_destroy(heap: *mut loam_heap) -> loam_status;
    pub fn loam_default() -> *mut loam_heap;
    pub fn loam_heap_of(block: *const c_void) -> *mut loam_heap;

    pub fn loam_alloc(heap: *mut loam_heap, bytes: usize) -> *mut c_void;
    pub fn loam_zalloc(heap: *mut loam_heap, bytes: usize) -> *mut c_void;
    pub fn loam_aligned_alloc(heap: *mut loam_heap, alignment: usize, bytes: usize) -> *mut c_void;
    pub fn loam_aligned_realloc(
        heap: *mut loam_heap,
        block: *mut c_void,
        alignment: usize,
        bytes: usize,
        zero: c_int,
    ) -> *mut c_void;
    pub fn loam_free(heap: *mut loam_heap, block: *mut c_void) -> loam_status;
    pub fn loam_usable_size(heap: *mut loam_heap, block: *const c_void) -> usize;
    pub fn loam_summary(heap: *mut loam_heap, summary: *mut loam_heap_summary) -> loam_status;
    pub fn loam_compact(heap: *mut loam_heap, released: *mut usize) -> usize;

    pub fn loam_rust_alloc(bytes: usize) -> *mut c_void;
    pub fn loam_rust_zalloc(bytes: usize) -> *mut c_void;
    pub fn loam_rust_aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void;
    pub fn loam_rust_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    pub fn loam_rust_free(block: *mut c_void, bytes: usize);
    pub fn loam_rust_usable_size(block: *mut c_void) -> usize;
    pub fn loam_rust_trim() -> usize;
}
