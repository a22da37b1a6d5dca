//! Tables under the lock of another table's record. They are read at one moment, or kept from the
//! look before.

use std::sync::Arc;
use std::time::Duration;

use loam_format::counters::copies::{length_of, Copies, Spot};
use loam_format::counters::directory::Kind;
use loam_format::counters::raw::Row;
use loam_format::memory::{Memory, ReadError};
use loam_process::budget::Budget;

use crate::reader::Reader;
use crate::settle::{gather, Seal, Settle, Trial};

/// How often a group of tables is located again because it changed meanwhile.
const SHAPES: u32 = 4;
/// A group that is older than this is read again, at any cost.
const OLDEST: Duration = Duration::from_secs(10);

/// The result of reading a group a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The group lies where the first reading found it.
    Same,
    /// The group has changed.
    Changed,
    /// The lock was not free during any try.
    Busy,
}

impl<M: Memory> Reader<'_, M> {
    /// Reads a group of a watched process. The group of the look before is kept if no thread has
    /// taken the lock since, or if reading it again would cost too much.
    pub(super) fn group_again(
        &mut self,
        head: usize,
        others: &[usize],
        budget: &mut Budget,
    ) -> Result<(), ReadError> {
        let name = |place: usize| &self.directory.tables[place].name;
        let before = self.before.as_ref().filter(|before| {
            let is_whole = |place: &usize| {
                before.tables[*place].is_some() && !before.lost.contains(name(*place))
            };
            others.iter().all(is_whole)
        });
        if let Some(before) = before {
            let table = &self.directory.tables[head];
            let is_unchanged = table.field("lock_acquisitions").is_some()
                && !self.torn.contains(&table.name)
                && !before.torn.contains(&table.name)
                && match (&self.tables[head], &before.tables[head]) {
                    (Some(now), Some(then)) => now.is_same(table, then),
                    _ => false,
                };
            let is_fresh = is_unchanged && budget.age().is_none();
            if is_fresh || !budget.is_due(OLDEST) {
                if before.torn.contains(&table.name) {
                    self.torn.push(table.name.clone());
                }
                for place in others {
                    self.tables[*place].clone_from(&before.tables[*place]);
                }
                if is_fresh {
                    budget.renew();
                } else {
                    budget.skip();
                }
                return Ok(());
            }
        }
        let look = budget.begin();
        let result = self.group(head, others);
        budget.end(look);
        result
    }

    /// Reads tables under the lock of the head's record. The pointers between records are read at
    /// one moment together with that record; the long table behind them is read part by part.
    pub(super) fn group(&mut self, head: usize, others: &[usize]) -> Result<(), ReadError> {
        let table = &self.directory.tables[head];
        let (Some((&last, between)), Some(seal)) = (others.split_last(), Seal::of(table)) else {
            return Ok(());
        };
        let lost = self.lost.len();
        let mut shape = Shape::Changed;
        let mut long = Copies::default();
        for _ in 0..SHAPES {
            self.lost.truncate(lost);
            // The first reading finds where the records seem to lie. The second one reads them at
            // one moment.
            for place in between {
                self.single(*place)?;
            }
            let ways = self.ways(others);
            let planned = gather(self.memory, &ways).and_then(|seen| Ok((self.plan(last)?, seen)));
            let seen = match planned {
                Ok((planned, seen)) => {
                    long = planned;
                    seen
                }
                Err(error) => return self.survive(last, error).map(drop),
            };
            shape = self.together(head, between, &seal, (&ways, &seen))?;
            if shape == Shape::Same && long.lie_at(&self.places(last)?) {
                break;
            }
            if shape == Shape::Busy {
                break;
            }
            shape = Shape::Changed;
        }
        if shape != Shape::Same {
            self.torn.push(table.name.clone());
        }
        let bracketed = self.affords(&long).and_then(|()| {
            let table = &self.directory.tables[last];
            long.bracket(table, &seal, self.memory, self.patience)
        });
        match bracketed {
            Ok(is_settled) => {
                if !is_settled {
                    self.torn.push(table.name.clone());
                }
                self.tables[last] = Some(Arc::new(long));
            }
            Err(error) => self.survive(last, error)?,
        }
        Ok(())
    }

    /// The words outside records that point to the records of tables.
    fn ways(&self, places: &[usize]) -> Vec<Spot> {
        let mut ways = Vec::new();
        let mut add = |address, length| {
            ways.push(Spot {
                address,
                length,
                at: 0,
            })
        };
        for place in places {
            let table = &self.directory.tables[*place];
            if table.kind == Kind::List {
                add(table.address, 8);
            }
            let parents = table.parent.and_then(|parent| self.tables[parent].as_ref());
            for parent in parents.into_iter().flat_map(|parents| &parents.records) {
                if table.kind == Kind::Pointed {
                    add(parent.address.wrapping_add(table.address), 8);
                    if let Some(link) = table.link {
                        add(parent.address.wrapping_add(link), 4);
                    }
                }
            }
        }
        ways
    }

    /// Reads the head's record, the tables between it and the long one, and the pointers to them
    /// once more, at one moment. The copies are kept if this succeeds and the records lie where
    /// they did.
    fn together(
        &mut self,
        head: usize,
        between: &[usize],
        seal: &Seal,
        (ways, seen): (&[Spot], &[u8]),
    ) -> Result<Shape, ReadError> {
        let mut places = vec![head];
        places.extend(between);
        let mut parts: Vec<(usize, Copies, Vec<Spot>)> = Vec::new();
        let mut inner = ways.to_vec();
        for place in places {
            let Some(copies) = &self.tables[place] else {
                continue;
            };
            let spots = copies.spots(&self.directory.tables[place], 0, copies.records.len());
            inner.extend(&spots);
            parts.push((place, Copies::clone(copies), spots));
        }
        let mut all = Vec::new();
        seal.around(&mut all, &inner);
        let mut trial = Trial::new(self.patience);
        while trial.goes_on() {
            let copied = match gather(self.memory, &all) {
                Err(ReadError::Unmapped { .. }) => return Ok(Shape::Changed),
                copied => copied?,
            };
            let (bytes, is_settled) = seal.open(&mut &*copied, length_of(&inner));
            if !is_settled {
                continue;
            }
            let (led, mut rest) = bytes.split_at(seen.len());
            let mut is_same = led == seen;
            for (place, copies, spots) in &mut parts {
                let (own, behind) = rest.split_at(length_of(spots));
                copies.take(spots, own);
                rest = behind;
                is_same &= self.links(*place, copies) == self.links_of(*place);
            }
            if !is_same {
                return Ok(Shape::Changed);
            }
            for (place, copies, _) in parts {
                self.tables[place] = Some(Arc::new(copies));
            }
            // Children must lie where their parents say.
            for place in between {
                let table = &self.directory.tables[*place];
                let lies_so = table.kind == Kind::List
                    || match &self.tables[*place] {
                        Some(copies) => copies.lie_at(&self.places(*place)?),
                        None => true,
                    };
                if !lies_so {
                    return Ok(Shape::Changed);
                }
            }
            return Ok(Shape::Same);
        }
        Ok(Shape::Busy)
    }

    /// The pointers that chain the records of a list.
    fn links(&self, place: usize, copies: &Copies) -> Vec<Option<u64>> {
        let table = &self.directory.tables[place];
        match (table.kind, table.link) {
            (Kind::List, Some(link)) => {
                let rows = copies
                    .records
                    .iter()
                    .map(|record| Row::of(table, copies, record));
                rows.map(|row| row.raw(link)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn links_of(&self, place: usize) -> Vec<Option<u64>> {
        self.tables[place]
            .as_ref()
            .map_or_else(Vec::new, |copies| self.links(place, copies))
    }
}
