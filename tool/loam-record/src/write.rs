//! The thread that writes the trace.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use loam_format::trace::{Header, Statistics, Stream, WriteError, Writer};
use loam_lab::traces::file::NewFile;

use crate::board::{Board, Note};

/// How old what is not written yet may get.
const FLUSH: Duration = Duration::from_secs(2);

/// Writes what comes until nobody sends any more. If nothing came, the file stays as it was. After
/// an error it takes what comes and drops it.
pub fn write(
    file: NewFile,
    header: &Header,
    max_size: Option<u64>,
    notes: &Receiver<Note>,
    board: &Board,
) -> Result<Statistics, WriteError> {
    let written = write_all(file, header, max_size, notes, board);
    if let Err(error) = &written {
        board.end_recording(error.to_string());
        while notes.recv().is_ok() {}
    }
    written
}

fn write_all(
    file: NewFile,
    header: &Header,
    max_size: Option<u64>,
    notes: &Receiver<Note>,
    board: &Board,
) -> Result<Statistics, WriteError> {
    let Ok(first) = notes.recv() else {
        return Ok(Statistics::default());
    };
    let mut writer = Writer::new(file.begin()?, header)?;
    writer.bound(max_size);
    take(&mut writer, first, board)?;
    let mut flushed = Instant::now();
    loop {
        match notes.recv_timeout(FLUSH) {
            Ok(note) => take(&mut writer, note, board)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if flushed.elapsed() >= FLUSH {
            writer.flush()?;
            flushed = Instant::now();
        }
        let bytes = writer.statistics().file_bytes;
        board.bytes.store(bytes, Ordering::Relaxed);
        if writer.is_full() && !board.is_stopped() {
            board.end_recording("the file has reached its --max-size".to_owned());
        }
    }
    let (_, statistics) = writer.finish()?;
    board.bytes.store(statistics.file_bytes, Ordering::Relaxed);
    Ok(statistics)
}

fn take(writer: &mut Writer<File>, note: Note, board: &Board) -> Result<(), WriteError> {
    match note {
        Note::Process(process) => {
            writer.process(&process)?;
        }
        Note::Update(stream, process) => writer.update(Stream(stream), &process)?,
        Note::Events(stream, mut events) => {
            writer.push_from(Stream(stream), &mut events)?;
            let count = events.len() as u64;
            board.waiting.fetch_sub(count, Ordering::Relaxed);
        }
        Note::Sample(stream, sample) => writer.sample(Stream(stream), sample)?,
        Note::Touches(stream, touches) => {
            for touch in touches {
                writer.touch(Stream(stream), touch)?;
            }
        }
        Note::Marks(stream, marks) => {
            for mark in marks {
                writer.mark(Stream(stream), mark)?;
            }
        }
        Note::Stacks(stream, frames, stacks) => {
            for frame in frames {
                writer.frame(Stream(stream), frame)?;
            }
            for stack in stacks {
                writer.stack(Stream(stream), stack)?;
            }
        }
        Note::End(stream, end) => writer.end(Stream(stream), end)?,
    }
    Ok(())
}
