//! Which frame of C executes which Python frames.
//!
//! ```text
//! stack of C       chain of the thread
//! malloc
//! list_append
//! eval   <-------- leak, handle, (shim, which lies in eval's frame)
//! call_function
//! eval   <-------- serve, main, (shim)
//! main
//! ```
//!
//! Both were copied at the same moment. Where they do not fit each other, nothing is told.

use std::ops::Range;

use loam_format::bytes::u64_at;

use super::calls::Chain;
use super::layout::{Bounds, Layout};
use crate::rings::CopiedStack;

/// Which frames of a chain belong where.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The number of a frame of C, and its Python frames.
    pub parts: Vec<(usize, Range<usize>)>,
    /// Python frames further out than all that is known of the stack of C.
    pub rest: Range<usize>,
}

/// Places a chain. `pointers`: the stack pointer in each frame of C, the innermost first; a frame
/// ends where the next one begins.
pub fn place(layout: &Layout, chain: &Chain, stack: &CopiedStack, pointers: &[u64]) -> Placed {
    let holder = |address: u64| {
        let behind = pointers.partition_point(|pointer| *pointer <= address);
        (behind > 0 && behind < pointers.len()).then(|| behind - 1)
    };
    let on_stack = |address: u64| {
        let offset = address.checked_sub(stack.registers.stack)?;
        u64_at(&stack.bytes, usize::try_from(offset).ok()?)
    };
    let mut placed = Placed::default();
    // A signal's handler on a stack of its own.
    if !pointers.is_sorted() {
        return placed;
    }
    let mut record = chain.record;
    let mut begin = 0;
    let ends = chain.frames.iter().enumerate();
    for (at, end) in ends.filter(|(_, frame)| layout.is_end(frame.kind)) {
        let (holder, part) = match layout.bounds {
            Bounds::Shims => (holder(end.address), begin..at),
            Bounds::Records { frame, before } => {
                let holder = holder(record);
                if holder.is_some() {
                    let first = chain.frames[begin].address;
                    let told = (on_stack(record + frame), on_stack(record + before));
                    match told {
                        (Some(told), Some(next)) if told == first => record = next,
                        // The record is no record.
                        _ => return Placed::default(),
                    }
                }
                (holder, begin..at + 1)
            }
        };
        let Some(holder) = holder else {
            // Without a part that fits, nothing proves that the chain is this stack's.
            if !placed.parts.is_empty() {
                placed.rest = begin..chain.frames.len();
            }
            break;
        };
        if placed
            .parts
            .last()
            .is_some_and(|(before, _)| *before >= holder)
        {
            return Placed::default();
        }
        placed.parts.push((holder, part));
        begin = at + 1;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::super::calls::Frame;
    use super::*;
    use crate::rings::Registers;

    const STACK: u64 = 0x7000;

    fn chain(kinds: &[(u64, u8)]) -> Chain {
        let frame = |(address, kind): &(u64, u8)| Frame {
            address: *address,
            kind: *kind,
            ..Frame::default()
        };
        Chain {
            record: 0,
            frames: kinds.iter().map(frame).collect(),
        }
    }

    fn stack(words: &[(u64, u64)]) -> CopiedStack {
        let mut bytes = vec![0; 0x300];
        for (at, word) in words {
            let at = (at - STACK) as usize;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        CopiedStack {
            registers: Registers {
                stack: STACK,
                ..Registers::default()
            },
            bytes,
            ..CopiedStack::default()
        }
    }

    /// Frames of C with 0x40 bytes each.
    const POINTERS: [u64; 6] = [0x7000, 0x7040, 0x7080, 0x70c0, 0x7100, 0x7140];

    #[test]
    fn shims_say_which_frame_of_c_executes_what() {
        let layout = Layout::of(12, &[]).unwrap();
        let place = |chain: &Chain| place(&layout, chain, &stack(&[]), &POINTERS);
        let two = chain(&[(1, 0), (2, 0), (0x7048, 3), (3, 1), (0x70c8, 3)]);
        let found = place(&two);
        assert_eq!(found.parts, [(1, 0..2), (3, 3..4)]);
        assert_eq!(found.rest, 0..0);
        // The second shim lies further out than what is known.
        let beyond = chain(&[(1, 0), (0x7048, 3), (3, 1), (0x7148, 3), (4, 0)]);
        let found = place(&beyond);
        assert_eq!((found.parts, found.rest), (vec![(1, 0..1)], 2..5));
        // The chain was too long to be copied to its end.
        let cut = chain(&[(1, 0), (0x7048, 3), (3, 1)]);
        assert_eq!(place(&cut).rest, 0..0);
        // Another thread's chain, one in another order, and two shims in one frame.
        for wrong in [[0x9000, 0x9100], [0x70c8, 0x7048], [0x7048, 0x7050]] {
            let wrong = chain(&[(1, 0), (wrong[0], 3), (2, 0), (wrong[1], 3)]);
            assert_eq!(place(&wrong), Placed::default());
        }
    }

    #[test]
    fn records_of_3_11_have_to_agree_with_the_chain() {
        let layout = Layout::of(11, &[]).unwrap();
        let mut two = chain(&[(1, 0), (2, 1), (3, 1)]);
        two.record = 0x7048;
        let words = [(0x7050, 1), (0x7058, 0x70c8), (0x70d0, 3), (0x70d8, 0x9000)];
        let place = |words: &[(u64, u64)]| place(&layout, &two, &stack(words), &POINTERS);
        assert_eq!(place(&words).parts, [(1, 0..2), (3, 2..3)]);
        let mut wrong = words;
        wrong[2].1 = 2;
        assert_eq!(place(&wrong), Placed::default());
        // The second record lies further out.
        wrong = words;
        wrong[1].1 = 0x7148;
        assert_eq!(place(&wrong).parts, [(1, 0..2)]);
        assert_eq!(place(&wrong).rest, 2..3);
    }
}
