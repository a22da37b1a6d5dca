//! The words from which the kernel sets a thread's registers when a signal handler returns (`struct
//! rt_sigframe` of x86-64), written as if a signal had interrupted the thread where the program
//! was.

use nix::libc;

use super::system::{self, Registers};

/// Bytes of a frame: the return address, the context, the signal mask.
pub const LENGTH: u64 = 8 + CONTEXT + 8;
const CONTEXT: u64 = 40 + 256;
/// Where a frame has the first argument of a call.
pub const FIRST_ARGUMENT: u64 = 8 + 40 + 8 * 8;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const FLAGS: u64 = 1 | 2 | 4;
/// No state of an alternate stack has this number. The kernel then leaves the thread's alternate
/// stack as it is.
const NO_STACK: u32 = 0x40;

/// Where the vector registers say how long they are.
const DESCRIPTION: usize = 464;
const BEGINS: u32 = 0x4650_5853;
const ENDS: u32 = 0x4650_5845;
/// Where they say which of them are there, and the length without any more.
const PRESENT: usize = 512;
const SHORTEST: usize = 576;

/// What the kernel answers inside of itself when it will begin a call again: as long as the signal
/// handler says so, always, without a handler, and by a call of its own.
const RESTART: [i64; 3] = [-512, -513, -514];
const RESTART_BLOCK: i64 = -516;

/// Adds what a signal frame has beyond XSAVE's bytes, and cuts off what is not in use. None: they
/// are not understood.
pub fn close(vectors: &mut Vec<u8>) -> Option<()> {
    let present = u64::from_le_bytes(*vectors.get(PRESENT..)?.first_chunk()?);
    let length = (2..63)
        .filter(|feature| present >> feature & 1 == 1)
        .map(system::end_of_feature)
        .fold(SHORTEST, usize::max);
    if vectors.len() < length {
        return None;
    }
    vectors.truncate(length);
    let mut put = |place: usize, bytes: &[u8]| {
        vectors[place..place + bytes.len()].copy_from_slice(bytes);
    };
    put(DESCRIPTION, &BEGINS.to_le_bytes());
    put(DESCRIPTION + 4, &(length as u32 + 4).to_le_bytes());
    put(DESCRIPTION + 8, &(present | 3).to_le_bytes());
    put(DESCRIPTION + 16, &(length as u32).to_le_bytes());
    put(DESCRIPTION + 20, &[0; 28]);
    vectors.extend(ENDS.to_le_bytes());
    Some(())
}

/// The registers with which a thread goes on that was stopped in a system call: it makes the call
/// again. A call that the kernel continues by `restart_syscall` begins with its whole time, since a
/// signal's return forgets the rest. `code`: the bytes before the thread's instruction, which say
/// what the call was if it had been continued already.
pub fn restarted(registers: &Registers, code: &[u8; 7]) -> Registers {
    let mut registers = *registers;
    let answer = registers.rax as i64;
    let is_call = registers.orig_rax as i64 >= 0;
    if is_call && (RESTART.contains(&answer) || answer == RESTART_BLOCK) {
        registers.rax = match code {
            // mov $number, %eax; syscall
            [0xb8, number @ .., 0x0f, 0x05]
                if registers.orig_rax as i64 == libc::SYS_restart_syscall =>
            {
                u64::from(
                    number
                        .first_chunk()
                        .map_or(0, |word| u32::from_le_bytes(*word)),
                )
            }
            _ => registers.orig_rax,
        };
        registers.rip -= 2;
    }
    registers.orig_rax = u64::MAX;
    registers
}

/// Calls that return EINTR after any interruption, also one that no signal handler saw, and that
/// have done nothing then.
const NEVER_RESTARTED: [i64; 8] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_uring_enter,
    libc::SYS_io_getevents,
];

/// Whether a stop made a call fail that would not have failed without it.
pub fn failed_by_stop(registers: &Registers) -> bool {
    registers.rax as i64 == -i64::from(libc::EINTR)
        && NEVER_RESTARTED.contains(&(registers.orig_rax as i64))
}

/// The same registers, but the kernel makes the call again unless a signal handler runs.
pub fn to_be_restarted(registers: &Registers) -> Registers {
    Registers {
        rax: RESTART[2] as u64,
        ..*registers
    }
}

/// The call by which a thread waits on, if a stop may have ended its wait early: `io_uring_enter`
/// that has submitted something says how much, whether it has waited or not. What it waited for
/// stays in its ring, so a second wait never lasts too long.
pub fn waits_on(registers: &Registers) -> Option<(u64, [u64; 6])> {
    const GET_EVENTS: u64 = 1;
    let Registers {
        rdi, rsi, rdx, r10, ..
    } = *registers;
    let has_submitted = registers.orig_rax as i64 == libc::SYS_io_uring_enter
        && registers.rax as i64 > 0
        && rsi > 0;
    let has_waited = has_submitted && rdx as u32 > 0 && r10 & GET_EVENTS != 0;
    has_waited.then_some((
        registers.orig_rax,
        [rdi, 0, rdx, r10, registers.r8, registers.r9],
    ))
}

/// A frame whose first word is the address of the restorer.
pub fn frame(restorer: u64, registers: &Registers, mask: u64, vectors: u64) -> Vec<u8> {
    let mut words = vec![restorer, FLAGS, 0, 0, u64::from(NO_STACK), 0];
    words.extend([
        registers.r8,
        registers.r9,
        registers.r10,
        registers.r11,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
        registers.rdi,
        registers.rsi,
        registers.rbp,
        registers.rbx,
        registers.rdx,
        registers.rax,
        registers.rcx,
        registers.rsp,
        registers.rip,
        registers.eflags,
        registers.cs & 0xffff | (registers.ss & 0xffff) << 48,
    ]);
    // The fault that led to the signal, of which there was none.
    words.extend([0; 4]);
    words.push(vectors);
    words.extend([0; 8]);
    words.push(mask);
    debug_assert_eq!(words.len() as u64 * 8, LENGTH);
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}
