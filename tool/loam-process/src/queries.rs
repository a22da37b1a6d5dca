//! Two questions that newer kernels answer by `ioctl`, about files of `/proc/PID`:
//!
//! ```text
//! PAGEMAP_SCAN   (Linux 6.7)   pagemap: runs of pages that are alike, not 8 bytes for each page
//! PROCMAP_QUERY  (Linux 6.11)  maps: the mapping at an address, or the next one that is of a file
//! ```
//!
//! An older kernel refuses both with an error, and the callers (`pagemap`, `mappings`) read the
//! files instead. This is unsafe code (so is `trim::system`): the crate rustix makes the system
//! calls, but has neither query.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;

use rustix::ioctl::{self, opcode, Ioctl, IoctlOutput, Opcode};

/// The kernel's bits for the pages of a run.
pub const PAGE_IN_MEMORY: u64 = 1 << 3;
/// See `PAGE_IN_MEMORY`.
pub const PAGE_SWAPPED: u64 = 1 << 4;
/// The shared page of zeros, which counts as no process's memory.
pub const PAGE_ZERO: u64 = 1 << 5;
/// Part of a huge page.
pub const PAGE_HUGE: u64 = 1 << 6;
/// A page of a file, and not the process's own copy.
pub const PAGE_OF_FILE: u64 = 1 << 2;

/// Pages that are alike, one after the other.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// The first byte's address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// Bits of the constants above.
    pub pages: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    permissions: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device_major: u32,
    device_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// A call with an argument that the kernel reads and writes; it returns a number.
struct Call<'a, T, const NUMBER: u8>(&'a mut T);

// SAFETY: the code names the argument's size, and the kernel writes the argument and what it points
// to.
unsafe impl<T, const NUMBER: u8> Ioctl for Call<'_, T, NUMBER> {
    type Output = usize;
    const IS_MUTATING: bool = true;
    fn opcode(&self) -> Opcode {
        opcode::read_write::<T>(b'f', NUMBER)
    }
    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.0).cast()
    }
    unsafe fn output_from_ptr(result: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        Ok(usize::try_from(result).unwrap_or(0))
    }
}

/// The runs between two addresses that hold something, in order, as many as there is room for, and
/// where the scan ended. The kernel holds the lock of the address space meanwhile, so a scan ends
/// after so many pages.
pub fn scan(
    pagemap: &File,
    start: u64,
    end: u64,
    most_pages: u64,
    room: &mut [Run],
) -> io::Result<(usize, u64)> {
    let holds = PAGE_IN_MEMORY | PAGE_SWAPPED;
    let mut argument = Scan {
        size: size_of::<Scan>() as u64,
        start,
        end,
        vec: room.as_mut_ptr() as u64,
        vec_len: room.len() as u64,
        max_pages: most_pages,
        category_anyof_mask: holds,
        return_mask: holds | PAGE_ZERO | PAGE_HUGE | PAGE_OF_FILE,
        ..Scan::default()
    };
    // SAFETY: the kernel writes at most `vec_len` runs to `vec`, which is borrowed for as long.
    let found = unsafe { ioctl::ioctl(pagemap, Call::<_, 16>(&mut argument)) }?;
    Ok((found.min(room.len()), argument.walk_end))
}

/// A mapping, as PROCMAP_QUERY describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Bits: 1 readable, 2 writable, 4 executable, 8 shared.
    pub permissions: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// The number of the file system.
    pub device: (u32, u32),
    /// The number of the file.
    pub inode: u64,
    /// The name of the file, or `[heap]` and the like.
    pub name: Vec<u8>,
}

/// Which mapping is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one that contains the address.
    Containing,
    /// The first mapping of a file that ends after the address.
    NextOfFile,
}

/// The mapping at an address; none if there is none.
pub fn mapping(maps: &File, address: u64, which: Which) -> io::Result<Option<Found>> {
    // A path has 4,096 bytes at most, and a few words may follow it.
    let mut name = [0u8; 4096 + 64];
    let mut argument = Query {
        size: size_of::<Query>() as u64,
        flags: match which {
            Which::Containing => 0,
            Which::NextOfFile => 0x10 | 0x20,
        },
        address,
        name_size: name.len() as u32,
        name: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel writes at most `name_size` bytes to `name`, which lives as long.
    match unsafe { ioctl::ioctl(maps, Call::<_, 17>(&mut argument)) } {
        Ok(_) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // The length includes the zero at the end; it is 0 without a name.
    let length = (argument.name_size as usize).saturating_sub(1);
    Ok(Some(Found {
        start: argument.start,
        end: argument.end,
        permissions: argument.permissions,
        offset: argument.offset,
        device: (argument.device_major, argument.device_minor),
        inode: argument.inode,
        name: name[..length.min(name.len())].to_vec(),
    }))
}
