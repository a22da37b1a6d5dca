//! The types of single blocks, without a look at the rest of the heap: what the first words of each
//! say. Who holds a block is not known then.

use crate::modules::Modules;
use crate::python::Python;
use crate::table::Table;
use crate::target::Target;
use crate::types::{Lately, Type, Types};

/// So many bytes of a block are read. Chosen: what a block looks like shows in fewer.
const MOST_READ: u64 = 1024;

/// The types of live blocks, given by address and size in the order of addresses. A block that went
/// meanwhile has the type of what lies there now.
pub fn of(target: &dyn Target, blocks: &[(u64, u64)]) -> Vec<Type> {
    let modules = Modules::of(target);
    let python = Python::is_in(&modules).then(|| Python::of(target, &modules));
    let types = Types::of(target, &modules, python);
    let table = Table::of_blocks(blocks);
    let mut lately = Lately::default();
    let mut hint = 0;
    let mut bytes = vec![0; MOST_READ as usize];
    let numbers: Vec<u32> = blocks
        .iter()
        .map(|(address, size)| {
            let read = &mut bytes[..MOST_READ.min(*size) as usize];
            target.fill(*address, read);
            types.of_block(read, *size, &table, &mut hint, &mut lately)
        })
        .collect();
    let all = types.into_all();
    numbers
        .into_iter()
        .map(|number| all[number as usize].clone())
        .collect()
}
