//! Judges `operator new` and `operator delete`. A program may replace only some of their forms.
//!
//! The C++ standard defines most forms by other forms: a sized delete by the plain one, arrays by
//! single objects. The C++ runtime and the heap do the same, so a call ends in the first definition
//! of the basic form. The judgement is about these ends: a block from the `new` of one module must
//! not end in the `delete` of another.

use std::collections::BTreeSet;

use crate::family::{Function, Group};
use crate::findings::{Judge, Severity};
use crate::linked::{Linked, Module, Provider};

/// The definition in which a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// A definition that only calls `malloc` or `free`: the heap's, or the C++ runtime's.
    Heap,
    /// Another module's own definition.
    Own(usize),
}

/// Forms that must match: objects, arrays, and both with an alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    is_array: bool,
    is_aligned: bool,
}

impl Kind {
    fn of(function: Function) -> Kind {
        Kind {
            is_array: function.title().contains("[]"),
            is_aligned: function.title().contains("align"),
        }
    }

    /// The plain forms of new and delete.
    fn pair(self) -> [Function; 2] {
        let symbols = match (self.is_array, self.is_aligned) {
            (false, false) => ["_Znwm", "_ZdlPv"],
            (true, false) => ["_Znam", "_ZdaPv"],
            (false, true) => ["_ZnwmSt11align_val_t", "_ZdlPvSt11align_val_t"],
            (true, true) => ["_ZnamSt11align_val_t", "_ZdaPvSt11align_val_t"],
        };
        symbols.map(|symbol| Function::named(symbol.as_bytes()).expect("the family has it"))
    }
}

/// The form by which the standard defines this one.
fn defined_by(function: Function) -> Option<Function> {
    let kind = Kind::of(function);
    let is_delete = usize::from(is_delete(function));
    let plain = kind.pair()[is_delete];
    if function != plain {
        return Some(plain);
    }
    let single = Kind {
        is_array: false,
        ..kind
    };
    kind.is_array.then(|| single.pair()[is_delete])
}

fn is_delete(function: Function) -> bool {
    function.title().starts_with("delete")
}

fn is_runtime(module: &Module) -> bool {
    ["libstdc++.", "libc++.", "libc++abi."]
        .iter()
        .any(|name| module.name().starts_with(name))
}

/// Whether the module defines forms by other forms. The heap does so since it exports the C
/// library's own names.
fn composes(module: &Module) -> bool {
    let since = Function::named(b"__libc_malloc");
    is_runtime(module) || (module.is_loam() && since.is_some_and(|name| module.exports(name)))
}

/// The end of a call to `function`, if the module's reference leads to `provider`.
fn end(linked: &Linked, mut function: Function, mut provider: usize) -> End {
    loop {
        let module = &linked.modules[provider];
        let next = defined_by(function).filter(|_| composes(module));
        let Some(next) = next else {
            return if module.is_loam() || is_runtime(module) {
                End::Heap
            } else {
                End::Own(provider)
            };
        };
        let Some(place) = linked.first(next, module.namespace) else {
            return End::Heap;
        };
        (function, provider) = (next, place);
    }
}

impl Judge<'_> {
    /// Judges the forms that the program replaces.
    pub(super) fn operators(&mut self) {
        let linked = self.linked().clone();
        let mut own = BTreeSet::new();
        let mut torn = BTreeSet::new();
        for (place, module) in linked.modules.iter().enumerate() {
            if module.namespace != 0 || is_runtime(module) || module.is_loam() {
                continue;
            }
            let calls = linked
                .bindings
                .iter()
                .filter(|binding| binding.module == place);
            let calls = calls.filter(|binding| binding.function.group() == Group::Operators);
            let ends: Vec<(Function, End)> = calls
                .filter_map(|binding| match binding.provider {
                    Provider::Module(to) => {
                        Some((binding.function, end(&linked, binding.function, to)))
                    }
                    Provider::Elsewhere(_) => None,
                })
                .collect();
            for (function, ending) in &ends {
                // The call is compared with the other half of its pair: the module's own calls of
                // that half, and the definition that a call of its plain form would find. In the
                // module that defines it, the latter is not a reference.
                let [new, delete] = Kind::of(*function).pair();
                let half = if is_delete(*function) { new } else { delete };
                let mut others: Vec<End> = ends
                    .iter()
                    .filter(|(other, _)| {
                        Kind::of(*other) == Kind::of(*function)
                            && is_delete(*other) == is_delete(half)
                    })
                    .map(|(_, ending)| *ending)
                    .collect();
                others.extend(linked.search(half, place).map(|to| end(&linked, half, to)));
                for each in others.iter().chain([ending]) {
                    if let End::Own(whose) = each {
                        own.insert(*whose);
                    }
                }
                for other in others.into_iter().filter(|other| other != ending) {
                    for (whose, not) in [(*ending, other), (other, *ending)] {
                        if let End::Own(whose) = whose {
                            torn.insert((whose, not, *function));
                        }
                    }
                }
            }
        }
        for whose in own {
            let module = &linked.modules[whose];
            let name = |end: &End| match end {
                End::Heap => "the heap".to_owned(),
                End::Own(other) => linked.modules[*other].name().to_owned(),
            };
            let mine: Vec<_> = torn.iter().filter(|(owner, ..)| *owner == whose).collect();
            let has_both = |function: &Function| {
                Kind::of(*function).pair().iter().all(|half| {
                    module.exports(*half)
                        || defined_by(*half).is_some_and(|single| module.exports(single))
                })
            };
            if let Some((_, other, function)) =
                mine.iter().find(|(.., function)| has_both(function))
            {
                let what = format!(
                    "has operator new and delete of its own, but not all forms end in them: of {} \
                     and its other half, one ends there and one in {}, so a block of one is freed \
                     by the other",
                    function.title(),
                    name(other)
                );
                self.add(
                    "torn-operators",
                    Severity::Unsafe,
                    &module.path,
                    what,
                    "replace every form of operator new and delete or none, with default \
                     visibility and without -Bsymbolic, and use a heap of this version",
                );
            } else if !mine.is_empty() {
                self.add(
                    "own-operators",
                    Severity::Note,
                    &module.path,
                    "replaces operator new without delete, or delete without new: harmless if what \
                     it replaces does no more than malloc or free"
                        .to_owned(),
                    "none is needed if the program runs without the heap",
                );
            } else {
                self.add(
                    "own-operators",
                    Severity::Note,
                    &module.path,
                    "has forms of operator new and delete of its own: harmless, every other form \
                     ends in them"
                        .to_owned(),
                    "none is needed",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_comes_down_to_a_single_one() {
        let operators = Function::all().filter(|f| f.group() == Group::Operators);
        let mut bases = BTreeSet::new();
        for operator in operators {
            let mut function = operator;
            while let Some(next) = defined_by(function) {
                assert_eq!(Kind::of(next).is_aligned, Kind::of(function).is_aligned);
                assert_eq!(is_delete(next), is_delete(function));
                function = next;
            }
            bases.insert(function.symbol());
        }
        let expected = [
            "_ZdlPv",
            "_ZdlPvSt11align_val_t",
            "_Znwm",
            "_ZnwmSt11align_val_t",
        ];
        assert_eq!(bases.into_iter().collect::<Vec<_>>(), expected);
    }
}
