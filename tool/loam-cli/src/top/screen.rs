//! The terminal: takes it over and gives it back, reads keys and sizes, and notices what ends or
//! pauses the view.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use ratatui::DefaultTerminal;

use loam_counters::live::collector::Collector;
use loam_counters::live::rows;
use loam_counters::live::state::{Key, Meaning, State};
use loam_process::ending::{self, Ending, Watch};

use crate::exit::{leave, Exit};
use crate::top::draw::{self, Manner};

/// The longest time until a key is answered and a signal is noticed.
const RESPONSE: Duration = Duration::from_millis(100);

/// How long a look may take when the view must end. Looks take milliseconds; a longer one hangs.
const GRACE: Duration = Duration::from_secs(1);

/// Refuses terminals that can not be drawn on.
pub fn require_terminal() -> Result<()> {
    let reason = if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        "the output or the input is no terminal"
    } else if matches!(std::env::var("TERM").as_deref(), Ok("dumb" | "") | Err(_)) {
        "the terminal (TERM) can not move its cursor"
    } else {
        return Ok(());
    };
    bail!(
        "loam top draws on the whole terminal, and {reason}; `loam top --batch` prints tables, \
         `loam stats PID` one process"
    )
}

/// The terminal's abilities, according to the environment.
pub fn manner() -> Manner {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.unwrap_or_default().to_lowercase();
    Manner {
        colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        unicode: locale.contains("utf-8") || locale.contains("utf8"),
    }
}

/// Watches for the view's ends: signals, and the end of the terminal, which may come without a
/// signal (`nohup`, `disown`).
pub fn watch() -> io::Result<Ending> {
    Watch::of_terminal(
        &[rustix::stdio::stdin(), rustix::stdio::stdout()],
        GRACE,
        give_back,
    )
    .begin(leave)
}

/// Runs until the user, a signal or the terminal's end ends it. The terminal is given back in every
/// case: by the guard when this function returns, by ratatui's hook after a panic, and by the watch
/// if this function hangs.
pub fn run(
    state: &mut State,
    collector: &mut Collector,
    looks: Option<u64>,
    ending: &Ending,
) -> Result<Exit> {
    let terminal = ratatui::try_init().context("the terminal can not be taken over")?;
    // The terminal is never dropped. On a closed terminal its destructor would print an error, and
    // would panic because that fails too.
    let mut terminal = ManuallyDrop::new(terminal);
    let _guard = Restored;
    let done = show(&mut terminal, state, collector, looks, ending);
    match done {
        // If the terminal is closed, every call returns an error. The watch knows the reason.
        Err(error) => ending
            .wait(RESPONSE)
            .map_or(Err(error), |reason| Ok(reason.into())),
        done => done,
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    collector: &mut Collector,
    looks: Option<u64>,
    ending: &Ending,
) -> Result<Exit> {
    let manner = manner();
    let mut left = looks;
    let mut next = Instant::now();
    let mut page = 1;
    loop {
        if let Some(reason) = ending.reason() {
            return Ok(reason.into());
        }
        if ending.takes_pause() {
            pause(terminal, false)?;
        }
        if ending.went_on() {
            // Another program may have used the terminal meanwhile and changed its mode.
            take_again(terminal)?;
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
            match event::read()? {
                Event::Key(key) if is_pause(key) => pause(terminal, true)?,
                event => answer(state, event, page),
            }
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
        give_back();
    }
}

fn give_back() {
    // If the terminal is closed, there is nothing to give back.
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), cursor::Show);
}

/// Stops until the shell continues the process.
fn pause(terminal: &mut DefaultTerminal, whole_group: bool) -> io::Result<()> {
    give_back();
    ending::pause(whole_group);
    take_again(terminal)
}

fn take_again(terminal: &mut DefaultTerminal) -> io::Result<()> {
    // The raw mode is switched off first, because it is switched on only if it seems to be off.
    terminal::disable_raw_mode()?;
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), terminal::EnterAlternateScreen)?;
    terminal.hide_cursor()?;
    terminal.clear()
}

fn is_pause(key: event::KeyEvent) -> bool {
    key.code == KeyCode::Char('z')
        && key.modifiers.contains(KeyModifiers::CONTROL)
        && key.kind != KeyEventKind::Release
}

fn answer(state: &mut State, event: Event, page: usize) {
    // The next drawing takes a resize into account.
    let Event::Key(key) = event else { return };
    if key.kind == KeyEventKind::Release {
        return;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let pressed = match key.code {
        KeyCode::Char('c' | 'd') if is_control => Key::Quit,
        KeyCode::Char(letter) if !is_control => Key::Letter(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Right => Key::Right,
        KeyCode::Left => Key::Left,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Erase,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        _ => return,
    };
    let rows: Vec<Meaning> = rows::of(state).rows.iter().map(|row| row.meaning).collect();
    state.press(pressed, &rows, page);
}
