#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![no_std]

mod heap;

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;

use libloam_sys as sys;

pub use heap::{Builder, Heap, HeapBox, Refused, Summary};

/// Every block of Loam has this alignment at least.
const ALIGNMENT: usize = 16;

/// The heap behind `malloc`, as a global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loam;

// SAFETY: blocks are Loam's, of the size and alignment that was asked for, until dealloc(); none of
// the calls unwinds.
unsafe impl GlobalAlloc for Loam {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            sys::loam_rust_alloc(layout.size()).cast()
        } else {
            sys::loam_rust_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return sys::loam_rust_zalloc(layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        sys::loam_rust_free(block.cast(), layout.size());
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return sys::loam_rust_realloc(block.cast(), bytes).cast();
        }
        let default = sys::loam_default();
        sys::loam_aligned_realloc(default, block.cast(), layout.align(), bytes, 0).cast()
    }
}

/// Whether a live block begins at this address in any heap of Loam's. With the feature `override`
/// that is so for blocks of C and C++ code too.
pub fn owns<T: ?Sized>(block: *const T) -> bool {
    // SAFETY: the address is looked up, not followed.
    unsafe { !sys::loam_heap_of(block.cast::<c_void>()).is_null() }
}

/// Gives free memory back to the system, and says how many bytes. It may take milliseconds.
pub fn trim() -> usize {
    // SAFETY: any thread may call it at any time.
    unsafe { sys::loam_rust_trim() }
}

/// What the heap behind `malloc` holds.
pub fn summary() -> Summary {
    // SAFETY: the default heap is always there.
    unsafe { heap::summary_of(sys::loam_default()) }
}
