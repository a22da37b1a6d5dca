//! heaptrack's tree of calls, turned into frames, modules and names of a trace.
//!
//! ```text
//! raw:          x LENGTH PATH                          the program
//!               m LENGTH PATH BASE [ADDRESS BYTES]...  a module and its parts, relative to its
//!                                                      base; path `x`: the program; path `-`:
//!                                                      all modules are told anew
//!               t ADDRESS CALLER                       the next call, and its caller
//! interpreted:  s LENGTH TEXT                          the next text
//!               i ADDRESS MODULE [FUNCTION [FILE LINE]]...
//!                                                      the next place, the innermost inlined
//!                                                      function first
//!               t PLACE CALLER                         the next call
//! ```
//!
//! Texts, places and calls are numbered from 1 in the order of their lines, and 0 is none. Formats
//! 1 and 2 have no LENGTH. A line that can not be understood keeps its number, so that only the
//! stacks through it are lost.

use std::collections::{BTreeMap, HashMap};

use super::lines::{hexadecimal, hexadecimals};
use crate::trace::{Frame, Module, Named, MAX_RAW};

/// From this format on, texts have their length in front.
const SIZED: u64 = 3;
/// The most bytes of names that are kept: all modules of a process are one chunk of the trace.
const MOST_NAMES: usize = MAX_RAW / 4 * 3;

/// A place in code: its module, and its address there. In an interpreted file the address is one in
/// memory.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    module: Option<u64>,
    address: u64,
}

/// The calls of a data file that were read so far.
#[derive(Debug, Default)]
pub struct Calls {
    program: String,
    /// The present mappings of modules: end, number and base, by their start.
    mapped: BTreeMap<u64, (u64, u64, u64)>,
    modules: Vec<Module>,
    /// Numbers of modules, by path and, in a raw file, by base.
    known: HashMap<(String, u64), u64>,
    texts: Vec<String>,
    places: Vec<Place>,
    count: u64,
    /// Frames that `fresh()` has not returned yet.
    fresh: Vec<Frame>,
    /// Bytes of the names.
    named: usize,
}

/// A text and the rest of its line. Since format 3 the text's length comes first.
fn text(format: u64, line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let space = line.iter().position(|byte| *byte == b' ');
    let (first, rest) = line.split_at(space.unwrap_or(line.len()));
    let rest = rest.get(1..).unwrap_or_default();
    if format < SIZED {
        return Some((first, rest));
    }
    rest.split_at_checked(usize::try_from(hexadecimal(first)?).ok()?)
}

impl Calls {
    /// Reads a line with that letter.
    pub fn line(&mut self, format: u64, letter: u8, line: &[u8]) {
        match letter {
            b'x' => self.program = whole(format, line).unwrap_or_default(),
            b's' => self.texts.push(whole(format, line).unwrap_or_default()),
            b'm' => drop(self.module(format, line)),
            b'i' => {
                let place = self.place(line).unwrap_or_default();
                self.places.push(place);
            }
            _ => self.call(line),
        }
    }

    /// The number of a call's frame.
    pub fn frame(&self, call: u64) -> Option<u64> {
        call.checked_sub(1).filter(|frame| *frame < self.count)
    }

    /// The frames that were read since the last call of this function.
    pub fn fresh(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.fresh)
    }

    /// The modules, with the names of the places in them.
    pub fn modules(&self) -> Vec<Module> {
        let mut modules = self.modules.clone();
        for module in &mut modules {
            module.names.sort_by_key(|named| named.address);
        }
        modules
    }

    /// Whether some names were left out because the trace has no room for them.
    pub fn is_full(&self) -> bool {
        self.named > MOST_NAMES
    }

    fn module(&mut self, format: u64, line: &[u8]) -> Option<()> {
        let (path, rest) = text(format, line)?;
        if path == b"-" {
            self.mapped.clear();
            return None;
        }
        let path = match path {
            b"x" => self.program.clone(),
            path => String::from_utf8_lossy(path).into_owned(),
        };
        let numbers = hexadecimals(rest).collect::<Option<Vec<_>>>()?;
        let (base, parts) = numbers.split_first()?;
        let parts = parts.chunks_exact(2).map(|part| {
            let start = base.wrapping_add(part[0]);
            (start, start.saturating_add(part[1]))
        });
        let parts: Vec<(u64, u64)> = parts.collect();
        let start = parts.iter().map(|part| part.0).min()?;
        let end = parts.iter().map(|part| part.1).max()?;
        let number = self.number(path, *base);
        let module = &mut self.modules[number as usize];
        (module.start, module.end) = (start, end);
        for (start, end) in parts {
            self.mapped.insert(start, (end, number, *base));
        }
        Some(())
    }

    fn number(&mut self, path: String, base: u64) -> u64 {
        let next = self.modules.len() as u64;
        let number = *self.known.entry((path.clone(), base)).or_insert(next);
        if number == next {
            self.named += written(&path) + 96;
            self.modules.push(Module {
                path,
                ..Module::default()
            });
        }
        number
    }

    fn place(&mut self, line: &[u8]) -> Option<Place> {
        let numbers = hexadecimals(line).collect::<Option<Vec<_>>>()?;
        let (&[address, module], mut rest) = numbers.split_first_chunk()?;
        let Some(path) = self.text(module) else {
            return Some(Place {
                module: None,
                address,
            });
        };
        let module = self.number(path, 0);
        while let Some((&function, behind)) = rest.split_first() {
            let (file, line) = match behind {
                [file, line, ..] => (self.text(*file), u32::try_from(*line).ok()),
                _ => (None, None),
            };
            rest = behind.get(2..).unwrap_or_default();
            let Some(name) = self.text(function) else {
                continue;
            };
            self.named += written(&name) + file.as_deref().map_or(0, written) + 64;
            if self.is_full() {
                break;
            }
            self.modules[module as usize].names.push(Named {
                address,
                name,
                file,
                line: line.filter(|line| *line > 0),
            });
        }
        Some(Place {
            module: Some(module),
            address,
        })
    }

    fn text(&self, number: u64) -> Option<String> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        self.texts.get(place).cloned()
    }

    fn call(&mut self, line: &[u8]) {
        let numbers: Option<Vec<_>> = hexadecimals(line).collect();
        let (what, caller) = match numbers.as_deref() {
            Some([what, caller, ..]) => (*what, *caller),
            _ => (0, 0),
        };
        let place = match self.places.is_empty() {
            // This is a return address; the call lies before it.
            true => self.mapped_at(what.saturating_sub(1)),
            false => {
                let place = what.checked_sub(1).and_then(|at| usize::try_from(at).ok());
                let place = place.and_then(|at| self.places.get(at));
                place.copied().unwrap_or_default()
            }
        };
        self.fresh.push(Frame {
            number: Some(self.count),
            caller: self.frame(caller),
            module: place.module,
            address: Some(place.address),
        });
        self.count += 1;
    }

    fn mapped_at(&self, address: u64) -> Place {
        let below = self.mapped.range(..=address).next_back();
        match below {
            Some((_, (end, module, base))) if address < *end => Place {
                module: Some(*module),
                address: address.wrapping_sub(*base),
            },
            _ => Place {
                module: None,
                address,
            },
        }
    }
}

/// About how many bytes a name takes in the trace: a control character takes six.
fn written(name: &str) -> usize {
    name.len() + 5 * name.bytes().filter(|byte| byte.is_ascii_control()).count()
}

/// A text that fills the whole line.
fn whole(format: u64, line: &[u8]) -> Option<String> {
    let text = match format < SIZED {
        true => line.trim_ascii(),
        false => text(format, line)?.0,
    };
    Some(String::from_utf8_lossy(text).into_owned())
}
