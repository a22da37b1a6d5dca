//! Private heaps. A block borrows its heap, so that none outlives it.

use core::alloc::Layout;
use core::ffi::{c_char, CStr};
use core::fmt;
use core::mem::size_of;
use core::ops::{Deref, DerefMut};
use core::ptr::{null, null_mut, NonNull};

use libloam_sys as sys;

/// Why a heap did not do what it was asked to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused(sys::loam_status);

impl Refused {
    fn last() -> Refused {
        // SAFETY: it reads a number of the calling thread.
        Refused(unsafe { sys::loam_last_status() })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the text is static and ends with a zero.
        let text = unsafe { CStr::from_ptr(sys::loam_status_text(self.0)) };
        out.write_str(text.to_str().unwrap_or("refused"))
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Refused({self})")
    }
}

impl core::error::Error for Refused {}

/// What a heap holds, in bytes but for `blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// In live blocks, whole slots and pages counted.
    pub allocated: usize,
    /// What the heap holds of the system's memory.
    pub committed: usize,
    /// In free slots of spans.
    pub free: usize,
    /// In slots that threads' caches hold.
    pub cached: usize,
    /// Live blocks. Of the heap behind `malloc`, without blocks above 32 KiB.
    pub blocks: usize,
}

/// # Safety
/// `heap` is a live heap.
pub(crate) unsafe fn summary_of(heap: *mut sys::loam_heap) -> Summary {
    let mut all = sys::loam_heap_summary {
        size: size_of::<sys::loam_heap_summary>(),
        ..Default::default()
    };
    let status = sys::loam_summary(heap, &mut all);
    debug_assert_eq!(status, sys::LOAM_OK);
    Summary {
        allocated: all.allocated,
        committed: all.committed,
        free: all.free,
        cached: all.cached,
        blocks: all.blocks,
    }
}

/// Options of a new heap.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: [u8; 32],
    maximum: usize,
    flags: u32,
}

impl Builder {
    /// For counters and messages; the first 31 bytes count.
    pub fn name(mut self, name: &str) -> Builder {
        self.name = [0; 32];
        let length = name.len().min(31);
        self.name[..length].copy_from_slice(&name.as_bytes()[..length]);
        self
    }

    /// The heap never takes more than this many bytes, its own records included.
    pub fn maximum(mut self, bytes: usize) -> Builder {
        self.maximum = bytes;
        self
    }

    /// Blocks are overwritten with zeros when they are freed.
    pub fn zero_on_free(mut self) -> Builder {
        self.flags |= sys::LOAM_HEAP_ZERO_ON_FREE;
        self
    }

    /// Writes behind the end of a block are found when it is freed.
    pub fn canaries(mut self) -> Builder {
        self.flags |= sys::LOAM_HEAP_CANARY;
        self
    }

    /// Makes the heap.
    pub fn build(self) -> Result<Heap, Refused> {
        let is_named = self.name[0] != 0;
        let options = sys::loam_heap_options {
            size: size_of::<sys::loam_heap_options>(),
            initial: 0,
            maximum: self.maximum,
            flags: self.flags,
            reserved: 0,
            on_failure: None,
            context: null_mut(),
            name: if is_named {
                self.name.as_ptr().cast::<c_char>()
            } else {
                null()
            },
        };
        // SAFETY: the options are as the header has them, and the name ends with a zero.
        let handle = unsafe { sys::loam_heap_create(&options) };
        NonNull::new(handle)
            .map(|handle| Heap { handle })
            .ok_or_else(Refused::last)
    }
}

/// A heap beside `malloc`'s, for any thread. Dropping it ends all that is left in it at once.
pub struct Heap {
    handle: NonNull<sys::loam_heap>,
}

// SAFETY: a heap that is made without LOAM_HEAP_UNSYNCHRONIZED serves any thread at any time.
unsafe impl Send for Heap {}
// SAFETY: the same.
unsafe impl Sync for Heap {}

impl Heap {
    /// A growable heap.
    #[allow(clippy::new_without_default)] // it can fail
    pub fn new() -> Result<Heap, Refused> {
        Builder::default().build()
    }

    /// A heap with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Moves a value into the heap.
    pub fn boxed<T>(&self, value: T) -> Result<HeapBox<'_, T>, Refused> {
        let place = self.allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the block is new, and has the type's size and alignment.
        unsafe { place.write(value) };
        Ok(HeapBox { place, heap: self })
    }

    /// An uninitialised block. It is live until [`Heap::deallocate`] or until the heap is dropped.
    /// Of a layout without bytes it is a block all the same.
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, Refused> {
        // SAFETY: the handle is a live heap's, and an alignment of a layout is a power of two.
        let block = unsafe {
            sys::loam_aligned_alloc(self.handle.as_ptr(), layout.align().max(16), layout.size())
        };
        NonNull::new(block.cast::<u8>()).ok_or_else(Refused::last)
    }

    /// Ends a block.
    ///
    /// # Safety
    /// It is a live block of this heap, and nothing refers to it.
    pub unsafe fn deallocate(&self, block: NonNull<u8>) {
        let status = sys::loam_free(self.handle.as_ptr(), block.as_ptr().cast());
        debug_assert_eq!(status, sys::LOAM_OK, "a block of another heap");
    }

    /// Whether a live block of this heap begins at this address.
    pub fn owns<T: ?Sized>(&self, block: *const T) -> bool {
        // SAFETY: the address is looked up, not followed.
        unsafe { sys::loam_heap_of(block.cast()) == self.handle.as_ptr() }
    }

    /// What the heap holds.
    pub fn summary(&self) -> Summary {
        // SAFETY: the handle is a live heap's.
        unsafe { summary_of(self.handle.as_ptr()) }
    }

    /// Gives free memory of the heap back to the system, and says how many bytes.
    pub fn compact(&self) -> usize {
        let mut released = 0;
        // SAFETY: the handle is a live heap's.
        unsafe { sys::loam_compact(self.handle.as_ptr(), &mut released) };
        released
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: blocks borrow the heap, so none is in use.
        unsafe { sys::loam_heap_destroy(self.handle.as_ptr()) };
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Heap({:p})", self.handle)
    }
}

/// A value that lives in a private heap.
pub struct HeapBox<'heap, T> {
    place: NonNull<T>,
    heap: &'heap Heap,
}

// SAFETY: as a Box of the standard library; the heap serves any thread.
unsafe impl<T: Send> Send for HeapBox<'_, T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for HeapBox<'_, T> {}

impl<T> Deref for HeapBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is initialised and this box's.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for HeapBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the same, and nothing else refers to it.
        unsafe { self.place.as_mut() }
    }
}

impl<T> Drop for HeapBox<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped once, and the block is this heap's.
        unsafe {
            self.place.drop_in_place();
            self.heap.deallocate(self.place.cast());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for HeapBox<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

#[cfg(feature = "allocator-api2")]
mod api2 {
    use core::alloc::Layout;
    use core::ptr::NonNull;

    use allocator_api2::alloc::{AllocError, Allocator};

    use super::Heap;

    // SAFETY: blocks are live until deallocate(), wherever the reference moves.
    unsafe impl Allocator for &Heap {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            let block = Heap::allocate(self, layout).map_err(|_| AllocError)?;
            Ok(NonNull::slice_from_raw_parts(block, layout.size()))
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
            Heap::deallocate(self, block);
        }
    }
}
