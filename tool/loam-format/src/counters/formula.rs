//! Formulas: how counters follow from records and from each other, as `formats/counters.toml` declares it.
//!
//! ```text
//! formula   whole [ / whole ]            whole    term { (+|-) term }        term   part { * part }
//! part      single [ ? ]                 single   number | name | TABLE.FIELD [ [i] ] | ( whole )
//!                                                 | max ( whole , whole ) | sum part
//! ```
//!
//! Whole numbers stay between 0 and 2^64 - 1: what would leave that range stays at its end, because a process may claim
//! anything. What is made of something unknown is unknown, except behind `?`, which takes 0 for it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use thiserror::Error;

use super::list::{List, Scope, Source, LIST};
use super::raw::{Raw, Row};

/// Why a text is no formula.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the formula `{text}` is wrong at `{rest}`: {what}")]
pub struct FormulaError {
    /// The whole formula.
    pub text: String,
    /// What was not understood, and all behind it.
    pub rest: String,
    /// What was wanted there.
    pub what: &'static str,
}

/// A whole number that is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expression {
    Number(u64),
    /// Another counter.
    Counter(String),
    Field {
        table: String,
        field: String,
        index: u64,
    },
    Sum {
        table: String,
        of: Box<Expression>,
    },
    OrZero(Box<Expression>),
    Add(Box<Expression>, Box<Expression>),
    Subtract(Box<Expression>, Box<Expression>),
    Multiply(Box<Expression>, Box<Expression>),
    Larger(Box<Expression>, Box<Expression>),
}

/// What a formula yields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Bytes, operations and the like.
    Whole(u64),
    /// One thing divided by another; no number where that is none.
    Real(f64),
}

/// A formula.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formula {
    of: Expression,
    per: Option<Expression>,
}

/// What a formula is computed from.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Records.
    pub raw: &'a Raw,
    /// Counters that are known already.
    pub known: &'a dyn Fn(&str) -> Option<u64>,
    /// Fields of tables of which one record, or some together, are meant here: in a class's formulas.
    pub meant: &'a dyn Fn(&str, &str) -> Option<u64>,
    /// Those tables.
    pub tables: &'a [&'a str],
}

/// A counter that a formula yields.
#[derive(Debug)]
pub struct Derived {
    /// Its id.
    pub id: &'static str,
    /// Where its figures come from.
    pub source: Source,
    /// How.
    pub formula: Formula,
}

/// All formulas of the list, each behind those that it needs.
#[derive(Debug)]
pub struct Formulas {
    /// Of the process.
    pub process: Vec<Derived>,
    /// Of a heap.
    pub heap: Vec<Derived>,
    /// Of a class of a heap: `class` and `bin` mean its own.
    pub class: Vec<Derived>,
    quantities: BTreeMap<&'static str, Formula>,
}

/// The list's formulas. A tool that can not read its own is broken, and a test reads them.
pub static FORMULAS: LazyLock<Formulas> =
    LazyLock::new(|| Formulas::of(&LIST).expect("the formulas of the list are read by a test"));

impl Formulas {
    fn of(list: &'static List) -> Result<Formulas, FormulaError> {
        let mut quantities: BTreeMap<&'static str, Formula> = BTreeMap::new();
        for quantity in &list.quantities {
            let formula = Formula::parse(&quantity.derive, list)?.expanded(&quantities);
            quantities.insert(&quantity.id, formula);
        }
        let scope = |which: fn(&'static super::list::Counter) -> Option<&'static String>| {
            let mut found = Vec::new();
            for counter in &list.counters {
                if let Some(text) = which(counter) {
                    found.push(Derived {
                        id: &counter.id,
                        source: counter.source,
                        formula: Formula::parse(text, list)?.expanded(&quantities),
                    });
                }
            }
            Ok(in_order(found))
        };
        let process = scope(|counter| match counter.scope {
            Scope::Process => counter.derive.as_ref(),
            _ => counter.of_process.as_ref(),
        })?;
        let heap = scope(|counter| {
            counter
                .derive
                .as_ref()
                .filter(|_| counter.scope == Scope::Heap)
        })?;
        let class = scope(|counter| {
            counter
                .derive
                .as_ref()
                .filter(|_| counter.scope == Scope::Class)
        })?;
        Ok(Formulas {
            process,
            heap,
            class,
            quantities,
        })
    }

    /// A quantity that is no counter, computed from records alone.
    pub fn quantity(&self, id: &str, raw: &Raw) -> Option<u64> {
        let ground = Ground::of_records(raw);
        match self.quantities.get(id)?.value(&ground)? {
            Number::Whole(value) => Some(value),
            Number::Real(_) => None,
        }
    }

    /// A counter of the process, computed from records alone: unknown if its formula names another counter.
    pub fn of_records(&self, id: &str, raw: &Raw) -> Option<u64> {
        let derived = self.process.iter().find(|derived| derived.id == id)?;
        match derived.formula.value(&Ground::of_records(raw))? {
            Number::Whole(value) => Some(value),
            Number::Real(_) => None,
        }
    }
}

/// Each behind those of them that it needs. Those of a circle keep their place, and are unknown.
fn in_order(mut rest: Vec<Derived>) -> Vec<Derived> {
    let mut ordered: Vec<Derived> = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let open: Vec<&'static str> = rest.iter().map(|derived| derived.id).collect();
        let needs_none = |derived: &Derived| {
            let mut needed = Vec::new();
            derived.formula.counters(&mut needed);
            !needed.iter().any(|id| open.contains(&id.as_str()))
        };
        let (free, bound): (Vec<Derived>, Vec<Derived>) = rest.into_iter().partition(needs_none);
        let is_stuck = free.is_empty();
        ordered.extend(free);
        rest = bound;
        if is_stuck {
            ordered.append(&mut rest);
        }
    }
    ordered
}

impl<'a> Ground<'a> {
    /// Records, and nothing else.
    pub fn of_records(raw: &'a Raw) -> Ground<'a> {
        Ground {
            raw,
            known: &|_| None,
            meant: &|_, _| None,
            tables: &[],
        }
    }
}

impl Formula {
    /// Reads a formula. Tables, fields and names are those of the list.
    pub fn parse(text: &str, list: &List) -> Result<Formula, FormulaError> {
        let mut parser = Parser {
            text,
            rest: text,
            list,
        };
        let of = parser.whole()?;
        let per = match parser.takes("/") {
            true => Some(parser.whole()?),
            false => None,
        };
        match parser.rest.trim() {
            "" => Ok(Formula { of, per }),
            _ => Err(parser.wrong("nothing, or an operator")),
        }
    }

    /// What it yields, if all that it is made of is known.
    pub fn value(&self, ground: &Ground<'_>) -> Option<Number> {
        let of = self.of.value(ground, None)?;
        let Some(per) = &self.per else {
            return Some(Number::Whole(of));
        };
        Some(Number::Real(of as f64 / per.value(ground, None)? as f64))
    }

    /// Puts quantities in the place of their names.
    fn expanded(mut self, quantities: &BTreeMap<&'static str, Formula>) -> Formula {
        let mut put = |expression: &mut Expression| {
            if let Expression::Counter(name) = expression {
                if let Some(quantity) = quantities.get(name.as_str()) {
                    *expression = quantity.of.clone();
                }
            }
        };
        self.of.each(&mut put);
        if let Some(per) = &mut self.per {
            per.each(&mut put);
        }
        self
    }

    /// The counters that it names.
    fn counters(&self, found: &mut Vec<String>) {
        let mut copy = self.clone();
        let mut note = |expression: &mut Expression| {
            if let Expression::Counter(name) = expression {
                found.push(name.clone());
            }
        };
        copy.of.each(&mut note);
        if let Some(per) = &mut copy.per {
            per.each(&mut note);
        }
    }
}

/// The record that is meant by its table's name within a sum.
type Current<'a, 'r> = Option<(&'a str, &'a Row<'r>)>;

impl Expression {
    fn value(&self, ground: &Ground<'_>, row: Current<'_, '_>) -> Option<u64> {
        let both = |one: &Expression, two: &Expression, join: fn(u64, u64) -> u64| {
            Some(join(one.value(ground, row)?, two.value(ground, row)?))
        };
        match self {
            Expression::Number(value) => Some(*value),
            Expression::Counter(id) => (ground.known)(id),
            Expression::Field {
                table,
                field,
                index,
            } => match row {
                Some((name, row)) if name == table => row.at(field, *index),
                _ if ground.tables.contains(&table.as_str()) => (ground.meant)(table, field),
                _ => ground.raw.row(table)?.at(field, *index),
            },
            Expression::Sum { table, of } => {
                let mut rows = ground.raw.rows(table)?;
                // Looked up once for all records, where that is all there is to it.
                if let Expression::Field { field, index, .. } = of.as_ref() {
                    let found = ground.raw.field(table, field);
                    return rows.try_fold(0u64, |sum, row| {
                        Some(sum.saturating_add(row.value(found?, *index)?))
                    });
                }
                rows.try_fold(0u64, |sum, row| {
                    Some(sum.saturating_add(of.value(ground, Some((table, &row)))?))
                })
            }
            Expression::OrZero(of) => Some(of.value(ground, row).unwrap_or(0)),
            Expression::Add(one, two) => both(one, two, u64::saturating_add),
            Expression::Subtract(one, two) => both(one, two, u64::saturating_sub),
            Expression::Multiply(one, two) => both(one, two, u64::saturating_mul),
            Expression::Larger(one, two) => both(one, two, u64::max),
        }
    }

    /// Visits this and all that it is made of.
    fn each(&mut self, visit: &mut impl FnMut(&mut Expression)) {
        visit(self);
        match self {
            Expression::Number(_) | Expression::Counter(_) | Expression::Field { .. } => {}
            Expression::Sum { of, .. } | Expression::OrZero(of) => of.each(visit),
            Expression::Add(one, two)
            | Expression::Subtract(one, two)
            | Expression::Multiply(one, two)
            | Expression::Larger(one, two) => {
                one.each(visit);
                two.each(visit);
            }
        }
    }

    /// The one table in it that may have several records.
    fn table_of_many(&self, list: &List) -> Option<String> {
        let mut found: Vec<String> = Vec::new();
        self.clone().each(&mut |expression| {
            if let Expression::Field { table, .. } = expression {
                let is_single =
                    |info: &super::list::TableInfo| info.name == *table && info.kind == "record";
                if !list.tables.iter().any(is_single) && !found.contains(table) {
                    found.push(table.clone());
                }
            }
        });
        match found.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }
}

/// Fields of every table with a lock.
const LOCK_FIELDS: [&str; 3] = ["lock_acquisitions", "lock_contentions", "lock_refusals"];

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    list: &'a List,
}

impl<'a> Parser<'a> {
    fn wrong(&self, what: &'static str) -> FormulaError {
        FormulaError {
            text: self.text.to_owned(),
            rest: self.rest.trim().to_owned(),
            what,
        }
    }

    fn takes(&mut self, mark: &str) -> bool {
        match self.rest.trim_start().strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn wants(&mut self, mark: &str, what: &'static str) -> Result<(), FormulaError> {
        match self.takes(mark) {
            true => Ok(()),
            false => Err(self.wrong(what)),
        }
    }

    /// Letters, digits and underscores; none if there are none.
    fn word(&mut self) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        self.rest = &text[end..];
        (end > 0).then_some(&text[..end])
    }

    fn whole(&mut self) -> Result<Expression, FormulaError> {
        let mut sum = self.term()?;
        loop {
            sum = if self.takes("+") {
                Expression::Add(Box::new(sum), Box::new(self.term()?))
            } else if self.takes("-") {
                Expression::Subtract(Box::new(sum), Box::new(self.term()?))
            } else {
                return Ok(sum);
            };
        }
    }

    fn term(&mut self) -> Result<Expression, FormulaError> {
        let mut product = self.part()?;
        while self.takes("*") {
            product = Expression::Multiply(Box::new(product), Box::new(self.part()?));
        }
        Ok(product)
    }

    fn part(&mut self) -> Result<Expression, FormulaError> {
        let single = self.single()?;
        Ok(match self.takes("?") {
            true => Expression::OrZero(Box::new(single)),
            false => single,
        })
    }

    fn single(&mut self) -> Result<Expression, FormulaError> {
        if self.takes("(") {
            let inner = self.whole()?;
            self.wants(")", "`)`")?;
            return Ok(inner);
        }
        let before = self.rest;
        let Some(word) = self.word() else {
            return Err(self.wrong("a number, a name or `(`"));
        };
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().map(Expression::Number).map_err(|_| {
                self.rest = before;
                self.wrong("a number below 2^64")
            });
        }
        match word {
            "sum" => {
                let of = self.single()?;
                let table = of.table_of_many(self.list);
                let table = table.ok_or_else(|| {
                    self.rest = before;
                    self.wrong("a sum over the records of one table")
                })?;
                Ok(Expression::Sum {
                    table,
                    of: Box::new(of),
                })
            }
            "max" => {
                self.wants("(", "`(`")?;
                let one = self.whole()?;
                self.wants(",", "`,`")?;
                let two = self.whole()?;
                self.wants(")", "`)`")?;
                Ok(Expression::Larger(Box::new(one), Box::new(two)))
            }
            table if self.takes(".") => {
                let field = self.word().unwrap_or("");
                if !self.has_field(table, field) {
                    self.rest = before;
                    return Err(self.wrong("a table and a field of the list"));
                }
                let index = self.index()?;
                Ok(Expression::Field {
                    table: table.to_owned(),
                    field: field.to_owned(),
                    index,
                })
            }
            name => {
                let is_quantity = |quantity: &super::list::Quantity| quantity.id == name;
                if self.list.counter(name).is_none()
                    && !self.list.quantities.iter().any(is_quantity)
                {
                    self.rest = before;
                    return Err(self.wrong("a counter or a quantity of the list"));
                }
                Ok(Expression::Counter(name.to_owned()))
            }
        }
    }

    fn has_field(&self, table: &str, field: &str) -> bool {
        let fields = self.list.fields.get(table);
        let is_own = fields.is_some_and(|all| all.iter().any(|info| info.name == field));
        let has_lock = |info: &super::list::TableInfo| info.name == table && info.lock;
        is_own || (LOCK_FIELDS.contains(&field) && self.list.tables.iter().any(has_lock))
    }

    /// `[2]`; without it the first value is meant.
    fn index(&mut self) -> Result<u64, FormulaError> {
        if !self.takes("[") {
            return Ok(0);
        }
        let number = self.word().and_then(|word| word.parse().ok());
        let number = number.ok_or_else(|| self.wrong("a number"))?;
        self.wants("]", "`]`")?;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_formula_of_the_list_is_one_and_stands_behind_what_it_needs() {
        let formulas = Formulas::of(&LIST).unwrap();
        for scope in [&formulas.process, &formulas.heap, &formulas.class] {
            assert!(!scope.is_empty());
            let place = |id: &str| scope.iter().position(|derived| derived.id == id);
            for (own, derived) in scope.iter().enumerate() {
                let mut needed = Vec::new();
                derived.formula.counters(&mut needed);
                for id in needed {
                    let is_before = place(&id).is_none_or(|place| place < own);
                    assert!(is_before, "{} needs {id}", derived.id);
                }
            }
        }
    }

    #[test]
    fn every_counter_says_how_it_comes_about() {
        for counter in &LIST.counters {
            let is_said = counter.derive.is_some() != counter.found.is_some();
            assert!(is_said, "{}: either `derive` or `found`", counter.id);
            let is_of_heaps = counter.scope == Scope::Heap;
            assert!(
                counter.of_process.is_none() || is_of_heaps,
                "{}",
                counter.id
            );
        }
    }

    #[test]
    fn what_is_no_formula_is_named_at_its_place() {
        for (text, rest) in [
            ("", ""),
            ("live_bytes +", ""),
            ("page_heap.nothing", "page_heap.nothing"),
            ("nobody + 1", "nobody + 1"),
            ("(live_bytes", ""),
            ("live_bytes / 2 / 2", "/ 2"),
            ("sum huge.mapped", "sum huge.mapped"),
            (
                "sum (cache.refills + region.extents)",
                "sum (cache.refills + region.extents)",
            ),
            ("99999999999999999999", "99999999999999999999"),
            ("registry.allocs[x]", "]"),
        ] {
            let error = Formula::parse(text, &LIST).unwrap_err();
            assert_eq!(error.rest, rest, "{error}");
        }
    }

    #[test]
    fn numbers_stay_in_their_range_and_the_unknown_stays_unknown() {
        let known = |id: &str| match id {
            "live_bytes" => Some(u64::MAX),
            "used_bytes" => Some(3),
            "backed_bytes" => Some(0),
            _ => None,
        };
        let directory = super::super::directory::Directory {
            version: 1,
            library: String::new(),
            tables: Vec::new(),
            refused: Vec::new(),
        };
        let raw = Raw {
            directory: std::sync::Arc::new(directory),
            tables: Vec::new(),
            torn: Vec::new(),
            lost: Vec::new(),
        };
        let ground = Ground {
            known: &known,
            ..Ground::of_records(&raw)
        };
        let value = |text: &str| Formula::parse(text, &LIST).unwrap().value(&ground);
        assert_eq!(
            value("live_bytes + used_bytes"),
            Some(Number::Whole(u64::MAX))
        );
        assert_eq!(
            value("live_bytes * used_bytes"),
            Some(Number::Whole(u64::MAX))
        );
        assert_eq!(value("used_bytes - 5 + 1"), Some(Number::Whole(1)));
        assert_eq!(value("1 + 2 * (used_bytes - 1)"), Some(Number::Whole(5)));
        assert_eq!(value("max(used_bytes, 7)"), Some(Number::Whole(7)));
        assert_eq!(value("used_bytes + free_bytes"), None);
        assert_eq!(value("used_bytes + free_bytes?"), Some(Number::Whole(3)));
        assert_eq!(value("sum cache.refills"), None);
        assert_eq!(value("sum cache.refills?"), Some(Number::Whole(0)));
        assert_eq!(value("used_bytes / 2"), Some(Number::Real(1.5)));
        assert!(
            matches!(value("backed_bytes / backed_bytes"), Some(Number::Real(none)) if none.is_nan())
        );
    }
}
