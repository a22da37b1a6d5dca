//! What the kernel writes into a ring, told as values.

use loam_format::bytes::{u32_at, u64_at};
use perf_event_open_sys::bindings as perf;

use super::system::Raw;
use crate::process::Pid;
use crate::rings::{CopiedStack, Registers};

/// What every sample of ours has, in the kernel's order.
pub(super) const PARTS: u64 = (perf::PERF_SAMPLE_TID
    | perf::PERF_SAMPLE_TIME
    | perf::PERF_SAMPLE_ADDR
    | perf::PERF_SAMPLE_REGS_USER
    | perf::PERF_SAMPLE_STACK_USER) as u64;

/// The registers that unwinding begins with, by their numbers.
#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const FRAME: u32 = 6;
    pub const STACK: u32 = 7;
    pub const INSTRUCTION: u32 = 8;
    pub const LINK: u32 = INSTRUCTION;
}
#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const FRAME: u32 = 29;
    pub const LINK: u32 = 30;
    pub const STACK: u32 = 31;
    pub const INSTRUCTION: u32 = 32;
}
use numbers::{FRAME, INSTRUCTION, LINK, STACK};

/// Their mask.
pub(super) const REGISTERS: u64 = 1 << FRAME | 1 << STACK | 1 << INSTRUCTION | 1 << LINK;

/// A thread at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub process: Pid,
    /// The thread.
    pub thread: Pid,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The address that the event is about.
    pub address: u64,
    /// The stack, if the thread had one: not one that is ending.
    pub stack: Option<CopiedStack>,
}

/// What a ring tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A sample.
    Sample(Sample),
    /// So many samples were lost, because the ring was full.
    Lost(u64),
    /// A thread of this process began, and the event goes on in it.
    Began(Pid, Pid),
    /// The process became another program.
    Became(Pid),
}

/// Reads a record; none if it is of no interest, or if it is cut.
pub(super) fn read(raw: &Raw<'_>) -> Option<Told> {
    let body = raw.body;
    let word = |at: usize| u64_at(body, at);
    let number = |at: usize| u32_at(body, at).map(|word| word as Pid);
    match raw.kind {
        perf::PERF_RECORD_SAMPLE => sample(body).map(Told::Sample),
        // The event's number comes first.
        perf::PERF_RECORD_LOST => Some(Told::Lost(word(8)?)),
        perf::PERF_RECORD_LOST_SAMPLES => Some(Told::Lost(word(0)?)),
        // pid, parent's pid, tid.
        perf::PERF_RECORD_FORK => Some(Told::Began(number(0)?, number(8)?)),
        perf::PERF_RECORD_COMM if u32::from(raw.misc) & perf::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Some(Told::Became(number(0)?))
        }
        _ => None,
    }
}

fn sample(body: &[u8]) -> Option<Sample> {
    const REGISTERS_AT: usize = 24;
    let number = |at: usize| u32_at(body, at).map(|word| word as Pid);
    let mut sample = Sample {
        process: number(0)?,
        thread: number(4)?,
        time: u64_at(body, 8)?,
        address: u64_at(body, 16)?,
        stack: None,
    };
    // No registers: the thread was in the kernel for itself.
    if u64_at(body, REGISTERS_AT)? == 0 {
        return Some(sample);
    }
    let register = |number: u32| {
        let before = REGISTERS & ((1 << number) - 1);
        u64_at(body, REGISTERS_AT + 8 + 8 * before.count_ones() as usize)
    };
    let registers = Registers {
        instruction: register(INSTRUCTION)?,
        stack: register(STACK)?,
        frame: register(FRAME)?,
        link: if LINK == INSTRUCTION {
            0
        } else {
            register(LINK)?
        },
    };
    let at = REGISTERS_AT + 8 + 8 * REGISTERS.count_ones() as usize;
    let room = usize::try_from(u64_at(body, at)?).ok()?;
    let bytes = body.get(at + 8..)?.get(..room)?;
    // How many of these bytes the kernel could read.
    let there = match room {
        0 => 0,
        _ => usize::try_from(u64_at(body, at + 8 + room)?).ok()?,
    };
    sample.stack = Some(CopiedStack {
        registers,
        bytes: bytes.get(..there)?.to_vec(),
        ..CopiedStack::default()
    });
    Some(sample)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_fault(
            kind in 0u32..24,
            body in proptest::collection::vec(any::<u8>(), 0..256),
        ) {
            let _ = read(&Raw { kind, misc: 0x2000, body: &body });
        }
    }

    #[test]
    fn a_cut_sample_is_none() {
        let mut body = Vec::new();
        for word in [7 | 8 << 32, 9, 0x5000, 2] {
            body.extend_from_slice(&u64::to_le_bytes(word));
        }
        for number in 0..u64::from(REGISTERS.count_ones()) {
            body.extend_from_slice(&(100 + number).to_le_bytes());
        }
        for word in [16, 1, 2, 8] {
            body.extend_from_slice(&u64::to_le_bytes(word));
        }
        let whole = sample(&body).unwrap();
        assert_eq!(
            (whole.process, whole.thread, whole.time, whole.address),
            (7, 8, 9, 0x5000)
        );
        let stack = whole.stack.unwrap();
        assert_eq!(stack.bytes, 1u64.to_le_bytes());
        assert_eq!(stack.registers.frame, 100);
        for length in 0..body.len() {
            assert!(sample(&body[..length]).is_none(), "{length}");
        }
    }
}
