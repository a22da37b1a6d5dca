//! How much one injected call may do, so that a stop ends in time.
//!
//! What calls took so far tells what the next one takes. Waits for a processor are left out: on a
//! busy machine they are longer than the work, and they would make stops shorter and many more.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::process::Pid;

/// What a page and a range take until that is measured. A page of memory that was just freed by the
/// kernel takes some 0.2 us, with the control group's account 0.5 us.
const PAGE_TAKES: f64 = 0.5e-6;
const RANGE_TAKES: f64 = 1e-6;
/// How much the first call of a trim does at most, in planned seconds, and how much more than the
/// largest one before it a call may do. Chosen: a factor of a hundred in the kernel's speed makes
/// the first call take 2 ms.
const FIRST: f64 = 20e-6;
const BOLDER: f64 = 4.0;
/// The part of a stop that is planned.
const PLANNED: f64 = 0.75;
/// The largest call, as a part of the longest stop. While it is made, the next one is prepared.
const LARGEST: f64 = 0.25;
/// What a stop does however late it began, as a part of the longest stop.
const LEAST: f64 = 0.25;

/// Times of stops and calls of one trim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How many times longer than planned calls take.
    factor: f64,
    /// The most that a call did, in planned seconds.
    most: f64,
    /// The way home.
    home: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            factor: 1.0,
            most: FIRST / BOLDER,
            home: 50e-6,
        }
    }
}

/// What a call is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Pages that are there.
    pub pages: u64,
    /// Ranges.
    pub ranges: u64,
}

impl Work {
    fn planned(self) -> f64 {
        self.pages as f64 * PAGE_TAKES + self.ranges as f64 * RANGE_TAKES
    }
}

impl Pace {
    /// Allows everything.
    #[cfg(test)]
    pub fn boundless() -> Pace {
        Pace {
            factor: 0.0,
            most: f64::MAX,
            home: 0.0,
        }
    }

    /// Whether a call may do that much in a stop that has lasted for `stood` and may last for
    /// `most`. `is_first`: the stop has done nothing yet; one that came late still does something.
    pub fn allows(&self, work: Work, stood: Duration, most: Duration, is_first: bool) -> bool {
        let most = most.as_secs_f64();
        let planned = work.planned();
        let left = most * PLANNED - self.home - stood.as_secs_f64();
        let left = if is_first {
            left.max(most * LEAST)
        } else {
            left
        };
        let takes = self.expects(work).as_secs_f64();
        planned <= self.most * BOLDER && takes <= left && takes <= most * LARGEST
    }

    /// How long a call will take.
    pub fn expects(&self, work: Work) -> Duration {
        Duration::from_secs_f64(work.planned() * self.factor)
    }

    /// A call took that long.
    pub fn called(&mut self, work: Work, took: Duration) {
        let planned = work.planned();
        // Of less the ways there and back are most.
        if planned >= FIRST / 2.0 {
            let factor = took.as_secs_f64() / planned;
            self.factor = match factor > self.factor {
                true => factor,
                false => self.factor * 0.75 + factor * 0.25,
            };
        }
        self.most = self.most.max(planned);
    }

    /// The way home took that long.
    pub fn went_home(&mut self, took: Duration) {
        self.home = (self.home + took.as_secs_f64()) / 2.0;
    }
}

/// Tells time with the waits of two threads for a processor: that of the stopped one, and the
/// caller's.
#[derive(Debug)]
pub struct Clock {
    files: [Option<File>; 2],
}

/// A moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    at: Instant,
    /// How long each of the threads has run, and has waited for a processor.
    threads: [(Duration, Duration); 2],
}

impl Clock {
    /// That of a thread of a process. Where the system keeps no such account, no wait is known.
    pub fn of(pid: Pid, thread: Pid) -> Clock {
        let open = |path: String| File::open(path).ok();
        Clock {
            files: [
                open(format!("/proc/{pid}/task/{thread}/schedstat")),
                open("/proc/thread-self/schedstat".to_owned()),
            ],
        }
    }

    /// Now.
    pub fn now(&self) -> Moment {
        let read = |file: &Option<File>| {
            let mut text = [0; 64];
            let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
            let text = std::str::from_utf8(&text[..length]).ok()?;
            let mut numbers = text.split_whitespace().map(str::parse);
            let mut next = || Some(Duration::from_nanos(numbers.next()?.ok()?));
            Some((next()?, next()?))
        };
        Moment {
            threads: [0, 1].map(|thread| read(&self.files[thread]).unwrap_or_default()),
            at: Instant::now(),
        }
    }
}

impl Moment {
    /// The time since then, waits included.
    pub fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// The time since then, and the part of it in which a thread waited for a processor. While one
    /// waits the other may run: that is no wait.
    pub fn until(&self, later: &Moment) -> (Duration, Duration) {
        let took = later.at.saturating_duration_since(self.at);
        let pairs = || self.threads.iter().zip(&later.threads);
        let ran = pairs().map(|(before, behind)| behind.0.saturating_sub(before.0));
        let waited: Duration = pairs()
            .map(|(before, behind)| behind.1.saturating_sub(before.1))
            .sum();
        let ran = ran.max().unwrap_or_default();
        (took, waited.min(took.saturating_sub(ran)))
    }

    /// The time since then without those waits.
    pub fn worked_until(&self, later: &Moment) -> Duration {
        let (took, waited) = self.until(later);
        took - waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(2);

    /// The most pages that one range of a call may have.
    fn most(pace: &Pace, stood: Duration, is_first: bool) -> u64 {
        let work = |pages| Work { pages, ranges: 1 };
        let mut pages = 0;
        while pages < 1 << 20 && pace.allows(work(pages + 1), stood, MOST, is_first) {
            pages += 1;
        }
        pages
    }

    #[test]
    fn a_call_does_what_the_last_ones_took_allows() {
        let mut pace = Pace::default();
        assert!(most(&pace, Duration::ZERO, true) <= 40);
        // A kernel that takes a hundred times as long still keeps to the first stop's time.
        let pages = most(&pace, Duration::ZERO, true);
        let work = Work { pages, ranges: 1 };
        let takes = |work: Work, page: f64| Duration::from_secs_f64(work.pages as f64 * page);
        assert!(takes(work, 50e-6) <= MOST);
        let mut slow = pace;
        slow.called(work, takes(work, 50e-6));
        let next = Work {
            pages: most(&slow, Duration::ZERO, true),
            ranges: 1,
        };
        assert!(next.pages > 0 && takes(next, 50e-6) <= MOST, "{next:?}");
        // At the usual speed calls grow to what fills a stop.
        for _ in 0..20 {
            let pages = most(&pace, Duration::ZERO, true);
            let work = Work { pages, ranges: 1 };
            pace.called(work, takes(work, 0.3e-6));
        }
        let pages = most(&pace, Duration::ZERO, true);
        assert!((1000..2000).contains(&pages), "{pages}");
        // A call that is prepared while another one is made counts on its end.
        let work = Work { pages, ranges: 1 };
        let mut ready = Duration::ZERO;
        let mut calls = 0;
        while most(&pace, ready, false) > 100 {
            ready += pace.expects(Work {
                pages: most(&pace, ready, false),
                ..work
            });
            calls += 1;
        }
        assert!(
            calls >= 3 && ready < MOST.mul_f64(PLANNED),
            "{calls} {ready:?}"
        );
        // A late stop does a part, and nothing more behind its first call.
        let late = Duration::from_millis(3);
        assert!(most(&pace, late, true) > 500);
        assert_eq!(most(&pace, late, false), 0);
    }

    #[test]
    fn a_wait_while_the_other_thread_runs_is_none() {
        let ms = Duration::from_millis;
        let start = Moment {
            at: Instant::now(),
            threads: [(ms(100), ms(50)), (ms(7), ms(9))],
        };
        let later = |threads| Moment {
            at: start.at + ms(10),
            threads,
        };
        // The stopped thread waits for 6 ms, and then both run for 2.
        let apart = later([(ms(102), ms(56)), (ms(9), ms(9))]);
        assert_eq!(start.until(&apart), (ms(10), ms(6)));
        // The tool waits while the stopped thread runs for 8 of 10.
        let beside = later([(ms(108), ms(51)), (ms(8), ms(17))]);
        assert_eq!(start.until(&beside), (ms(10), ms(2)));
        assert_eq!(start.worked_until(&beside), ms(8));
    }
}
