//! Whether a thread's seccomp filters let it make the calls of a trim. A filter may end the process
//! for a call that it does not allow, so the filters are run here first.

use nix::libc;

use super::system::{self, Instruction};
use super::TrimError;
use crate::process::{status_value, Pid};

/// The calls of a trim. Without `process_madvise` each range has a call of its own.
const CALLS: [i64; 4] = [
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_rt_sigreturn,
];
/// `SECCOMP_RET_ALLOW`, `_LOG`.
const ALLOWED: [u32; 2] = [0x7fff_0000, 0x7ffc_0000];

/// Fails if a filter of a stopped thread may be against it. Whether `process_madvise` is allowed as
/// well.
pub fn require(thread: Pid, pid: Pid, trusts: bool) -> Result<bool, TrimError> {
    if !has_filters(thread) {
        return Ok(true);
    }
    let mut takes_ranges = true;
    let mut place = 0;
    loop {
        let filter = match system::filter(thread, place) {
            Ok(Some(filter)) => filter,
            Ok(None) if place > 0 => return Ok(takes_ranges),
            _ if trusts => return Ok(false),
            _ => return Err(TrimError::Filters(pid)),
        };
        let allows = |call: i64| {
            let answer = run(&filter, call as u32).unwrap_or(0) & 0xffff_0000;
            ALLOWED.contains(&answer)
        };
        if let Some(call) = CALLS.into_iter().find(|call| !allows(*call)) {
            return Err(TrimError::Forbidden(name(call)));
        }
        takes_ranges &= allows(libc::SYS_process_madvise);
        place += 1;
    }
}

fn name(call: i64) -> &'static str {
    match call {
        libc::SYS_madvise => "madvise",
        libc::SYS_futex => "futex",
        libc::SYS_getpid => "getpid",
        _ => "rt_sigreturn",
    }
}

fn has_filters(thread: Pid) -> bool {
    status_value(thread, "Seccomp").is_none_or(|mode| mode != "0")
}

/// The answer of a filter to a call whose arguments it does not look at. None: it looks at them, or
/// is not understood.
fn run(filter: &[Instruction], call: u32) -> Option<u32> {
    const X86_64: u32 = 0xc000_003e;
    let (mut at, mut sum, mut index) = (0_usize, 0_u32, 0_u32);
    let mut scratch = [0_u32; 16];
    // Jumps lead forward only.
    for _ in 0..filter.len() {
        let Instruction {
            code,
            yes,
            no,
            operand,
        } = *filter.get(at)?;
        at += 1;
        let other = if code & 8 == 0 { operand } else { index };
        match code {
            0x20 => {
                sum = match operand {
                    0 => call,
                    4 => X86_64,
                    _ => return None,
                }
            }
            0x80 => sum = 64,
            0x00 => sum = operand,
            0x01 => index = operand,
            0x60 => sum = *scratch.get(operand as usize)?,
            0x61 => index = *scratch.get(operand as usize)?,
            0x02 => *scratch.get_mut(operand as usize)? = sum,
            0x03 => *scratch.get_mut(operand as usize)? = index,
            0x07 => index = sum,
            0x87 => sum = index,
            0x04 | 0x0c => sum = sum.wrapping_add(other),
            0x14 | 0x1c => sum = sum.wrapping_sub(other),
            0x54 | 0x5c => sum &= other,
            0x44 | 0x4c => sum |= other,
            0xa4 | 0xac => sum ^= other,
            0x64 | 0x6c => sum = sum.checked_shl(other).unwrap_or(0),
            0x74 | 0x7c => sum = sum.checked_shr(other).unwrap_or(0),
            0x05 => at += operand as usize,
            0x15 | 0x1d => at += usize::from(if sum == other { yes } else { no }),
            0x25 | 0x2d => at += usize::from(if sum > other { yes } else { no }),
            0x35 | 0x3d => at += usize::from(if sum >= other { yes } else { no }),
            0x45 | 0x4d => at += usize::from(if sum & other != 0 { yes } else { no }),
            0x06 => return Some(operand),
            0x16 => return Some(sum),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_run_for_a_call_and_one_that_looks_at_arguments_is_not_understood() {
        let instruction = |code, yes, no, operand| Instruction {
            code,
            yes,
            no,
            operand,
        };
        // Ends the process for madvise and allows all others.
        let filter = [
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, libc::SYS_madvise as u32),
            instruction(0x06, 0, 0, 0x8000_0000),
            instruction(0x06, 0, 0, 0x7fff_0000),
        ];
        assert_eq!(run(&filter, libc::SYS_madvise as u32), Some(0x8000_0000));
        assert_eq!(run(&filter, libc::SYS_futex as u32), Some(0x7fff_0000));
        let looks = [instruction(0x20, 0, 0, 16), filter[3]];
        assert_eq!(run(&looks, 1), None);
        assert_eq!(run(&filter[..2], 1), None, "it has no end");
    }
}
