//! Parses texts into formulas.

use super::{Expression, FormulaError};
use crate::counters::list::{List, Quantity, TableInfo};

/// The fields of every table with a lock.
const LOCK_FIELDS: [&str; 3] = ["lock_acquisitions", "lock_contentions", "lock_refusals"];

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) rest: &'a str,
    pub(super) list: &'a List,
}

impl<'a> Parser<'a> {
    pub(super) fn wrong(&self, what: &'static str) -> FormulaError {
        FormulaError {
            text: self.text.to_owned(),
            rest: self.rest.trim().to_owned(),
            what,
        }
    }

    pub(super) fn takes(&mut self, mark: &str) -> bool {
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

    /// A word of letters, digits and underscores; none if there is no such character.
    fn word(&mut self) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        self.rest = &text[end..];
        (end > 0).then_some(&text[..end])
    }

    pub(super) fn whole(&mut self) -> Result<Expression, FormulaError> {
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
                let is_quantity = |quantity: &Quantity| quantity.id == name;
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
        let has_lock = |info: &TableInfo| info.name == table && info.lock;
        is_own || (LOCK_FIELDS.contains(&field) && self.list.tables.iter().any(has_lock))
    }

    /// An index such as `[2]`. Without one, the field's first value is used.
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
