//! The thread that drains: finds new process images, passes over all of them, sees which have
//! ended.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use loam_format::trace::{End, Ended, How, Mark, Process};
use loam_process::code::Codes;
use loam_process::process::{status_value, Stat};
use loam_process::rings::{now, Batch, Began, Clock, Image, Pass, Session};

use crate::attach::{Answer, Attached};
use crate::board::{lock, Board, Live, Note, Shared};
use crate::cost::Cost;
use crate::describe::{Describer, Finding};
use crate::stacks::Follower;
use crate::unrecorded::{self, Unrecorded};

/// The shortest and the longest sleep between two passes.
const BUSY: Duration = Duration::from_micros(500);
const IDLE: Duration = Duration::from_millis(10);
/// The sleep is doubled where no ring is fuller than this, in percent, and halved from the other
/// on: each pass costs some system calls, whatever it finds. Two doublings lead from one to the
/// other, so a rate that stays the same has the sleep that it needs.
const LITTLE: u64 = 12;
const MUCH: u64 = 40;
/// Events that may wait for the writer, some 200 MB: a burst of so many holds up no program.
const WAITING: u64 = 12 << 20;
/// How long a process that is to stop may take to answer.
const DETACHING: Duration = Duration::from_secs(2);
/// Passes that reach a fork's event at the end of a full ring, some times over.
const PASSES_TO_A_FORK: u32 = 16;
/// How often new files are looked for, and whether processes have ended.
const LOOK: Duration = Duration::from_millis(5);
/// How often the system's whole list of processes is looked at, once everything that is known has
/// ended.
const LOOK_FOR_OTHERS: Duration = Duration::from_millis(100);

/// How often what recording takes is looked at.
const LOOK_AT_COSTS: Duration = Duration::from_millis(50);

/// Why a program has a stream without events.
const UNRECORDED: &str =
    "it was not recorded: it is static, or it was started without the recording's variables";

/// Drains a recording.
pub struct Drainer {
    session: Session,
    clock: Clock,
    began: u64,
    describer: Describer,
    board: Arc<Board>,
    notes: SyncSender<Note>,
    images: Vec<Running>,
    /// Streams that have ended, and of whose allocator or files too little is known yet.
    unnamed: Vec<Gone>,
    /// Streams by the name of their file, and the latest one of each process.
    by_name: BTreeMap<String, u32>,
    by_pid: BTreeMap<u32, u32>,
    streams: u32,
    costed: Instant,
    codes: Codes,
    attached: Option<Arc<Attached>>,
    /// None: no command was started, or the kernel does not tell.
    unrecorded: Option<Unrecorded>,
}

struct Running {
    image: Image,
    stream: u32,
    blocks: Shared,
    stacks: Follower,
    /// What is being found out about its allocator; none if that is in its description.
    finding: Option<Finding>,
    /// Events that were given out.
    events: u64,
    lost: u64,
    is_replaced: bool,
    /// Its processor time when its recording began, in ticks.
    ticks: Option<u64>,
    /// What the system called the process when it was looked at last.
    name: String,
}

/// What is left to tell of a stream that has ended.
struct Gone {
    stacks: Follower,
    finding: Option<Finding>,
    stream: u32,
    end: End,
}

impl Gone {
    fn is_ready(&self, board: &Board) -> bool {
        self.finding.as_ref().is_none_or(Finding::is_known)
            && board.unknown_checksums(self.stream).is_empty()
    }
}

impl Drainer {
    /// For a session that has begun at that `CLOCK_MONOTONIC`.
    pub fn new(
        session: Session,
        began: u64,
        describer: Describer,
        board: Arc<Board>,
        notes: SyncSender<Note>,
        attached: Option<Arc<Attached>>,
        unrecorded: Option<Unrecorded>,
    ) -> Drainer {
        Drainer {
            session,
            clock: Clock::new(began, guessed_rate()),
            began,
            describer,
            board,
            notes,
            images: Vec::new(),
            unnamed: Vec::new(),
            by_name: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            streams: 0,
            costed: Instant::now(),
            codes: Codes::default(),
            attached,
            unrecorded,
        }
    }

    /// Drains until every recorded process has ended, or the recording is to end. Returns how many
    /// processes were recorded.
    pub fn run(mut self) -> u32 {
        let mut pause = BUSY;
        let mut looked = Instant::now() - LOOK;
        let mut looked_for_others = Instant::now();
        loop {
            let is_look = looked.elapsed() >= LOOK;
            if is_look {
                looked = Instant::now();
                self.beat();
                if let Some(unrecorded) = &mut self.unrecorded {
                    unrecorded.look();
                }
                self.find_new();
                self.complete_those_found();
            }
            let passed = self.pass_all();
            if self.board.is_stopped() {
                self.stop();
                break;
            }
            if is_look {
                self.look_at_costs();
                self.end_those_gone();
                let is_over = self.images.is_empty() && self.board.is_subject_over();
                if is_over && looked_for_others.elapsed() >= LOOK_FOR_OTHERS {
                    looked_for_others = Instant::now();
                    self.find_new();
                    if self.images.is_empty() && !self.session.has_others() {
                        self.find_new();
                        if self.images.is_empty() {
                            break;
                        }
                    }
                }
            }
            // A ring that fills while it is drained is not slept upon.
            if passed.has_unread {
                continue;
            }
            pause = match passed.fullest {
                ..=LITTLE => (pause * 2).min(IDLE),
                MUCH.. => (pause / 2).max(BUSY),
                _ => pause,
            };
            thread::sleep(pause);
        }
        // Nobody waits for a ring any more.
        for gone in std::mem::take(&mut self.unnamed) {
            self.tell(gone);
        }
        let recorded = self.streams;
        if let Some(unrecorded) = self.unrecorded.take().filter(|_| recorded > 0) {
            self.tell_unrecorded(unrecorded);
        }
        self.board.is_drained.store(true, Ordering::SeqCst);
        recorded
    }

    /// Gives each program that was not recorded a stream of its own, which has no events and says
    /// why.
    fn tell_unrecorded(&mut self, unrecorded: Unrecorded) {
        let (found, further) = unrecorded.finish(now());
        if let Some(told) = unrecorded::told(&found, further) {
            self.board.note(told);
        }
        for (one, forked_by) in found {
            let stream = self.streams;
            self.streams += 1;
            let parent = self.by_pid.get(&(one.pid as u32));
            let parent =
                parent.or_else(|| forked_by.and_then(|pid| self.by_pid.get(&(pid as u32))));
            let at = one.time.saturating_sub(self.began);
            let process = Process {
                pid: one.pid as u32,
                parent: parent.copied(),
                how: How::Exec,
                at,
                program: one.name,
                ..Process::default()
            };
            let end = End {
                at,
                reason: Some(UNRECORDED.to_owned()),
                ..End::default()
            };
            self.send(Note::Process(Box::new(process)));
            self.send(Note::End(stream, end));
        }
    }

    fn beat(&self) {
        if let Err(error) = self.session.beat() {
            self.board
                .end_recording(format!("the rings' folder can not be written: {error}"));
        }
    }

    fn send(&self, note: Note) {
        // A writer that has failed takes no more, and has said why.
        let _ = self.notes.send(note);
    }

    /// Waits for a writer that is behind. The rings fill meanwhile, and their threads wait in turn.
    fn wait_for_writer(&self) {
        let waiting = || self.board.waiting.load(Ordering::Relaxed);
        while waiting() > WAITING && !self.board.is_stopped() {
            self.beat();
            thread::sleep(BUSY);
        }
    }

    fn find_new(&mut self) {
        let (images, errors) = match self.session.new_images() {
            Ok(found) => found,
            Err(error) => {
                return self
                    .board
                    .end_recording(format!("the rings' folder can not be read: {error}"))
            }
        };
        for error in errors {
            self.board
                .note(format!("a process is not recorded: {error}"));
        }
        images.into_iter().for_each(|image| self.begin(image));
    }

    fn begin(&mut self, image: Image) {
        self.clock.says(image.ticks_per_second());
        let (stamp, monotonic) = image.moment();
        self.clock.pair(stamp, monotonic);
        if let (Some(unrecorded), Began::Exec) = (&mut self.unrecorded, image.began()) {
            let name = kernels_name(image.program());
            // It has another number here, and may have ended already.
            let pid = image.is_seen().then_some(image.pid() as i32);
            unrecorded.is_recorded(pid, &name, monotonic);
        }
        let (parent, how, at) = self.origin(&image, monotonic.saturating_sub(self.began));
        let mut process = Process {
            pid: image.pid(),
            parent,
            how,
            at,
            ..self.describer.process(&image)
        };
        if !image.is_seen() {
            self.board.note(format!(
                "process {} of another PID namespace can not be seen from here: its end is not \
                 known",
                image.pid()
            ));
        }
        let finding = self.describer.finding(&image);
        let is_known = finding.is_known();
        if is_known {
            finding.complete(&mut process);
        }
        let stream = self.streams;
        let program = image.program().to_owned();
        self.streams += 1;
        for other in &mut self.images {
            // It became another program, whose file this is.
            other.is_replaced |=
                other.image.pid() == image.pid() && other.image.start() == image.start();
        }
        let name = image
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        self.by_name.insert(name.into_owned(), stream);
        self.by_pid.insert(image.pid(), stream);
        self.send(Note::Process(Box::new(process.clone())));
        let parents = self
            .images
            .iter()
            .find(|one| how == How::Fork && Some(one.stream) == parent);
        // A child that forked has its parent's.
        let blocks = parents.map_or_else(Shared::default, |one| {
            Arc::new(Mutex::new(lock(&one.blocks).clone()))
        });
        let ticks = ticks_of(&image);
        let stacks = Follower::new(image.pid() as i32, stream, &process);
        self.board.live().push(Live {
            stream,
            pid: image.pid() as i32,
            process,
            since: Instant::now(),
            blocks: blocks.clone(),
        });
        self.images.push(Running {
            image,
            stream,
            blocks,
            stacks,
            finding: (!is_known).then_some(finding),
            events: 0,
            lost: 0,
            is_replaced: false,
            ticks,
            name: kernels_name(&program),
        });
    }

    /// The stream that a new one comes from, how, and when.
    fn origin(&mut self, image: &Image, made: u64) -> (Option<u32>, How, u64) {
        if image.began() == Began::Attach {
            return (None, How::Attach, made);
        }
        if image.began() == Began::Exec {
            let parent = self.by_pid.get(&image.pid());
            let parent = parent.or_else(|| self.by_pid.get(&image.parent())).copied();
            let how = match self.streams {
                0 => How::Start,
                _ => How::Exec,
            };
            return (parent, how, made);
        }
        let (file, number) = image.fork();
        let parent = self.by_name.get(file).copied();
        // The fork was published before the child made its file, so a pass gives it out.
        let index = self
            .images
            .iter()
            .position(|one| Some(one.stream) == parent);
        let Some(index) = index else {
            return (parent, How::Fork, made);
        };
        // One does where the ring is not fuller than what a pass reads. A fork that was not
        // announced is no event.
        let passes = if number == 0 { 1 } else { PASSES_TO_A_FORK };
        for _ in 0..passes {
            let pass = self.pass(index, false);
            // A pass that failed has ended the parent's image.
            let running = self
                .images
                .get(index)
                .filter(|one| Some(one.stream) == parent);
            let at = running.and_then(|one| one.image.time_of_fork(number));
            if let Some(at) = at {
                return (parent, How::Fork, at);
            }
            if pass.read == 0 {
                break;
            }
        }
        (parent, How::Fork, made)
    }

    /// How full the fullest ring was, and whether one has more than was read.
    fn pass_all(&mut self) -> Pass {
        self.wait_for_writer();
        let mut all = Pass::default();
        // A pass that fails takes its image out.
        let mut index = 0;
        while index < self.images.len() {
            let before = self.images.len();
            let pass = self.pass(index, false);
            all.fullest = all.fullest.max(pass.fullest);
            all.has_unread |= pass.has_unread;
            index += usize::from(self.images.len() == before);
        }
        all
    }

    fn pass(&mut self, index: usize, is_last: bool) -> Pass {
        let running = &mut self.images[index];
        let mut events = Batch::default();
        let pass = running.image.pass(&mut self.clock, is_last, &mut events);
        let lost = running.image.lost();
        let news = lost.saturating_sub(running.lost);
        self.board.dropped.fetch_add(news, Ordering::Relaxed);
        running.lost = running.lost.max(lost);
        let own = running.image.take_own();
        if !events.is_empty() || !own.is_empty() {
            lock(&running.blocks).follow(&events, &own);
        }
        let count = events.len() as u64;
        if !events.is_empty() {
            self.board.events.fetch_add(count, Ordering::Relaxed);
            self.board.waiting.fetch_add(count, Ordering::Relaxed);
            let note = Note::Events(running.stream, events);
            self.send(note);
        }
        self.send_beside(index, count);
        match pass {
            Ok(pass) => pass,
            Err(error) => {
                self.board.note(format!("a recording ends early: {error}"));
                self.end(index, Ended::Unknown, Some(error.to_string()));
                Pass::default()
            }
        }
    }

    /// What recording takes of each process's time, and whether that is too much.
    fn look_at_costs(&mut self) {
        if self.costed.elapsed() < LOOK_AT_COSTS {
            return;
        }
        self.costed = Instant::now();
        let each = Duration::from_secs(1) / rustix::param::clock_ticks_per_second().max(1) as u32;
        for running in &self.images {
            let Some((before, now)) = running.ticks.zip(ticks_of(&running.image)) else {
                continue;
            };
            let cost = Cost {
                events: running.events,
                processor: each * now.saturating_sub(before).min(u32::MAX.into()) as u32,
            };
            self.board.costs(running.stream, cost);
            if let Some(most) = self.board.most.filter(|most| cost.exceeds(*most)) {
                let pid = running.image.pid() as i32;
                let share = cost.share().unwrap_or_default();
                let reason = format!(
                    "it took about {:.0} % of the processor time of process {pid}, more than \
                     --cost {:.1}%; what comes later is sampled",
                    100.0 * share,
                    100.0 * most
                );
                self.board.end_costly(pid, reason);
            }
        }
    }

    /// What an image has beside the events that it has just given out.
    fn send_beside(&mut self, index: usize, count: u64) {
        let running = &mut self.images[index];
        let stream = running.stream;
        let first = running.events;
        running.events += count;
        let mark = |named: loam_process::rings::Named| Mark {
            time: named.time,
            thread: named.thread,
            name: named.name,
            ..Mark::default()
        };
        let marks: Vec<Mark> = running.image.take_marks().into_iter().map(mark).collect();
        let stacks = running.image.take_stacks().into_iter();
        let followed = running.stacks.follow(
            stacks.map(|(at, stack)| (first + at as u64, stack)),
            running.image.path(),
            &mut self.codes,
            &self.board,
        );
        if !marks.is_empty() {
            self.send(Note::Marks(stream, marks));
        }
        if let Some(process) = followed.process {
            self.send(Note::Update(stream, Box::new(process)));
        }
        if !followed.stacks.is_empty() {
            self.send(Note::Stacks(stream, followed.frames, followed.stacks));
        }
    }

    fn complete_those_found(&mut self) {
        for index in 0..self.images.len() {
            let running = &self.images[index];
            if running.finding.as_ref().is_some_and(Finding::is_known) {
                self.complete(index);
            }
        }
        let (ready, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unnamed)
            .into_iter()
            .partition(|gone| gone.is_ready(&self.board));
        self.unnamed = later;
        for gone in ready {
            self.tell(gone);
        }
    }

    /// Tells what was found out about an image's allocator.
    fn complete(&mut self, index: usize) {
        let running = &mut self.images[index];
        let Some(finding) = running.finding.take() else {
            return;
        };
        running.stacks.complete(&finding);
        let stream = running.stream;
        let process = running.stacks.process(&self.board);
        for live in self.board.live().iter_mut() {
            if live.stream == stream {
                finding.complete(&mut live.process);
            }
        }
        if let Some(process) = process {
            self.send(Note::Update(stream, Box::new(process)));
        }
    }

    fn end_those_gone(&mut self) {
        let mut index = 0;
        while index < self.images.len() {
            if let Some(reason) = self.becomes_unrecorded(index) {
                self.board.note(reason.clone());
                let before = self.images.len();
                while self.pass(index, true).has_more {}
                if self.images.len() == before {
                    self.end(index, Ended::Exec, Some(reason));
                }
                continue;
            }
            match self.how_it_ended(index) {
                Some(ended) => self.finish(index, ended),
                None => index += 1,
            }
        }
    }

    /// Why a process that lives is recorded no more: it has become a program without the recorder.
    /// The kernel's name of the process changes then.
    fn becomes_unrecorded(&mut self, index: usize) -> Option<String> {
        let running = &mut self.images[index];
        let pid = running.image.pid() as i32;
        if running.is_replaced || !running.image.is_seen() {
            return None;
        }
        if !running.image.knows_filter() && has_filter(pid) {
            running.image.tell_filter();
        }
        let stat = Stat::read(pid).ok()?;
        if stat.started != running.image.start() || stat.is_dead() || stat.name == running.name {
            return None;
        }
        if !self.session.is_left_by(pid)? {
            running.name.clone_from(&stat.name);
            return None;
        }
        Some(format!(
            "process {pid} has become `{}`, which is not recorded: it has not the recording's \
             variables, or it is of another user",
            stat.name
        ))
    }

    fn how_it_ended(&self, index: usize) -> Option<Ended> {
        let running = &self.images[index];
        if running.is_replaced {
            return Some(Ended::Exec);
        }
        let image = &running.image;
        if !image.is_seen() {
            // It may live on. When its command is over, nothing tells that it will end.
            return self.board.is_subject_over().then_some(Ended::Unknown);
        }
        let stat = Stat::read(image.pid() as i32);
        let is_there = stat.is_ok_and(|stat| stat.started == image.start() && !stat.is_dead());
        if is_there {
            return None;
        }
        match self.board.command() {
            Some((pid, status)) if pid == image.pid() => Some(ended_by(status)),
            // The command's own end is about to be known.
            None if self.describer.command() == image.pid() => None,
            _ => Some(Ended::Unknown),
        }
    }

    /// Gives out all that is left of an image.
    fn finish(&mut self, index: usize, ended: Ended) {
        let (stream, before) = (self.images[index].stream, self.images.len());
        while self.pass(index, true).has_more {}
        // A pass that failed has ended it already.
        if self.images.len() == before && self.images[index].stream == stream {
            let why = self.images[index].image.why_off().map(str::to_owned);
            self.end(index, ended, why);
        }
    }

    /// Ends an image's stream. The end is told later if the allocator's name or a checksum is not
    /// known: other processes' rings would fill meanwhile.
    fn end(&mut self, index: usize, ended: Ended, reason: Option<String>) {
        let mut running = self.images.swap_remove(index);
        let unknown = running.image.unknown_units();
        if unknown > 0 {
            self.board.note(format!(
                "process {}: {unknown} events were not understood",
                running.image.pid()
            ));
        }
        running.image.leave();
        self.session.remove(running.image.path());
        self.board
            .live()
            .retain(|live| live.stream != running.stream);
        let end = End {
            ended,
            at: now().saturating_sub(self.began),
            events: 0,
            dropped: running.lost,
            reason,
        };
        let gone = Gone {
            stacks: running.stacks,
            finding: running.finding,
            stream: running.stream,
            end,
        };
        match gone.is_ready(&self.board) {
            true => self.tell(gone),
            false => self.unnamed.push(gone),
        }
    }

    /// Tells a stream's end, after the allocator's name and the files' checksums; waits for these.
    fn tell(&self, mut gone: Gone) {
        if let Some(finding) = &gone.finding {
            gone.stacks.complete(finding);
        }
        gone.stacks.name_made_code();
        for checksum in self.board.unknown_checksums(gone.stream) {
            checksum.wait();
        }
        // The sampler may have told an older description meanwhile.
        if let Some(process) = gone.stacks.process(&self.board) {
            self.send(Note::Update(gone.stream, Box::new(process)));
        }
        self.send(Note::End(gone.stream, gone.end));
    }

    /// Has the process that was attached to take its own way again, as far as it answers: one that
    /// does not call its heap has nothing to say.
    fn detach(&mut self) -> Ended {
        let Some(attached) = self.attached.clone() else {
            return Ended::Running;
        };
        attached.ask_to_stop();
        let asked = Instant::now();
        while attached.answer() == Answer::Recording && asked.elapsed() < DETACHING {
            self.beat();
            self.find_new();
            self.pass_all();
            thread::sleep(BUSY);
        }
        match attached.is_gone() {
            true => Ended::Exec,
            false => Ended::Running,
        }
    }

    /// Ends the recording while processes run.
    fn stop(&mut self) {
        let running = self.detach();
        if let Err(error) = self.session.end() {
            self.board
                .note(format!("the processes could not be told: {error}"));
        }
        let reason = self.board.reason();
        while !self.images.is_empty() {
            let (stream, before) = (self.images[0].stream, self.images.len());
            while self.pass(0, true).has_more {}
            if self.images.len() == before && self.images[0].stream == stream {
                let ended = self.how_it_ended(0).unwrap_or(running);
                self.end(0, ended, reason.clone());
            }
        }
    }
}

/// The processor time of an image's process, in ticks, as long as it lives.
fn ticks_of(image: &Image) -> Option<u64> {
    if !image.is_seen() {
        return None;
    }
    let stat = Stat::read(image.pid() as i32).ok()?;
    (stat.started == image.start() && !stat.is_dead()).then_some(stat.cpu_ticks)
}

/// What the kernel calls a process that runs this file: 15 bytes.
fn kernels_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program).as_bytes();
    String::from_utf8_lossy(&name[..name.len().min(15)]).into_owned()
}

/// Whether a filter restricts the system calls of a process, as far as the system tells.
fn has_filter(pid: i32) -> bool {
    status_value(pid, "Seccomp").is_some_and(|mode| mode != "0")
}

fn ended_by(status: std::process::ExitStatus) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, Some(signal)) => Ended::Signal(signal),
        (None, None) => Ended::Unknown,
    }
}

/// What the processor's counter may tick at, for the first microseconds.
fn guessed_rate() -> f64 {
    use procfs::Current;
    let cpu = procfs::CpuInfo::current().ok();
    let speed = cpu.and_then(|cpu| cpu.get_field(0, "cpu MHz")?.parse::<f64>().ok());
    speed.map_or(2e9, |megahertz| megahertz * 1e6)
}
