//! Formulas: how counters are computed from records and from each other, as `formats/counters.toml`
//! declares it.
//!
//! ```text
//! formula   whole [ / whole ]
//! whole     term { + term | - term }
//! term      part { * part }
//! part      single [ ? ]
//! single    number | name | TABLE.FIELD [ [i] ] | ( whole ) | max ( whole , whole ) | sum single
//! ```
//!
//! Whole numbers stay between 0 and 2^64 - 1: a result outside of that range becomes the nearest
//! end, because a process may report any number. A result is unknown if one of its parts is
//! unknown. After `?`, an unknown part counts as 0.

mod parser;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use thiserror::Error;

use super::list::{Counter, List, Scope, Source, TableInfo, LIST};
use super::raw::{Raw, Row};
use parser::Parser;

/// Why a text is not a formula.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the formula `{text}` is wrong at `{rest}`: {what}")]
pub struct FormulaError {
    /// The whole formula.
    pub text: String,
    /// The text from the first error on.
    pub rest: String,
    /// What the parser expected there.
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

/// The result of a formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Bytes, operations and the like.
    Whole(u64),
    /// A quotient; none if it is not a number.
    Real(f64),
}

/// A formula.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formula {
    of: Expression,
    per: Option<Expression>,
}

/// The figures that a formula is computed from.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Records.
    pub raw: &'a Raw,
    /// Counters that are known already.
    pub known: &'a dyn Fn(&str) -> Option<u64>,
    /// Looks up a field in a class's formulas. Such a formula refers to one record of the table, or
    /// to the sum over some records.
    pub meant: &'a dyn Fn(&str, &str) -> Option<u64>,
    /// The tables that `meant` looks up.
    pub tables: &'a [&'a str],
}

/// A counter that is computed by a formula.
#[derive(Debug)]
pub struct Derived {
    /// Its id.
    pub id: &'static str,
    /// The source of its figures.
    pub source: Source,
    /// Its formula.
    pub formula: Formula,
}

/// All formulas of the list. A formula comes after the formulas that it needs.
#[derive(Debug)]
pub struct Formulas {
    /// Formulas for the process.
    pub process: Vec<Derived>,
    /// Formulas for a heap.
    pub heap: Vec<Derived>,
    /// Formulas for a class of a heap. In them, `class` and `bin` refer to that class.
    pub class: Vec<Derived>,
    quantities: BTreeMap<&'static str, Formula>,
}

/// The list's formulas. A tool that can not read its own formulas is broken; a test reads them.
pub static FORMULAS: LazyLock<Formulas> =
    LazyLock::new(|| Formulas::of(&LIST).expect("the formulas of the list are read by a test"));

impl Formulas {
    fn of(list: &'static List) -> Result<Formulas, FormulaError> {
        let mut quantities: BTreeMap<&'static str, Formula> = BTreeMap::new();
        for quantity in &list.quantities {
            let formula = Formula::parse(&quantity.derive, list)?.expanded(&quantities);
            quantities.insert(&quantity.id, formula);
        }
        let scope = |which: fn(&'static Counter) -> Option<&'static String>| {
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

    /// A quantity that is not a counter, computed from records only.
    pub fn quantity(&self, id: &str, raw: &Raw) -> Option<u64> {
        let ground = Ground::of_records(raw);
        match self.quantities.get(id)?.value(&ground)? {
            Number::Whole(value) => Some(value),
            Number::Real(_) => None,
        }
    }

    /// A counter of the process, computed from records only. It is unknown if its formula names
    /// another counter.
    pub fn of_records(&self, id: &str, raw: &Raw) -> Option<u64> {
        let derived = self.process.iter().find(|derived| derived.id == id)?;
        match derived.formula.value(&Ground::of_records(raw))? {
            Number::Whole(value) => Some(value),
            Number::Real(_) => None,
        }
    }
}

/// Sorts formulas so that each comes after those that it needs. Formulas that need each other in a
/// circle keep their order, and are unknown.
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
    /// A ground with records only.
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
    /// Reads a formula. Its tables, fields and names must be in the list.
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

    /// The formula's result, if all its parts are known.
    pub fn value(&self, ground: &Ground<'_>) -> Option<Number> {
        let of = self.of.value(ground, None)?;
        let Some(per) = &self.per else {
            return Some(Number::Whole(of));
        };
        Some(Number::Real(of as f64 / per.value(ground, None)? as f64))
    }

    /// Replaces the names of quantities by their formulas.
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

    /// Adds the names of the counters in the formula to `found`.
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

/// The record that a table's name refers to within a sum.
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
                // If the sum is over a plain field, the field is looked up once for all records.
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

    /// Visits this expression and all its parts.
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

    /// The one table in the expression that may have several records.
    fn table_of_many(&self, list: &List) -> Option<String> {
        let mut found: Vec<String> = Vec::new();
        self.clone().each(&mut |expression| {
            if let Expression::Field { table, .. } = expression {
                let is_single = |info: &TableInfo| info.name == *table && info.kind == "record";
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

#[cfg(test)]
mod tests;
