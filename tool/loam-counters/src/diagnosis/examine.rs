//! A look at a process, for its evidence: once, or again and again for a while.

use std::time::{Duration, Instant};

use loam_process::allocator::GLIBC;
use loam_process::apart;
use loam_process::container::Limits;
use loam_process::glibc::{self, GlibcError, GlibcHeap};
use loam_process::process::{Identity, ProcessError, ProcessKey};

use super::{Evidence, Growth};
use crate::view::View;

/// The pause after a look is this many times as long as the look.
const PAUSE: u32 = 3;
/// A watch may take this many times the requested time, until there are enough looks.
const LONGER: u32 = 8;

/// One look.
#[derive(Debug)]
pub struct Examined {
    /// What was seen.
    pub evidence: Evidence,
    /// How long the look took.
    pub took: Duration,
}

impl Examined {
    /// Looks once.
    pub fn of(identity: &Identity) -> Result<Examined, ProcessError> {
        let begun = Instant::now();
        let view = View::with_free_pages(identity.clone())?;
        let is_on_glibc = view.snapshot().is_none()
            && view.counters.is_ok()
            && view
                .allocator
                .as_ref()
                .is_some_and(|allocator| allocator.name == GLIBC);
        let heap = is_on_glibc.then(|| read_glibc(identity.key)).transpose()?;
        Ok(Examined {
            evidence: Evidence::of(&view, heap, Limits::of(identity.key.pid)),
            took: begun.elapsed(),
        })
    }

    /// Looks again and again for so long, or until `pause` returns true: it waits for a time, or
    /// for the end. The last look is the one that is judged.
    pub fn watch(
        &mut self,
        identity: &Identity,
        limit: Duration,
        pause: impl Fn(Duration) -> bool,
    ) -> Result<Growth, ProcessError> {
        let mut growth = Growth::default();
        growth.add(Duration::ZERO, &self.evidence);
        let begun = Instant::now();
        let longest = limit * LONGER;
        let mut fastest = self.took;
        // On a machine that is busy looks are slow, and few of them would say little.
        while begun.elapsed() < limit || (!growth.is_enough() && begun.elapsed() < longest) {
            if pause((limit / Growth::ENOUGH as u32).max(fastest * PAUSE)) {
                break;
            }
            *self = Examined::of(identity)?;
            fastest = fastest.min(self.took);
            growth.add(begun.elapsed(), &self.evidence);
        }
        Ok(growth)
    }
}

/// Apart from this thread: reading a stranger's memory may never end. The inner error is evidence;
/// of a process that ended there is none.
fn read_glibc(key: ProcessKey) -> Result<Result<GlibcHeap, String>, ProcessError> {
    let read: Result<Result<GlibcHeap, GlibcError>, _> = apart::within(move || glibc::read(key));
    Ok(match read {
        Ok(Err(GlibcError::Process(error))) if error.is_gone() => return Err(error),
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(doing) => Err(format!("it can not be read: {doing}")),
    })
}
