//! What a probe costs the process, measured on this machine: this process probes two functions of
//! its own.

use std::ffi::CString;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use super::kernel::Kernel;
use super::program::{Kind, STACK};
use super::system::{call_own, own_functions};
use crate::mappings;
use crate::process::Pid;

/// How often each price is measured, and of how many calls. The least counts: other programs
/// disturb the rest, and how much dearer probes are in the process is seen there.
const ROUNDS: usize = 25;
const CALLS: u32 = 40;

/// What each kind of probe costs, at an instruction that the kernel executes itself, and at
/// another.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prices {
    /// At the entry of a function that hands out blocks, with the stack.
    pub entry: [Duration; 2],
    /// At its return.
    pub at_return: Duration,
    /// At the entry of a function that takes blocks back.
    pub free: [Duration; 2],
    /// From the time that an entry tells to that of its return, which is most of what both cost.
    pub call: Duration,
}

impl Prices {
    /// What a call takes from the time that its entry tells to that of its return.
    pub fn of_call(&self, is_stepped: bool) -> Duration {
        match is_stepped {
            true => self.call + self.entry[1].saturating_sub(self.entry[0]),
            false => self.call,
        }
    }

    /// Measures them.
    pub fn measure(kernel: &mut Kernel) -> io::Result<Prices> {
        // A stack of the usual depth has to be there to be copied.
        let deep = [1u8; 2 * STACK];
        let prices = Prices::measure_here(kernel);
        black_box(&deep);
        prices
    }

    #[inline(never)]
    fn measure_here(kernel: &mut Kernel) -> io::Result<Prices> {
        let pid = std::process::id() as Pid;
        let file = CString::from(c"/proc/self/exe");
        let places = own_places(pid)?;
        let timed = |kernel: &mut Kernel| -> [Duration; 2] {
            [0, 1].map(|which| {
                let all = (0..ROUNDS).map(|_| {
                    let begun = Instant::now();
                    for _ in 0..CALLS {
                        call_own(which);
                    }
                    let took = begun.elapsed() / CALLS;
                    kernel.drain(|_| {});
                    took
                });
                all.min().unwrap_or_default()
            })
        };
        let frees = kernel.attach(Kind::Free, &file, &places, pid)?;
        let free = timed(kernel);
        // Not aside: what is still there would be measured too.
        drop(frees);
        let entries = kernel.attach(Kind::Entry, &file, &places, pid)?;
        let entry = timed(kernel);
        let returns = kernel.attach(Kind::Return, &file, &places, pid)?;
        let both = timed(kernel);
        let mut calls = Vec::new();
        let mut began = 0;
        for _ in 0..ROUNDS {
            for _ in 0..CALLS {
                call_own(0);
            }
            let mut all = Vec::new();
            kernel.drain(|event| match event.kind {
                Kind::Return => all.push(event.time.saturating_sub(began)),
                _ => began = event.time,
            });
            calls.push(median(&mut all));
        }
        kernel.close(vec![entries, returns]);
        kernel.drain(|_| {});
        Ok(Prices {
            entry,
            at_return: both[0].saturating_sub(entry[0]),
            free,
            call: Duration::from_nanos(calls.into_iter().min().unwrap_or(0)),
        })
    }
}

/// The one in the middle; 0 of none.
pub fn median(all: &mut [u64]) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

/// Where the two functions lie in this process's file.
fn own_places(pid: Pid) -> io::Result<Vec<(u64, u64)>> {
    let mappings =
        mappings::read_names(pid).map_err(|error| io::Error::other(error.to_string()))?;
    let place = |address: u64| {
        let mapping = mappings::at(&mappings, address)?;
        Some((address - mapping.start + mapping.offset, 0))
    };
    let places: Option<Vec<_>> = own_functions().into_iter().map(place).collect();
    places.ok_or_else(|| io::ErrorKind::NotFound.into())
}
