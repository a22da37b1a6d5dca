//! The screen, drawn from the state. No colour has a meaning that the text lacks. The styles are
//! bold, dim and reversed, and one colour for what is wrong; with `NO_COLOR` there is no colour.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use ratatui::Frame;

use loam_counters::live::rows::{self, signed_bytes, Sheets};
use loam_counters::live::state::{History, Place, Sheet, State};
use loam_counters::verdict;
use loam_counters::watch::sampler::Sample;
use loam_format::counters::ids;
use loam_format::units::{bytes, decimal, duration};
use loam_format::{plain, words};
use loam_process::process::ProcessKey;
use loam_report::columns;

/// How the terminal is used.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Whether colour is wanted.
    pub colour: bool,
    /// Whether the terminal shows characters beyond ASCII.
    pub unicode: bool,
}

impl Manner {
    fn warning(self) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if self.colour {
            bold.fg(Color::Yellow)
        } else {
            bold
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The smallest terminal on which the text is readable.
const SMALLEST: (u16, u16) = (40, 8);

/// Draws everything. Returns how many rows of the table fit, which is the size of a page.
pub fn draw(frame: &mut Frame, state: &State, manner: Manner) -> usize {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!("loam top needs {} x {}", SMALLEST.0, SMALLEST.1);
        frame.render_widget(Paragraph::new(text), area);
        return 1;
    }
    let details = details(state, manner, area.width as usize, area.height as usize);
    let [head, middle, table, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(details.len() as u16),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header(state)), head);
    frame.render_widget(Paragraph::new(details), middle);
    let page = draw_table(frame, state, table);
    frame.render_widget(Paragraph::new(footer(state, area.width as usize)), foot);
    if state.help {
        draw_help(frame, area);
    }
    page
}

fn header(state: &State) -> Line<'static> {
    let paused = if state.paused { "  PAUSED" } else { "" };
    let mut spans = vec![Span::styled("loam top", BOLD)];
    let crumb = |key: ProcessKey| {
        let name = state.sample(key).map(|sample| sample.identity.name.clone());
        format!(
            "  {} ({})",
            name.unwrap_or_else(|| "ended".to_owned()),
            key.pid
        )
    };
    let heap = |key: ProcessKey, number: u64| {
        let found = state.sample(key).and_then(Sample::snapshot);
        let found =
            found.and_then(|snapshot| snapshot.heap(&number.to_string()).map(|h| h.label()));
        found.unwrap_or_else(|| number.to_string())
    };
    spans.push(Span::raw(match state.place() {
        Place::Processes => {
            let on_loam = state
                .tick
                .samples
                .iter()
                .filter(|sample| sample.snapshot().is_some_and(|found| !found.is_peer))
                .count();
            let mut text = format!(
                "  {} on Loam",
                words::count_of(on_loam, "process", "processes")
            );
            if state.tick.refused > 0 {
                text += &format!(", {} of other users not looked into", state.tick.refused);
            }
            text
        }
        Place::Process(key, _) => crumb(key),
        Place::Heap(key, number) => format!("{} > heap {}", crumb(key), heap(key, number)),
        Place::Class(key, number, size) => format!(
            "{} > heap {} > blocks of {}",
            crumb(key),
            heap(key, number),
            bytes(size as f64)
        ),
    }));
    if state.place() == Place::Processes && !state.filter.text().is_empty() {
        let text = plain::line(state.filter.text());
        spans.push(Span::raw(format!("  named /{text}/")));
    }
    spans.push(Span::styled(paused, REVERSED));
    Line::from(spans)
}

fn footer(state: &State, width: usize) -> Line<'static> {
    let keys = match state.place() {
        Place::Processes if state.is_typing() => format!(
            "Names with: {}_  Enter keep  Esc drop",
            plain::line(state.filter.text())
        ),
        Place::Processes => format!(
            "Enter details  s sort ({:?})  r {}  / filter  p pause  ? help  q quit",
            state.sort,
            if state.reversed {
                "reversed"
            } else {
                "reverse"
            }
        ),
        Place::Process(..) => {
            "Enter deeper  Tab heaps/classes/locks  Esc back  p pause  ? help  q quit".to_owned()
        }
        _ => "Enter deeper  Esc back  p pause  ? help  q quit".to_owned(),
    };
    Line::styled(columns::cut(&keys, width).to_owned(), DIM)
}

/// The lines above the table.
fn details(state: &State, manner: Manner, width: usize, height: usize) -> Vec<Line<'static>> {
    match state.place() {
        Place::Processes => Vec::new(),
        Place::Process(key, sheet) => {
            let mut lines = process(state, key, manner, width, height);
            if sheet == Sheet::Locks {
                lines.extend(unused_locks(state, key));
            }
            lines
        }
        Place::Heap(key, _) => sparks(state.history.get(&key), manner, width),
        Place::Class(key, heap, size) => class(state, key, heap, size, manner, width),
    }
}

fn unused_locks(state: &State, key: ProcessKey) -> Option<Line<'static>> {
    let snapshot = state.sample(key).and_then(Sample::snapshot)?;
    let locks = snapshot.locks.iter();
    let unused = locks.filter(|lock| lock.is_unused()).count();
    let text = format!("{}, never taken, not shown", words::count(unused, "lock"));
    (unused > 0).then(|| Line::styled(text, DIM))
}

fn process(
    state: &State,
    key: ProcessKey,
    manner: Manner,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let Some(sample) = state.sample(key) else {
        return vec![Line::styled(
            "The process has ended. Esc goes back.",
            manner.warning(),
        )];
    };
    let mut lines = Vec::new();
    match &state.focus {
        Some(Ok(view)) if view.identity.key == key => {
            lines.extend(wrap(&(verdict::of(view).sentence + "."), width, BOLD));
            let most = if height > 30 { 12 } else { 6 };
            let mut shown: Vec<_> = view.account.lines.clone();
            shown.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            let rest: u64 = shown.iter().skip(most).map(|(_, bytes)| *bytes).sum();
            let mut cells: Vec<(String, u64)> = shown
                .iter()
                .take(most)
                .map(|(share, bytes)| (share.title().to_owned(), *bytes))
                .collect();
            if shown.len() > most {
                cells.push(("the rest".to_owned(), rest));
            }
            cells.push(("resident".to_owned(), view.account.resident));
            lines.extend(two_columns(&cells, width));
        }
        Some(Err(reason)) => lines.extend(wrap(reason, width, manner.warning())),
        _ => lines.push(Line::styled("Looking...", DIM)),
    }
    if let Err(error) = &sample.counters {
        lines.extend(wrap(
            &format!("Its counters can not be read: {error}."),
            width,
            manner.warning(),
        ));
    } else if sample.snapshot().is_none() {
        let text = "Not on Loam: what its heap holds only its allocator knows. `loam run` starts \
                    it on Loam.";
        lines.extend(wrap(text, width, DIM));
    }
    if let Some(snapshot) = sample.snapshot() {
        for note in &snapshot.notes {
            lines.extend(wrap(&format!("Note: {note}."), width, DIM));
        }
        lines.push(Line::raw(calls(state, sample)));
    }
    lines.extend(sparks(state.history.get(&key), manner, width));
    lines
}

/// One line of rates.
fn calls(state: &State, sample: &Sample) -> String {
    let rate = |id: &str| {
        state
            .rate(sample, id)
            .map_or_else(|| "-".to_owned(), |rate| decimal(rate.round()))
    };
    let sampled = sample
        .snapshot()
        .is_some_and(|snapshot| snapshot.process.get(ids::ALLOCS).is_some());
    let first = if sampled {
        format!(
            "allocs {}/s  frees {}/s",
            rate(ids::ALLOCS),
            rate(ids::FREES)
        )
    } else {
        format!(
            "refills {}/s  flushes {}/s",
            rate(ids::CACHE_MISSES),
            rate(ids::CACHE_FLUSHES)
        )
    };
    let growth = state
        .growth(sample)
        .map_or_else(|| "-".to_owned(), signed_bytes);
    format!(
        "{first}  purges {}/s  live {growth}/s",
        rate(ids::PURGE_CALLS)
    )
}

fn two_columns(cells: &[(String, u64)], width: usize) -> Vec<Line<'static>> {
    let half = (width / 2).saturating_sub(1);
    let cell = |(title, amount): &(String, u64)| {
        let figure = bytes(*amount as f64);
        let room = half.saturating_sub(figure.len() + 1);
        format!("{} {figure}", columns::left(title, room))
    };
    let rows = cells.chunks(2).map(|pair| {
        let texts: Vec<String> = pair.iter().map(cell).collect();
        Line::raw(texts.join("  "))
    });
    rows.collect()
}

fn wrap(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let lines = columns::wrap(&plain::line(text), width).into_iter();
    lines.map(|line| Line::styled(line, style)).collect()
}

/// Sparklines of the last looks, one line for each figure.
fn sparks(history: Option<&History>, manner: Manner, width: usize) -> Vec<Line<'static>> {
    let Some(history) = history else {
        return Vec::new();
    };
    let figures = [
        ("resident", &history.resident, true),
        ("live", &history.live, true),
        ("waits/s", &history.waits, false),
        ("misses/s", &history.misses, false),
    ];
    let shown = figures.into_iter().filter(|(name, figures, _)| {
        *name == "resident" || figures.iter().any(|figure| *figure > 0.0)
    });
    let shown: Vec<_> = shown
        .map(|(name, figures, in_bytes)| {
            let last = figures.back().copied().unwrap_or(0.0);
            let most = figures.iter().copied().fold(0.0, f64::max);
            let show = |value: f64| {
                if in_bytes {
                    bytes(value)
                } else {
                    decimal(value.round())
                }
            };
            let tail = format!(" {:>8} (max {})", show(last), show(most));
            (name, figures, tail)
        })
        .collect();
    // All lines have the same length, so that one axis fits them.
    let tails = shown.iter().map(|(.., tail)| columns::width(tail));
    let room = width.saturating_sub(10 + tails.max().unwrap_or(0));
    let lines = shown.into_iter().map(|(name, figures, tail)| {
        let figures: Vec<f64> = figures.iter().copied().collect();
        let bars = spark(&figures, room, manner.unicode);
        Line::raw(format!("{name:<9} {bars}{tail}"))
    });
    let now = history.at.back();
    let ages = history
        .at
        .iter()
        .map(|at| now.map_or(0.0, |now| (*now - *at).as_secs_f64()));
    let axis = axis(&ages.collect::<Vec<f64>>(), room);
    let axis = Line::styled(format!("{:<9} {axis}", ""), DIM);
    lines.chain([axis]).collect()
}

/// The axis below bars. Each mark gives the age of the look whose bar is above it.
pub fn axis(ages: &[f64], width: usize) -> String {
    /// Columns between two marks. The longest age takes 13 columns with its mark.
    const STEP: usize = 16;
    const NOW: &str = "now|";
    let shown = &ages[ages.len().saturating_sub(width)..];
    let begin = width - shown.len();
    let mut text = " ".repeat(begin);
    for (place, age) in shown.iter().enumerate().step_by(STEP) {
        text += &" ".repeat((begin + place).saturating_sub(text.len()));
        let mark = format!("|{}", duration(*age));
        if text.len() + mark.len() + 1 + NOW.len() <= width {
            text += &mark;
        }
    }
    match width >= NOW.len() {
        true => columns::left(&text, width - NOW.len()) + NOW,
        false => text,
    }
}

/// The last figures as bars, scaled to the largest; padded on the left.
pub fn spark(figures: &[f64], width: usize, unicode: bool) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 9] = [' ', '.', '.', ':', ':', '=', '=', '#', '#'];
    let bars = if unicode { BARS } else { PLAIN };
    let shown = &figures[figures.len().saturating_sub(width)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |figure: &f64| {
        let height = if most > 0.0 { figure / most * 8.0 } else { 0.0 };
        // A figure above 0 is always visible.
        let height = if *figure > 0.0 { height.max(1.0) } else { 0.0 };
        bars[(height.round() as usize).min(8)]
    };
    let text: String = shown.iter().map(bar).collect();
    format!("{text:>width$}")
}

fn class(
    state: &State,
    key: ProcessKey,
    heap: u64,
    size: u64,
    manner: Manner,
    width: usize,
) -> Vec<Line<'static>> {
    let snapshot = state.sample(key).and_then(Sample::snapshot);
    let heap = snapshot.and_then(|snapshot| snapshot.heap(&heap.to_string()));
    let found = heap.and_then(|heap| heap.classes.iter().find(|class| class.block_bytes == size));
    let Some(class) = found else {
        return vec![Line::styled(
            "No such class any more. Esc goes back.",
            manner.warning(),
        )];
    };
    let whole = |id: &str| class.values.whole(id);
    let mut lines = vec![
        Line::raw(format!(
            "{} live in {} blocks, {} cached, {} free in {} spans; waste {}",
            bytes(class.live_bytes() as f64),
            decimal(whole(ids::CLASS_LIVE_BLOCKS) as f64),
            decimal(whole(ids::CLASS_CACHED_BLOCKS) as f64),
            decimal(whole(ids::CLASS_FREE_BLOCKS) as f64),
            decimal(whole(ids::CLASS_SPANS) as f64),
            bytes(class.waste() as f64),
        )),
        Line::raw(format!(
            "refilled {}, returned {}, freed from afar {}; lock: {} of {} waited, {} avoided",
            decimal(whole(ids::CLASS_REFILLED_BLOCKS) as f64),
            decimal(whole(ids::CLASS_RETURNED_BLOCKS) as f64),
            decimal(whole(ids::CLASS_REMOTE_BLOCKS) as f64),
            decimal(whole(ids::CLASS_LOCK_CONTENTIONS) as f64),
            decimal(whole(ids::CLASS_LOCK_ACQUISITIONS) as f64),
            decimal(whole(ids::CLASS_LOCK_REFUSALS) as f64),
        )),
        Line::raw(""),
        Line::styled("Spans by how full they are", BOLD),
    ];
    let most = class.occupancy.iter().copied().max().unwrap_or(0).max(1);
    let last = class.occupancy.len().saturating_sub(1);
    for (eighth, count) in class.occupancy.iter().enumerate() {
        let label = if eighth == last {
            "full".to_owned()
        } else {
            format!("from {:>3}%", eighth * 100 / last.max(1))
        };
        let room = width.saturating_sub(24);
        let length = (*count as f64 / most as f64 * room as f64).ceil() as usize;
        let bar = if manner.unicode { "█" } else { "#" };
        let figure = decimal(*count as f64);
        lines.push(Line::raw(format!(
            "{label:>9} {figure:>8} {}",
            bar.repeat(length.min(room))
        )));
    }
    lines
}

fn draw_table(frame: &mut Frame, state: &State, area: Rect) -> usize {
    let sheet = rows::of(state);
    let width = area.width as usize;
    if sheet.columns.is_empty() {
        return 1;
    }
    let room = (area.height as usize).saturating_sub(1).max(1);
    if sheet.rows.is_empty() {
        frame.render_widget(Paragraph::new(nothing(state, &sheet)), area);
        return room;
    }
    let selected = state.selected().min(sheet.rows.len() - 1);
    let first = (selected + 1).saturating_sub(room);
    let mut lines = vec![Line::styled(sheet.headings(width), BOLD)];
    for (number, row) in sheet.rows.iter().enumerate().skip(first).take(room) {
        let style = match (number == selected, row.dim) {
            (true, _) => REVERSED,
            (false, true) => DIM,
            (false, false) => Style::new(),
        };
        let line = sheet.line(&row.cells, width);
        lines.push(Line::styled(columns::left(&line, width), style));
    }
    frame.render_widget(Paragraph::new(lines), area);
    room
}

fn nothing(state: &State, sheet: &Sheets) -> Vec<Line<'static>> {
    if state.place() != Place::Processes {
        return vec![Line::styled(format!("No {}.", sheet.title), DIM)];
    }
    if !state.tick.samples.is_empty() {
        return vec![Line::styled("No process has such a name.", DIM)];
    }
    [
        "No process is on Loam.",
        "",
        "Start one:         loam run -- PROGRAM ARGUMENTS",
        "Watch any other:   loam top PID",
    ]
    .map(Line::raw)
    .to_vec()
}

const HELP: &str = "\u{20}Up Down PgUp PgDn Home End   choose a row (or j, k)
 Enter                        go deeper: process, heap, size class
 Esc Backspace Left           go back
 Tab                          heaps, size classes or locks of a process
 s  r                         sort processes by the next column, reverse
 /                            filter by name (Enter keeps, Esc drops)
 p Space  Ctrl-Z              pause the view, suspend the program
 q Ctrl-C                     quit

 RESIDENT  memory that the process has now
 LIVE      blocks that the program holds
 FREE%     free of what the heap has backed: fragmentation
 CACHED    freed blocks that threads keep for themselves
 GROWTH/S  change of live bytes (not on Loam: of resident)
 WAITS/S   lock acquisitions that had to wait
 HITS%     allocations from the thread's cache (>: at least)

 Any key closes this.";

fn draw_help(frame: &mut Frame, area: Rect) {
    let lines = HELP.lines().count() as u16;
    let widest = HELP.lines().map(columns::width).max().unwrap_or(0) as u16;
    let (width, height) = ((widest + 4).min(area.width), (lines + 2).min(area.height));
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let block = ratatui::widgets::Block::bordered().title(" Help ");
    let block = block.border_set(ratatui::symbols::border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    });
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(HELP).block(block), place);
}
