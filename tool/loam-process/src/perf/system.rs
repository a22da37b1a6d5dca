//! The system calls of `perf_event_open`: an event of a thread, and the ring into which the kernel
//! writes its samples.
//!
//! The crate perf-event-open-sys has the kernel's structures; the calls themselves need unsafe
//! code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use perf_event_open_sys::bindings::{self, perf_event_attr, perf_event_mmap_page};
use perf_event_open_sys::{ioctls, perf_event_open};

use crate::process::Pid;

/// Bytes before the data of a ring.
const PAGE: usize = 4_096;
/// Bytes of a record's head: its kind, its flags, its length.
const HEAD: usize = 8;

/// A record: its kind, its flags, and what follows its head.
#[derive(Debug)]
pub struct Raw<'a> {
    /// One of `PERF_RECORD_*`.
    pub kind: u32,
    /// Flags.
    pub misc: u16,
    /// The rest.
    pub body: &'a [u8],
}

/// An event. With the last descriptor of it, the kernel ends it: nothing stays of a tool that is
/// killed.
#[derive(Debug)]
pub struct Event(File);

/// Begins an event of a thread on one processor, or on all (-1).
pub fn open(attributes: &mut perf_event_attr, thread: Pid, cpu: i32) -> io::Result<Event> {
    attributes.size = size_of::<perf_event_attr>() as u32;
    let flags = libc::c_ulong::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attributes live until the call returns, and name their size.
    let number = unsafe { perf_event_open(attributes, thread, cpu, -1, flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(Event(unsafe { File::from_raw_fd(number) }))
}

fn done(answer: libc::c_int) -> io::Result<()> {
    match answer {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Event {
    /// Lets it count, with all threads that inherited it.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: the call takes no argument.
        done(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), 0) })
    }

    /// Stops it, with all threads that inherited it.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: the call takes no argument.
        done(unsafe { ioctls::DISABLE(self.0.as_raw_fd(), 0) })
    }

    /// Lets a program run at each sample, before it is taken.
    pub fn run(&self, program: i32) -> io::Result<()> {
        // SAFETY: the argument is a descriptor.
        done(unsafe { ioctls::SET_BPF(self.0.as_raw_fd(), program as u32) })
    }

    /// Its descriptor, to wait for.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Lets it write into the ring of another event of the same processor.
    pub fn write_into(&self, other: &Event) -> io::Result<()> {
        // SAFETY: the argument is a descriptor.
        done(unsafe { ioctls::SET_OUTPUT(self.0.as_raw_fd(), other.0.as_raw_fd()) })
    }
}

/// The ring of an event, which the kernel fills and this process empties.
#[derive(Debug)]
pub struct Ring {
    memory: NonNull<u8>,
    bytes: usize,
    /// The records that were read last: those that wrap around are copied.
    copy: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone, and only its methods read it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event, with so many bytes of data: a power of two of pages.
    pub fn of(event: &Event, bytes: usize) -> io::Result<Ring> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let file = event.0.as_raw_fd();
        let length = PAGE + bytes;
        // SAFETY: a fresh mapping, at an address that the kernel chooses.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring {
            memory,
            bytes,
            copy: Vec::new(),
        })
    }

    /// Tells every record that is there, and frees its place.
    pub fn drain(&mut self, mut tell: impl FnMut(Raw<'_>)) {
        let page: *mut perf_event_mmap_page = self.memory.as_ptr().cast();
        // SAFETY: the kernel's page lies at the mapping's begin. It writes `data_head` and reads
        // `data_tail`, each as one word, so both are read and written as atomics.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        // Pairs with the kernel's barrier between the data and the head.
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        // This process alone can be at fault if they do not fit; then nothing is read.
        if end.wrapping_sub(at) > self.bytes as u64 {
            tail.store(end, Ordering::Release);
            return;
        }
        while end - at >= HEAD as u64 {
            self.read(at, HEAD);
            let word = |from: usize, to: usize| {
                self.copy[from..to]
                    .iter()
                    .rev()
                    .fold(0u32, |sum, byte| sum << 8 | u32::from(*byte))
            };
            let (kind, misc, length) = (word(0, 4), word(4, 6) as u16, word(6, 8) as usize);
            if length < HEAD || length as u64 > end - at {
                at = end;
                break;
            }
            self.read(at + HEAD as u64, length - HEAD);
            at += length as u64;
            // The record was copied, so the kernel may have its place.
            tail.store(at, Ordering::Release);
            tell(Raw {
                kind,
                misc,
                body: &self.copy,
            });
        }
        tail.store(at, Ordering::Release);
    }

    fn read(&mut self, at: u64, length: usize) {
        let begin = (at % self.bytes as u64) as usize;
        let first = length.min(self.bytes - begin);
        self.copy.clear();
        self.copy.reserve(length);
        // SAFETY: both parts lie within the ring's data, which follows its first page. The kernel
        // writes nothing between tail and head. The vector has room for both.
        unsafe {
            let data = self.memory.as_ptr().add(PAGE);
            let to = self.copy.as_mut_ptr();
            std::ptr::copy_nonoverlapping(data.add(begin), to, first);
            std::ptr::copy_nonoverlapping(data, to.add(first), length - first);
            self.copy.set_len(length);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), PAGE + self.bytes) };
    }
}
