//! System calls that a stopped thread makes for a trim, so that the tool may die at any moment.
//!
//! No byte of the program's code changes. The thread runs `syscall; ret`, which the C library
//! contains, and its stack has, below the red zone, what it needs to get home alone:
//!
//! ```text
//!  high   red zone (128 bytes)           the program's
//!         ranges                         what process_madvise reads
//!         vector registers               as XSAVE wrote them
//!    home [restorer][all registers, signal mask]
//!  unlock [restorer][registers of a futex call that unlocks; its stack pointer is `home`]
//! ```
//!
//! `restorer` is the C library's own `mov $15, %rax; syscall`, to which signal handlers return: the
//! kernel then sets all registers from the words behind it. Wherever the tool dies, the thread
//! finishes its call, returns to the restorer, unlocks if it has locked, and goes on as before.
//! While the tool lives none of this runs: the tool stops the thread behind each call, and sets its
//! registers itself, which leaves a system call's rest of time alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::libc;

use super::home;
use super::system::{self, Registers};
use super::{Step, TrimError, Watch};
use crate::process::Pid;

/// `PIDFD_SELF_THREAD`: the calling thread, without a descriptor. The process has no memory by its
/// own number when its first thread has ended.
pub const SELF: libc::c_int = -10_000;
/// How many ranges one call takes. Chosen: the ranges take 2 KiB of the thread's stack.
pub const MOST_RANGES: usize = 128;
/// What the x86-64 calling convention keeps below the stack pointer.
const RED_ZONE: u64 = 128;
/// What has to be free below the frames, for a signal handler if the tool dies. Chosen: four times
/// the longest frame that the kernel writes on a processor without matrix registers.
const SLACK: u64 = 16 << 10;
/// `FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG`. With a last argument of zero it stores zero, and wakes.
const WAKE_AND_STORE: u64 = 5 | 128;

/// The places in the program's code that a trim uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gadgets {
    /// `syscall; ret`.
    pub call: u64,
    /// `mov $15, %rax; syscall`.
    pub restorer: u64,
    /// `__lll_lock_wait_private`: returns when it has the lock.
    pub lock: Option<u64>,
}

/// `mov $15, %rax; syscall`.
pub const RESTORER: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `syscall; ret`.
pub const CALL: &[u8] = &[0x0f, 0x05, 0xc3];
/// Bytes of the instruction `syscall`.
const SYSCALL: u64 = 2;

/// What happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// At the begin or the end of a system call.
    Call,
    /// By a request of the tool, or with its group. Then a signal number is here.
    Asked(i32),
    /// A signal is about to be delivered.
    Signal(i32),
    /// It does not exist any more.
    Ended,
}

impl Stop {
    /// What `waitpid` says.
    pub fn of(status: i32) -> Stop {
        const ASKED: i32 = libc::PTRACE_EVENT_STOP;
        if !libc::WIFSTOPPED(status) {
            return Stop::Ended;
        }
        match (libc::WSTOPSIG(status), status >> 16) {
            (signal, _) if signal == libc::SIGTRAP | 0x80 => Stop::Call,
            (libc::SIGTRAP, ASKED) => Stop::Asked(0),
            (signal, ASKED) => Stop::Asked(signal),
            (signal, _) => Stop::Signal(signal),
        }
    }
}

/// A stopped thread, whose registers are those of the program.
pub struct Held {
    /// The thread.
    pub thread: Pid,
    /// Its registers.
    pub registers: Registers,
}

/// A thread that makes calls for a trim. It has to be sent home ([`Errand::go_home`]).
pub struct Errand<'a> {
    held: &'a Held,
    memory: &'a File,
    gadgets: Gadgets,
    watch: &'a Watch,
    mask: u64,
    /// What the stack held where the frames are now.
    before: Vec<u8>,
    lowest: u64,
    ranges: u64,
    home: u64,
    unlock: u64,
    /// The arena whose lock it has.
    locked: bool,
    /// Whether it stands at the begin of a call that has not been made.
    at_begin: bool,
}

impl<'a> Errand<'a> {
    /// Starts one. `stack`: the lowest address of the thread's stack. `lock`: the address of the
    /// arena's lock, if that has to be taken. An error leaves the thread as it was.
    pub fn begin(
        held: &'a Held,
        memory: &'a File,
        gadgets: Gadgets,
        stack: u64,
        lock: u64,
        watch: &'a Watch,
    ) -> Result<Errand<'a>, TrimError> {
        let refused = |what: &str| Err(TrimError::Thread(what.to_owned()));
        let thread = held.thread;
        let registers = &held.registers;
        let mut vectors = system::vectors(thread)?;
        home::close(&mut vectors)
            .ok_or_else(|| TrimError::Thread("its vector registers can not be saved".to_owned()))?;
        let mask = system::mask(thread)?;
        let ranges =
            (registers.rsp.saturating_sub(RED_ZONE) & !63).saturating_sub(16 * MOST_RANGES as u64);
        let at = ranges.saturating_sub(vectors.len() as u64) & !63;
        // At a function's begin the stack pointer is a multiple of 16, less 8.
        let below = |place: u64| (place.saturating_sub(home::LENGTH) & !15).saturating_sub(8);
        let home = below(at);
        let unlock = below(home);
        if unlock < stack.saturating_add(SLACK) {
            return refused("too little of its stack is free");
        }
        let mut frames = vec![0; (registers.rsp - RED_ZONE - unlock) as usize];
        let before = frames.clone();
        let mut put = |place: u64, bytes: &[u8]| {
            let offset = (place - unlock) as usize;
            frames[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        put(at, &vectors);
        let mut code = [0; 7];
        // Without them the call is begun as it is.
        let _ = memory.read_exact_at(&mut code, registers.rip.saturating_sub(7));
        let end = home::restarted(registers, &code);
        put(home, &home::frame(gadgets.restorer, &end, mask, at));
        let open = Registers {
            rip: gadgets.call,
            rsp: home,
            ..unlocking(registers, lock)
        };
        put(unlock, &home::frame(gadgets.restorer, &open, u64::MAX, at));
        let mut errand = Errand {
            held,
            memory,
            gadgets,
            watch,
            mask,
            before,
            lowest: unlock,
            ranges,
            home,
            unlock,
            locked: false,
            at_begin: false,
        };
        errand.memory.read_exact_at(&mut errand.before, unlock)?;
        errand.memory.write_all_at(&frames, unlock)?;
        watch.at(Step::Framed);
        // From here on the thread gets home alone, by way of a call that does nothing.
        let nothing = errand.call(libc::SYS_getpid as u64, [0; 6], home);
        if let Err(error) = errand.start(&nothing) {
            let _ = errand.restore();
            return Err(error);
        }
        Ok(errand)
    }

    fn start(&self, nothing: &Registers) -> Result<(), TrimError> {
        let thread = self.held.thread;
        system::set_registers(thread, nothing)?;
        self.watch.at(Step::Armed);
        // After the registers: at home the mask is the program's.
        system::set_mask(thread, u64::MAX)?;
        self.watch.at(Step::Masked);
        Ok(())
    }

    /// Registers at the instruction of a system call.
    fn call(&self, number: u64, arguments: [u64; 6], stack: u64) -> Registers {
        const TRAPS: u64 = 0x100 | 0x400;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = self.held.registers;
        Registers {
            rip: self.gadgets.call,
            rsp: stack,
            rax: number,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            eflags: registers.eflags & !TRAPS,
            ..registers
        }
    }

    /// The thread's next stop at a system call.
    fn to_call(&self) -> Result<(), TrimError> {
        self.go_to_call(|| {})
    }

    /// The same. Meanwhile the caller does something.
    fn go_to_call(&self, meanwhile: impl FnOnce()) -> Result<(), TrimError> {
        let thread = self.held.thread;
        let mut signal = 0;
        let mut meanwhile = Some(meanwhile);
        loop {
            system::go_to_call(thread, signal)?;
            signal = 0;
            if let Some(does) = meanwhile.take() {
                does();
            }
            match Stop::of(system::wait(thread)?) {
                Stop::Call => return Ok(()),
                Stop::Asked(_) => {}
                // It can not be held back.
                Stop::Signal(libc::SIGSTOP) => signal = libc::SIGSTOP,
                Stop::Signal(number) => {
                    return Err(TrimError::Thread(format!(
                        "signal {number} came in the middle"
                    )));
                }
                Stop::Ended => return Err(TrimError::Ended),
            }
        }
    }

    /// Makes a system call. Its result.
    fn make(&mut self, registers: &Registers) -> Result<i64, TrimError> {
        self.make_at(registers, Step::Begun, Step::Made, || {})
    }

    fn make_at(
        &mut self,
        registers: &Registers,
        begun: Step,
        made: Step,
        meanwhile: impl FnOnce(),
    ) -> Result<i64, TrimError> {
        let thread = self.held.thread;
        let mut registers = *registers;
        if self.at_begin {
            // A call has begun already: this one takes its place.
            registers.orig_rax = registers.rax;
            registers.rax = (-i64::from(libc::ENOSYS)) as u64;
            registers.rip += SYSCALL;
            system::set_registers(thread, &registers)?;
        } else {
            system::set_registers(thread, &registers)?;
            self.watch.at(Step::Set);
            self.to_call()?;
        }
        self.at_begin = true;
        self.watch.at(begun);
        self.go_to_call(meanwhile)?;
        self.at_begin = false;
        self.watch.at(made);
        Ok(system::registers(thread)?.rax as i64)
    }

    /// Takes the arena's lock. False: another thread has it.
    pub fn lock(&mut self, lock: u64) -> Result<bool, TrimError> {
        let Some(function) = self.gadgets.lock else {
            return Ok(false);
        };
        let thread = self.held.thread;
        let registers = Registers {
            rip: function,
            rax: 0,
            ..self.call(0, [lock, 0, 0, 0, 0, 0], self.unlock)
        };
        system::set_registers(thread, &registers)?;
        self.watch.at(Step::Locking);
        self.to_call()?;
        let now = system::registers(thread)?;
        self.at_begin = true;
        self.locked = now.orig_rax == libc::SYS_rt_sigreturn as u64;
        self.watch.at(Step::Locked);
        Ok(self.locked)
    }

    /// Gives back ranges of the process's memory. How many bytes were accepted.
    /// What has to be done meanwhile may be done while the thread is in the kernel.
    pub fn give_back(
        &mut self,
        ranges: &[(u64, u64)],
        at_once: bool,
        meanwhile: impl FnOnce(),
    ) -> Result<u64, TrimError> {
        let stack = if self.locked { self.unlock } else { self.home };
        let advice = libc::MADV_DONTNEED as u64;
        if at_once {
            let words: Vec<u8> = ranges
                .iter()
                .flat_map(|(start, end)| [*start, end - start])
                .flat_map(u64::to_le_bytes)
                .collect();
            self.memory.write_all_at(&words, self.ranges)?;
            let arguments = [SELF as u64, self.ranges, ranges.len() as u64, advice, 0, 0];
            let call = self.call(libc::SYS_process_madvise as u64, arguments, stack);
            let answer = self.make_at(&call, Step::Begun, Step::Made, meanwhile)?;
            return u64::try_from(answer).map_err(|_| refused(answer));
        }
        let mut bytes = 0;
        meanwhile();
        for (start, end) in ranges {
            let arguments = [*start, end - start, advice, 0, 0, 0];
            let call = self.call(libc::SYS_madvise as u64, arguments, stack);
            match self.make(&call)? {
                0 => bytes += end - start,
                _ if bytes > 0 => break,
                answer => return Err(refused(answer)),
            }
        }
        Ok(bytes)
    }

    /// Unlocks, and gives the thread its registers back. It stands at the end of a system call, or
    /// where it stood before, with the program's registers. The kernel looks there whether a call
    /// that was interrupted has to be begun again, because the end of the tracing counts as a
    /// signal (`ptrace_unlink`).
    pub fn go_home(mut self) -> Result<(), TrimError> {
        let held = self.held;
        if self.locked {
            let call = self.call(0, [0; 6], self.home);
            let open = Registers {
                rip: call.rip,
                rsp: call.rsp,
                eflags: call.eflags,
                ..unlocking(&held.registers, self.lock_address()?)
            };
            self.make_at(&open, Step::Unlocking, Step::Unlocked, || {})?;
            self.locked = false;
        } else if self.at_begin {
            // It waits for the lock no longer.
            let nothing = self.call(libc::SYS_getpid as u64, [0; 6], self.home);
            self.make(&nothing)?;
        }
        self.restore()
    }

    /// The program's mask, registers and stack.
    fn restore(&mut self) -> Result<(), TrimError> {
        let thread = self.held.thread;
        system::set_mask(thread, self.mask)?;
        self.watch.at(Step::Unmasked);
        if let Some(waits) = home::waits_on(&self.held.registers) {
            // The thread waits on, and gets home by its stack with the answer that it would have
            // had.
            let call = self.call(waits.0, waits.1, self.home);
            system::set_registers(thread, &call)?;
            self.watch.at(Step::Restored);
            return Ok(());
        }
        system::set_registers(thread, &self.held.registers)?;
        self.watch.at(Step::Restored);
        self.memory.write_all_at(&self.before, self.lowest)?;
        Ok(())
    }

    /// The lock is in the frame that unlocks.
    fn lock_address(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        self.memory
            .read_exact_at(&mut word, self.unlock + home::FIRST_ARGUMENT)?;
        Ok(u64::from_le_bytes(word))
    }
}

/// A futex call that stores zero at the lock and wakes one thread that waits for it.
fn unlocking(registers: &Registers, lock: u64) -> Registers {
    Registers {
        rax: libc::SYS_futex as u64,
        orig_rax: u64::MAX,
        rdi: lock,
        rsi: WAKE_AND_STORE,
        rdx: 1,
        r10: 0,
        r8: lock,
        r9: 0,
        ..*registers
    }
}

fn refused(answer: i64) -> TrimError {
    TrimError::Refused(io::Error::from_raw_os_error(-answer as i32).to_string())
}
