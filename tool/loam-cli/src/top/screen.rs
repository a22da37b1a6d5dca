//! The terminal: taken over and given back, keys, sizes, signals.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::draw::{self, Manner};
use super::rows;
use super::state::{Key, Meaning, State};
use super::Collector;
use crate::exit::{Coded, Exit};

/// How soon a key is answered and a signal noticed.
const RESPONSE: Duration = Duration::from_millis(100);

/// Refuses terminals on which nothing can be drawn.
pub fn require_terminal() -> Result<()> {
    let reason = if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        "the output or the input is no terminal"
    } else if matches!(std::env::var("TERM").as_deref(), Ok("dumb" | "") | Err(_)) {
        "the terminal (TERM) can not move its cursor"
    } else {
        return Ok(());
    };
    let message = format!(
        "loam top draws on the whole terminal, and {reason}; `loam top --batch` prints tables, `loam \
         stats PID` one process"
    );
    Err(Coded {
        exit: Exit::Error,
        message,
    }
    .into())
}

/// What the environment says about the terminal.
pub fn manner() -> Manner {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.unwrap_or_default().to_lowercase();
    Manner {
        colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        unicode: locale.contains("utf-8") || locale.contains("utf8"),
    }
}

/// Runs until the user or a signal ends it. The terminal is given back in every case: by the guard
/// when this returns, and by ratatui's hook when something panics.
pub fn run(state: &mut State, collector: &mut Collector, looks: Option<u64>) -> Result<Exit> {
    let signalled = [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)].map(|(signal, number)| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| (flag, number))
    });
    let manner = manner();
    let mut terminal = ratatui::try_init().context("the terminal can not be taken over")?;
    let _guard = Restored;
    let mut left = looks;
    let mut next = Instant::now();
    let mut page = 1;
    loop {
        for (flag, number) in signalled.iter().flatten() {
            if flag.load(Ordering::Relaxed) {
                return Ok(Exit::Signal(*number));
            }
        }
        if Instant::now() >= next {
            next = Instant::now() + collector.interval;
            if !state.paused {
                if left == Some(0) {
                    return Ok(Exit::Done);
                }
                left = left.map(|left| left - 1);
                collector.look(state, RESPONSE)?;
            }
        }
        collector.receive(state, Duration::ZERO)?;
        terminal.draw(|frame| page = draw::draw(frame, state, manner))?;
        let wait = next.saturating_duration_since(Instant::now()).min(RESPONSE);
        if event::poll(wait)? {
            let focused = state.focused();
            answer(state, event::read()?, page);
            if state.done {
                return Ok(Exit::Done);
            }
            if state.focused() != focused {
                collector.look_closely(state, RESPONSE)?;
            }
        }
    }
}

/// Gives the terminal back when it goes out of scope.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn answer(state: &mut State, event: Event, page: usize) {
    // A resize is answered by the next drawing.
    let Event::Key(key) = event else { return };
    if key.kind == KeyEventKind::Release {
        return;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let pressed = match key.code {
        KeyCode::Char('c' | 'd') if is_control => Key::Letter('q'),
        KeyCode::Char(letter) if !is_control => Key::Letter(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter | KeyCode::Right => Key::Enter,
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => Key::Back,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        _ => return,
    };
    let rows: Vec<Meaning> = rows::of(state).rows.iter().map(|row| row.meaning).collect();
    state.press(pressed, &rows, page);
}
