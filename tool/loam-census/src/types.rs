//! The type of a block, by its first words.
//!
//! ```text
//!  first word -> table of virtual functions in a module
//!                -> word before it -> type information -> name           (C++)
//!                -> no type information -> symbol of the table           (C++ without it)
//!             -> table of functions in a module -> its symbol            (C)
//!  a small word, then such a table       -> an array of such objects, with its count before them
//!  such a table among the first words    -> a block with such an object: a node of a container
//!  count of references, then a type      -> tp_name                     (CPython)
//!  otherwise                             -> what its bytes look like (content)
//! ```
//!
//! Type information is in memory, because `dynamic_cast` needs it. So stripped programs have it,
//! too.

use std::collections::HashMap;
use std::sync::{Mutex, RwLock};

use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::modules::Modules;
use crate::names;
use crate::python::Python;
use crate::table::Table;
use crate::target::Target;

/// How a type is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A C++ class with virtual functions.
    Class,
    /// A C object with a table of functions.
    Functions,
    /// A CPython object.
    Python,
    /// No type: what the bytes look like.
    Content,
    /// No type: held by one variable, stack or mapping.
    Root,
    /// No type: held by one variable that is a C++ object with virtual functions.
    Object,
    /// No type: objects of several types hold it.
    Owners,
    /// No type: several hold it.
    Shared,
    /// No type: nothing holds it.
    Unheld,
}

impl Kind {
    /// Whether it is a type of the program's.
    pub fn is_type(self) -> bool {
        matches!(self, Kind::Class | Kind::Functions | Kind::Python)
    }

    /// Whether blocks of such a row have a type, or owners with one.
    pub fn has_type(self) -> bool {
        self.is_type() || matches!(self, Kind::Object | Kind::Owners)
    }

    /// The name of a row, with what kind of row it is.
    pub fn title(self, name: &str) -> String {
        match self {
            Kind::Class | Kind::Functions | Kind::Python => name.to_owned(),
            Kind::Content => format!("({name})"),
            Kind::Root | Kind::Object => format!("in {name}"),
            Kind::Owners => format!("shared by {name}"),
            Kind::Shared => format!("held by several: {name}"),
            Kind::Unheld => format!("lost or unreached: {name}"),
        }
    }
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Type {
    /// Its name, printable.
    pub name: String,
    /// How it is known.
    pub kind: Kind,
}

/// No type.
pub const NO_TYPE: u32 = u32::MAX;

/// So many words of a block may be the beginning of an object in it: the longest head of a node is
/// that of a map with a text as its key.
const EMBEDDED: usize = 8;

/// More tables than this are not looked up: a target's words may all look like tables.
const MOST_TABLES: usize = 1 << 20;

#[derive(Default)]
struct Interned {
    all: Vec<Type>,
    numbers: HashMap<Type, u32>,
}

/// The types of a target, found as they are met.
pub struct Types<'a> {
    target: &'a dyn Target,
    modules: &'a Modules<'a>,
    interned: Mutex<Interned>,
    tables: RwLock<HashMap<u64, u32>>,
    python: Option<Python<'a>>,
    span: (u64, u64),
}

/// Where in a block a table's address is.
#[derive(Debug, Clone, Copy)]
enum Place {
    First,
    /// Behind a count.
    Array,
    /// In the word of that number.
    Within(u8),
}

impl Place {
    fn code(self) -> u64 {
        match self {
            Place::First => 0,
            Place::Array => 1,
            Place::Within(place) => 1 + u64::from(place),
        }
    }

    fn named(self, name: &str) -> String {
        match self {
            Place::First => name.to_owned(),
            Place::Array => format!("{name}[]"),
            Place::Within(place) => format!("block with {name} at +{}", 8 * u32::from(place)),
        }
    }
}

/// What one thread found lately.
pub struct Lately(Vec<(u64, u32)>);

impl Default for Lately {
    fn default() -> Lately {
        Lately(vec![(0, NO_TYPE); 1 << 12])
    }
}

impl<'a> Types<'a> {
    /// No type is known yet, but for those of contents.
    pub fn of(
        target: &'a dyn Target,
        modules: &'a Modules<'a>,
        python: Option<Python<'a>>,
    ) -> Types<'a> {
        let start = modules.all().first().map_or(0, |one| one.start);
        let end = modules.all().last().map_or(0, |one| one.end);
        let types = Types {
            target,
            modules,
            interned: Mutex::default(),
            tables: RwLock::default(),
            python,
            span: (start, end),
        };
        for content in Content::ALL {
            types.number(content.name(), Kind::Content);
        }
        types
    }

    /// The number of a type.
    pub fn number(&self, name: &str, kind: Kind) -> u32 {
        let mut interned = self
            .interned
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let wanted = Type {
            name: name.to_owned(),
            kind,
        };
        if let Some(number) = interned.numbers.get(&wanted) {
            return *number;
        }
        let number = interned.all.len() as u32;
        interned.all.push(wanted.clone());
        interned.numbers.insert(wanted, number);
        number
    }

    /// All types, by number.
    pub fn into_all(self) -> Vec<Type> {
        let interned = self.interned.into_inner();
        interned
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .all
    }

    /// The type of a block whose first bytes these are.
    pub fn of_block(
        &self,
        bytes: &[u8],
        size: u64,
        blocks: &Table,
        hint: &mut usize,
        lately: &mut Lately,
    ) -> u32 {
        let word = |place: usize| {
            let bytes = bytes.get(8 * place..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let first = word(0).unwrap_or(0);
        if let Some(found) = self.table(first, Place::First, lately) {
            return found;
        }
        let second = word(1).unwrap_or(0);
        if first > 0 && first <= size / 8 {
            if let Some(found) = self.table(second, Place::Array, lately) {
                return found;
            }
        }
        if let Some(python) = &self.python {
            for place in [0, 2, 4] {
                let (Some(count), Some(kind)) = (word(place), word(place + 1)) else {
                    break;
                };
                if let Some(name) = python.of_object(count, kind, blocks, hint) {
                    return self.number(&name, Kind::Python);
                }
            }
        }
        let content = Content::of(bytes, size, |address| blocks.find(address, hint).is_some());
        // Where the heap lies by chance, a pointer's bytes look like a text, or begin like a file.
        if content != Content::Zeros {
            for place in 1..=EMBEDDED {
                let Some(word) = word(place) else { break };
                if let Some(found) = self.table(word, Place::Within(place as u8), lately) {
                    return found;
                }
            }
        }
        content as u32
    }

    /// The class whose table of virtual functions this is.
    pub fn class(&self, table: u64) -> Option<u32> {
        self.modules.at(table)?;
        let name = self.by_type_information(table)?;
        Some(self.number(&name, Kind::Class))
    }

    /// The type of blocks in which a table's address is at this place.
    fn table(&self, address: u64, at: Place, lately: &mut Lately) -> Option<u32> {
        if address < self.span.0 || address >= self.span.1 || address % 8 != 0 {
            return None;
        }
        // The heap lies between the modules, and has far more addresses than they have tables.
        self.modules.at(address)?;
        let key = address | at.code() << 56;
        let place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        let (known, found) = lately.0[place];
        let number = if known == key {
            found
        } else {
            let read = |poisoned: std::sync::PoisonError<_>| poisoned.into_inner();
            let known = self.tables.read().unwrap_or_else(read).get(&key).copied();
            let found = known.unwrap_or_else(|| {
                let found = self.look_up(address, at).unwrap_or(NO_TYPE);
                let mut tables = self
                    .tables
                    .write()
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
                if tables.len() < MOST_TABLES {
                    tables.insert(key, found);
                }
                found
            });
            lately.0[place] = (key, found);
            found
        };
        (number != NO_TYPE).then_some(number)
    }

    fn look_up(&self, address: u64, at: Place) -> Option<u32> {
        self.modules.at(address)?;
        if self.modules.is_code(address) {
            return None;
        }
        let named = |name: &str| self.number(&at.named(name), Kind::Class);
        if let Some(name) = self.by_type_information(address) {
            return Some(named(&name));
        }
        if matches!(at, Place::Within(_)) {
            return None;
        }
        let (start, _, symbol) = self.modules.symbol(address)?;
        if let Some(name) = names::of_table(&symbol) {
            return Some(named(&name));
        }
        // Among the table's first entries is a function.
        let has_code = (0..4).any(|entry| {
            let entry = self.target.word(address + 8 * entry);
            entry.is_some_and(|entry| self.modules.is_code(entry))
        });
        let is_table = start == address && has_code && matches!(at, Place::First);
        is_table.then(|| {
            let name = names::of_variable(&symbol);
            self.number(&format!("object with {name}"), Kind::Functions)
        })
    }

    /// The name in the type information that belongs to a table of virtual functions.
    fn by_type_information(&self, address: u64) -> Option<String> {
        let information = self.target.word(address.checked_sub(8)?)?;
        let to_top = self.target.word(address.checked_sub(16)?)? as i64;
        // The object begins here, so the way to its beginning is none.
        if to_top != 0 || information % 8 != 0 {
            return None;
        }
        self.modules.at(information)?;
        self.modules.at(self.target.word(information)?)?;
        let name = self.target.word(information + 8)?;
        self.modules.at(name)?;
        names::of_type(&self.target.text(name, 4096)?)
    }
}
