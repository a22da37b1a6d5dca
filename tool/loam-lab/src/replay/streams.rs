//! Maps the threads of a trace to those of the replay. They are numbered by their start; the first
//! one is the replay's main thread.

use std::collections::BTreeMap;
use std::io;

use super::program::{Kind, Operation, Program, Stream};

/// A pause that is shorter than this counts as the thread's own work.
const WORTH_A_PAUSE: u64 = 50_000;

/// A thread of the replay.
#[derive(Debug)]
pub struct Thread {
    /// Its number in the replay.
    pub number: u32,
    stream: Stream,
    last_time: u64,
}

/// The threads that live, by their number in the trace.
#[derive(Debug)]
pub struct Streams {
    live: BTreeMap<u32, Thread>,
    /// The first thread after its end. The replay keeps it, since it may have to start other
    /// threads or meet them.
    main: Option<Thread>,
    /// The thread of the trace that acted last.
    last: Option<u32>,
    pauses: bool,
    most: u64,
    ended: u64,
}

impl Streams {
    /// No threads yet.
    pub fn new(pauses: bool) -> Streams {
        Streams {
            live: BTreeMap::new(),
            main: None,
            last: None,
            pauses,
            most: 0,
            ended: 0,
        }
    }

    /// The most threads that lived at once.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Threads that have ended. The first one never counts.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Threads that would meet now.
    pub fn participants(&self) -> u64 {
        self.live.len() as u64 + u64::from(self.main.is_some())
    }

    /// The thread's number. If the thread is new, it begins now: the thread that acted last starts
    /// it, because a program makes a thread by a call that allocates.
    pub fn get(&mut self, program: &mut Program, thread: u32, time: u64) -> io::Result<u32> {
        if !self.live.contains_key(&thread) {
            let number = program.threads() as u32;
            let started = Thread {
                number,
                stream: program.thread(),
                last_time: time,
            };
            if number > 0 {
                let starter = self.last.filter(|last| self.live.contains_key(last));
                let starter = match (starter, &mut self.main) {
                    (Some(last), _) => self.live.get_mut(&last),
                    (None, Some(main)) => Some(main),
                    (None, None) => self.live.values_mut().next(),
                };
                let starter = starter.expect("the main thread lives or is kept");
                program.push(&mut starter.stream, Operation::of(Kind::Start, number, 0))?;
            }
            self.live.insert(thread, started);
            self.most = self.most.max(self.participants());
        }
        self.last = Some(thread);
        Ok(self.live[&thread].number)
    }

    /// Adds the thread's next operation.
    pub fn push(
        &mut self,
        program: &mut Program,
        thread: u32,
        time: u64,
        operation: Operation,
    ) -> io::Result<()> {
        let thread = self.live.get_mut(&thread).expect("`get` was called");
        if self.pauses && time >= thread.last_time + WORTH_A_PAUSE {
            thread.last_time = time;
            program.push(&mut thread.stream, Operation::of(Kind::Time, 0, time))?;
        }
        program.push(&mut thread.stream, operation)
    }

    /// Adds an operation just before all threads meet. Any thread may perform it.
    pub fn push_to_any(&mut self, program: &mut Program, operation: Operation) -> io::Result<()> {
        let first = self.main.as_mut().or(self.live.values_mut().next());
        match first {
            Some(thread) => program.push(&mut thread.stream, operation),
            None => Ok(()),
        }
    }

    /// Ends the thread. Returns its number in the replay, if it lived.
    pub fn end(&mut self, program: &mut Program, thread: u32) -> io::Result<Option<u32>> {
        let Some(mut ended) = self.live.remove(&thread) else {
            return Ok(None);
        };
        let number = ended.number;
        if number == 0 {
            self.main = Some(ended);
            return Ok(None);
        }
        program.push(&mut ended.stream, Operation::of(Kind::End, 0, 0))?;
        program.flush(&mut ended.stream)?;
        self.ended += 1;
        Ok(Some(number))
    }

    /// The process forked: `thread` goes on as thread 0, and the other threads are gone. Returns
    /// the numbers of those.
    pub fn forked(&mut self, program: &mut Program, thread: u32) -> io::Result<Vec<u32>> {
        let mut gone = Vec::new();
        let others: Vec<u32> = self
            .live
            .keys()
            .copied()
            .filter(|id| *id != thread)
            .collect();
        for other in others {
            gone.extend(self.end(program, other)?);
        }
        if let Some(survivor) = self.live.remove(&thread) {
            self.live.insert(0, survivor);
        }
        self.last = Some(0);
        Ok(gone)
    }

    /// All threads meet at this sample.
    pub fn meet(&mut self, program: &mut Program, sample: u32, time: u64) -> io::Result<()> {
        for thread in self.live.values_mut().chain(self.main.as_mut()) {
            if self.pauses && time > thread.last_time {
                thread.last_time = time;
                program.push(&mut thread.stream, Operation::of(Kind::Time, 0, time))?;
            }
            program.push(&mut thread.stream, Operation::of(Kind::Sample, sample, 0))?;
        }
        Ok(())
    }

    /// Ends all threads at the end of the trace.
    pub fn finish(mut self, program: &mut Program) -> io::Result<()> {
        for thread in self.live.values_mut().chain(self.main.as_mut()) {
            program.push(&mut thread.stream, Operation::of(Kind::End, 0, 0))?;
            program.flush(&mut thread.stream)?;
        }
        Ok(())
    }
}
