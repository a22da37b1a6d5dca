//! The system calls of probes: small programs in the kernel (BPF), attached to addresses of a file
//! for one process, and the ring into which they write.
//!
//! No library of our kind offers them without a toolchain for such programs: the programs are some
//! ninety instructions, made in `program`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;

use super::program::Instruction;
use crate::process::Pid;

/// Commands of `bpf()`.
const MAP_CREATE: libc::c_long = 0;
const LOOK_UP: libc::c_long = 1;
const UPDATE: libc::c_long = 2;
const DELETE: libc::c_long = 3;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
/// Kinds of maps.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const RING: u32 = 27;
/// A program for probes, and how it is attached: to many addresses at once (Linux 6.6).
const KPROBE: u32 = 2;
const UPROBE_MULTI: u32 = 48;
/// A program for events of perf.
const PERF_EVENT: u32 = 7;
/// A probe at a function's return.
const AT_RETURN: u32 = 1;
/// The kernel lets programs call helpers that read memory if they say such a licence.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";
/// Bytes of a page, and of a record's head in the ring.
const PAGE: usize = 4_096;
const HEAD: u64 = 8;
/// Flags of a record's length.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// The argument of `bpf()`, as the kernel reads it for our commands: bytes, since each command has
/// its own.
#[repr(C, align(8))]
struct Argument([u8; 128]);

impl Argument {
    fn new() -> Argument {
        Argument([0; 128])
    }

    fn word(mut self, at: usize, value: u32) -> Argument {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn long(mut self, at: usize, value: u64) -> Argument {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn call(mut self, command: libc::c_long) -> io::Result<libc::c_long> {
        // SAFETY: the argument and all that it points to live until the call returns.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                self.0.as_mut_ptr(),
                size_of::<Argument>(),
            )
        };
        match answer {
            0.. => Ok(answer),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn file(self, command: libc::c_long) -> io::Result<File> {
        let number = self.call(command)?;
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Ok(unsafe { File::from_raw_fd(number as libc::c_int) })
    }
}

/// Numbers that programs count: one word, which is how many records found no room.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Makes it.
    pub fn new() -> io::Result<Counter> {
        let argument = Argument::new()
            .word(0, ARRAY)
            .word(4, 4)
            .word(8, 8)
            .word(12, 1);
        Ok(Counter(argument.file(MAP_CREATE)?))
    }

    /// Its descriptor, for programs.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// What it counted.
    pub fn read(&self) -> u64 {
        let (key, mut value) = (0u32, 0u64);
        let argument = Argument::new()
            .word(0, self.0.as_raw_fd() as u32)
            .long(8, &raw const key as u64)
            .long(16, &raw mut value as u64);
        match argument.call(LOOK_UP) {
            Ok(_) => value,
            Err(_) => 0,
        }
    }
}

/// What programs find by a number: an address.
#[derive(Debug)]
pub struct Addresses(File);

impl Addresses {
    /// Makes it, for so many.
    pub fn new(most: usize) -> io::Result<Addresses> {
        let argument = Argument::new()
            .word(0, HASH)
            .word(4, 4)
            .word(8, 8)
            .word(12, most as u32);
        Ok(Addresses(argument.file(MAP_CREATE)?))
    }

    /// Its descriptor, for programs.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Sets the address of a number.
    pub fn set(&self, number: u32, address: u64) -> io::Result<()> {
        let argument = Argument::new()
            .word(0, self.0.as_raw_fd() as u32)
            .long(8, &raw const number as u64)
            .long(16, &raw const address as u64);
        argument.call(UPDATE).map(drop)
    }

    /// Forgets a number.
    pub fn forget(&self, number: u32) -> io::Result<()> {
        let argument = Argument::new()
            .word(0, self.0.as_raw_fd() as u32)
            .long(8, &raw const number as u64);
        argument.call(DELETE).map(drop)
    }
}

/// A program in the kernel.
#[derive(Debug)]
pub struct Program(File);

impl Program {
    /// Loads it for probes; the kernel proves that it ends and touches only what it may.
    pub fn load(instructions: &[Instruction]) -> io::Result<Program> {
        Program::load_as(KPROBE, UPROBE_MULTI, instructions)
    }

    /// Loads it for events of perf.
    pub fn load_for_events(instructions: &[Instruction]) -> io::Result<Program> {
        Program::load_as(PERF_EVENT, 0, instructions)
    }

    /// Its descriptor.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    fn load_as(kind: u32, attached: u32, instructions: &[Instruction]) -> io::Result<Program> {
        let argument = Argument::new()
            .word(0, kind)
            .word(4, instructions.len() as u32)
            .long(8, instructions.as_ptr() as u64)
            .long(16, LICENCE.as_ptr() as u64)
            .word(68, attached);
        Ok(Program(argument.file(PROGRAM_LOAD)?))
    }

    /// Sets probes in a process: at those offsets of the file, or at the returns of the functions
    /// there. They end with the value.
    pub fn attach(
        &self,
        file: &CString,
        places: &[(u64, u64)],
        at_return: bool,
        pid: Pid,
    ) -> io::Result<Link> {
        let offsets: Vec<u64> = places.iter().map(|(offset, _)| *offset).collect();
        let cookies: Vec<u64> = places.iter().map(|(_, cookie)| *cookie).collect();
        let flags = if at_return { AT_RETURN } else { 0 };
        let argument = Argument::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(8, UPROBE_MULTI)
            .long(16, file.as_ptr() as u64)
            .long(24, offsets.as_ptr() as u64)
            .long(40, cookies.as_ptr() as u64)
            .word(48, offsets.len() as u32)
            .word(52, flags)
            .word(56, pid as u32);
        Ok(Link(argument.file(LINK_CREATE)?))
    }
}

/// Probes that are set. With the last descriptor the kernel takes them out: nothing stays of a tool
/// that is killed.
#[derive(Debug)]
pub struct Link(#[expect(dead_code)] File);

/// The ring of programs, which this process empties.
#[derive(Debug)]
pub struct Ring {
    file: File,
    /// The page with what was read, and the pages with what was written and the data, which is
    /// there twice.
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mappings belong to this value alone, and only its methods read them.
unsafe impl Send for Ring {}

fn map(length: usize, protection: i32, file: &File, offset: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping, at an address that the kernel chooses.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(memory.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Ring {
    /// Makes one of so many bytes: a power of two of pages.
    pub fn new(bytes: usize) -> io::Result<Ring> {
        let argument = Argument::new().word(0, RING).word(12, bytes as u32);
        let file = argument.file(MAP_CREATE)?;
        let consumer = map(PAGE, libc::PROT_READ | libc::PROT_WRITE, &file, 0)?;
        let producer = match map(PAGE + 2 * bytes, libc::PROT_READ, &file, PAGE) {
            Ok(producer) => producer,
            Err(error) => {
                // SAFETY: the mapping was made above, and nobody has seen it.
                unsafe { libc::munmap(consumer.as_ptr().cast(), PAGE) };
                return Err(error);
            }
        };
        Ok(Ring {
            file,
            consumer,
            producer,
            bytes,
        })
    }

    /// Its descriptor, for programs.
    pub fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Tells every record that is there, in the order in which they were begun, and frees its
    /// place.
    pub fn drain(&mut self, mut tell: impl FnMut(&[u8])) {
        // SAFETY: both words lie at the begin of their pages. The kernel writes `end` and reads
        // `at`, each as one word.
        let (read, written) = unsafe {
            (
                AtomicU64::from_ptr(self.consumer.as_ptr().cast()),
                AtomicU64::from_ptr(self.producer.as_ptr().cast()),
            )
        };
        let mut at = read.load(Ordering::Relaxed);
        // Pairs with the kernel's release of what it wrote.
        let end = written.load(Ordering::Acquire);
        while at < end {
            let place = PAGE + (at % self.bytes as u64) as usize;
            // SAFETY: a record's head lies in the data, which is mapped twice, so that nothing
            // wraps around. The kernel writes the head last, as one word.
            let head = unsafe {
                AtomicU32::from_ptr(self.producer.as_ptr().add(place).cast())
                    .load(Ordering::Acquire)
            };
            if head & BUSY != 0 {
                break;
            }
            let length = (head & !DISCARDED) as usize;
            if length > self.bytes {
                break;
            }
            if head & DISCARDED == 0 {
                // SAFETY: the record lies within the two copies of the data, and the kernel does
                // not touch it before `read` says so.
                let record = unsafe {
                    std::slice::from_raw_parts(
                        self.producer.as_ptr().add(place + HEAD as usize),
                        length,
                    )
                };
                tell(record);
            }
            at += (HEAD + length as u64).next_multiple_of(8);
            read.store(at, Ordering::Release);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: both mappings are this value's own.
        unsafe {
            libc::munmap(self.consumer.as_ptr().cast(), PAGE);
            libc::munmap(self.producer.as_ptr().cast(), PAGE + 2 * self.bytes);
        }
    }
}

/// The processor time of all threads of a process, those that have ended too.
pub fn processor_time(pid: Pid) -> Option<Duration> {
    // As the C library's clock_getcpuclockid(): the process's number, and 2 for the scheduler's
    // clock.
    let clock = (!pid << 3) | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes into `time`.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

// Two functions to measure the price of a probe with: one begins with an instruction that the
// kernel executes itself, the other with one that the processor has to step over.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl loam_probe_me_emulated",
    "loam_probe_me_emulated:",
    "push rbp",
    "pop rbp",
    "ret",
    ".globl loam_probe_me_stepped",
    "loam_probe_me_stepped:",
    "mov rax, rdi",
    "ret",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl loam_probe_me_emulated",
    "loam_probe_me_emulated:",
    "nop",
    "ret",
    ".globl loam_probe_me_stepped",
    "loam_probe_me_stepped:",
    "mov x9, x0",
    "ret",
);

unsafe extern "C" {
    fn loam_probe_me_emulated();
    fn loam_probe_me_stepped();
}

/// The addresses of the two functions.
pub fn own_functions() -> [u64; 2] {
    let (one, other): (unsafe extern "C" fn(), unsafe extern "C" fn()) =
        (loam_probe_me_emulated, loam_probe_me_stepped);
    [one as usize as u64, other as usize as u64]
}

/// Calls one of them.
pub fn call_own(which: usize) {
    // SAFETY: they take and change nothing.
    match which {
        0 => unsafe { loam_probe_me_emulated() },
        _ => unsafe { loam_probe_me_stepped() },
    }
}
