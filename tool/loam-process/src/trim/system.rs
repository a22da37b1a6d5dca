//! The requests of `ptrace` that a trim makes, and the wait for their answers.
//!
//! The crate nix has no PTRACE_GETREGSET for the vector registers, no signal masks, no real-time
//! signals and no seccomp filters, so the requests are made here. No option is ever set that ends a
//! process with its tracer.
#![allow(unsafe_code)]

use std::io;
use std::ptr;

use nix::libc::{self, c_void};

use crate::process::Pid;

/// The general registers.
pub type Registers = libc::user_regs_struct;

const GET_SIGNAL_MASK: u32 = 0x420a;
const SET_SIGNAL_MASK: u32 = 0x420b;
const GET_FILTER: u32 = 0x420c;
const GET_RSEQ: u32 = 0x420f;
/// The note type of the XSAVE area.
const XSTATE: usize = 0x202;
/// Bytes of a signal mask.
const MASK: usize = 8;
/// More than any processor's XSAVE area has.
const MOST_XSTATE: usize = 64 << 10;

/// `request` is signed in musl's headers, and unsigned in glibc's.
fn request(
    request: impl Into<i64>,
    thread: Pid,
    address: usize,
    data: *mut c_void,
) -> io::Result<i64> {
    let request = request.into() as _;
    // SAFETY: every caller passes as `data` either a number or a pointer to a value that lives
    // until the call returns and that has as many bytes as the request writes.
    let answer = unsafe { libc::ptrace(request, thread, address as *mut c_void, data) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

fn number(value: usize) -> *mut c_void {
    ptr::without_provenance_mut(value)
}

/// Begins to trace a thread, which runs on. A stop at a system call is told from others
/// (`TRACESYSGOOD`).
pub fn seize(thread: Pid) -> io::Result<()> {
    let options = number(libc::PTRACE_O_TRACESYSGOOD as usize);
    request(libc::PTRACE_SEIZE, thread, 0, options).map(drop)
}

/// Asks a thread to stop.
pub fn interrupt(thread: Pid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, number(0)).map(drop)
}

/// Lets a thread go on, with a signal if it is not zero.
#[cfg(test)]
pub fn go(thread: Pid, signal: i32) -> io::Result<()> {
    let signal = number(signal as usize);
    request(libc::PTRACE_CONT, thread, 0, signal).map(drop)
}

/// The same up to the next begin or end of a system call.
pub fn go_to_call(thread: Pid, signal: i32) -> io::Result<()> {
    let signal = number(signal as usize);
    request(libc::PTRACE_SYSCALL, thread, 0, signal).map(drop)
}

/// Lets a stopped thread run one instruction.
#[cfg(test)]
pub fn step(thread: Pid) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, thread, 0, number(0)).map(drop)
}

/// Ends the tracing of a stopped thread, which goes on, with a signal if it is not zero.
pub fn let_go(thread: Pid, signal: i32) -> io::Result<()> {
    let signal = number(signal as usize);
    request(libc::PTRACE_DETACH, thread, 0, signal).map(drop)
}

/// The registers of a stopped thread.
pub fn registers(thread: Pid) -> io::Result<Registers> {
    // SAFETY: the structure has only integers, for which zero is a value.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let place = ptr::from_mut(&mut registers).cast();
    request(libc::PTRACE_GETREGS, thread, 0, place)?;
    Ok(registers)
}

/// Sets them.
pub fn set_registers(thread: Pid, registers: &Registers) -> io::Result<()> {
    let mut registers = *registers;
    let place = ptr::from_mut(&mut registers).cast();
    request(libc::PTRACE_SETREGS, thread, 0, place).map(drop)
}

/// The vector registers of a stopped thread, as XSAVE writes them.
pub fn vectors(thread: Pid) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0_u8; MOST_XSTATE];
    let mut piece = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let place = ptr::from_mut(&mut piece).cast();
    request(libc::PTRACE_GETREGSET, thread, XSTATE, place)?;
    bytes.truncate(piece.iov_len);
    Ok(bytes)
}

/// The signals that a stopped thread blocks.
pub fn mask(thread: Pid) -> io::Result<u64> {
    let mut mask = 0_u64;
    let place = ptr::from_mut(&mut mask).cast();
    request(GET_SIGNAL_MASK, thread, MASK, place)?;
    Ok(mask)
}

/// Sets them.
pub fn set_mask(thread: Pid, mut mask: u64) -> io::Result<()> {
    let place = ptr::from_mut(&mut mask).cast();
    request(SET_SIGNAL_MASK, thread, MASK, place).map(drop)
}

/// The address of a stopped thread's record of restartable sequences; zero: it has none.
pub fn sequences(thread: Pid) -> io::Result<u64> {
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        address: u64,
        size: u32,
        signature: u32,
        flags: u32,
        padding: u32,
    }
    let mut found = Configuration::default();
    let place = ptr::from_mut(&mut found).cast();
    request(GET_RSEQ, thread, size_of::<Configuration>(), place)?;
    Ok(found.address)
}

/// One of a thread's seccomp filters, the newest first; none behind the last one.
pub fn filter(thread: Pid, place: usize) -> io::Result<Option<Vec<Instruction>>> {
    let length = match request(GET_FILTER, thread, place, number(0)) {
        Ok(length) => length as usize,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut filter = vec![Instruction::default(); length];
    let room = filter.as_mut_ptr().cast();
    let again = request(GET_FILTER, thread, place, room)? as usize;
    if again != length {
        return Err(io::Error::other("a filter changed while it was read"));
    }
    Ok(Some(filter))
}

/// `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub yes: u8,
    /// The same if it does not hold.
    pub no: u8,
    /// Its operand.
    pub operand: u32,
}

/// The new state of a thread, as `waitpid` tells it; none: nothing new.
pub fn news(thread: Pid) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the status lives until the call returns.
    let answer = unsafe { libc::waitpid(thread, &mut status, libc::__WALL | libc::WNOHANG) };
    match answer {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(status)),
    }
}

/// The same, but waits for something new.
pub fn wait(thread: Pid) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the status lives until the call returns.
        let answer = unsafe { libc::waitpid(thread, &mut status, libc::__WALL) };
        match answer {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            _ => return Ok(status),
        }
    }
}

/// Where a feature's registers end in an XSAVE area.
pub fn end_of_feature(feature: u32) -> usize {
    // SAFETY: a processor that has vector registers to save has this leaf. Newer compilers know
    // that it is safe.
    #[allow(unused_unsafe)]
    let found = unsafe { std::arch::x86_64::__cpuid_count(0xd, feature) };
    (found.eax + found.ebx) as usize
}

/// Whether the kernel lets a process drop ranges of its own memory by `process_madvise` without a
/// descriptor (Linux 6.15). The answer is found by a page of this process.
pub fn takes_ranges_of_itself() -> bool {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping of this process, which nothing else knows, is written to, dropped and
    // unmapped.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(ptr::null_mut(), PAGE, protection, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return false;
        }
        page.cast::<u8>().write_volatile(1);
        let range = libc::iovec {
            iov_base: page,
            iov_len: PAGE,
        };
        let advised = libc::syscall(
            libc::SYS_process_madvise,
            super::inject::SELF,
            ptr::from_ref(&range),
            1_usize,
            libc::MADV_DONTNEED,
            0_u32,
        );
        let is_dropped = page.cast::<u8>().read_volatile() == 0;
        libc::munmap(page, PAGE);
        advised == PAGE as i64 && is_dropped
    }
}
