//! The functions that a replacement must provide together: a block from one of them is freed by
//! another one.

use std::fmt;

/// What a function of the family does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The C functions that allocate, resize or free blocks.
    Blocks,
    /// The functions of C and POSIX that allocate aligned blocks.
    Aligned,
    /// Functions that ask about a block.
    Query,
    /// `operator new` and `operator delete`, which a C++ runtime makes from `malloc` and `free`.
    Operators,
}

/// The family. C++ names are those of 64-bit systems.
const FAMILY: [(&str, &str, Group); 42] = [
    ("malloc", "malloc", Group::Blocks),
    ("free", "free", Group::Blocks),
    ("calloc", "calloc", Group::Blocks),
    ("realloc", "realloc", Group::Blocks),
    ("reallocarray", "reallocarray", Group::Blocks),
    ("memalign", "memalign", Group::Aligned),
    ("posix_memalign", "posix_memalign", Group::Aligned),
    ("aligned_alloc", "aligned_alloc", Group::Aligned),
    ("valloc", "valloc", Group::Aligned),
    ("pvalloc", "pvalloc", Group::Aligned),
    ("malloc_usable_size", "malloc_usable_size", Group::Query),
    ("cfree", "cfree", Group::Blocks),
    ("__libc_malloc", "__libc_malloc", Group::Blocks),
    ("__libc_free", "__libc_free", Group::Blocks),
    ("__libc_cfree", "__libc_cfree", Group::Blocks),
    ("__libc_calloc", "__libc_calloc", Group::Blocks),
    ("__libc_realloc", "__libc_realloc", Group::Blocks),
    ("__libc_reallocarray", "__libc_reallocarray", Group::Blocks),
    ("__libc_memalign", "__libc_memalign", Group::Aligned),
    ("__libc_valloc", "__libc_valloc", Group::Aligned),
    ("__libc_pvalloc", "__libc_pvalloc", Group::Aligned),
    ("__posix_memalign", "__posix_memalign", Group::Aligned),
    ("_Znwm", "new", Group::Operators),
    ("_Znam", "new[]", Group::Operators),
    ("_ZnwmRKSt9nothrow_t", "new(nothrow)", Group::Operators),
    ("_ZnamRKSt9nothrow_t", "new[](nothrow)", Group::Operators),
    ("_ZnwmSt11align_val_t", "new(align)", Group::Operators),
    ("_ZnamSt11align_val_t", "new[](align)", Group::Operators),
    (
        "_ZnwmSt11align_val_tRKSt9nothrow_t",
        "new(align, nothrow)",
        Group::Operators,
    ),
    (
        "_ZnamSt11align_val_tRKSt9nothrow_t",
        "new[](align, nothrow)",
        Group::Operators,
    ),
    ("_ZdlPv", "delete", Group::Operators),
    ("_ZdaPv", "delete[]", Group::Operators),
    ("_ZdlPvm", "delete(size)", Group::Operators),
    ("_ZdaPvm", "delete[](size)", Group::Operators),
    ("_ZdlPvRKSt9nothrow_t", "delete(nothrow)", Group::Operators),
    (
        "_ZdaPvRKSt9nothrow_t",
        "delete[](nothrow)",
        Group::Operators,
    ),
    ("_ZdlPvSt11align_val_t", "delete(align)", Group::Operators),
    ("_ZdaPvSt11align_val_t", "delete[](align)", Group::Operators),
    (
        "_ZdlPvmSt11align_val_t",
        "delete(size, align)",
        Group::Operators,
    ),
    (
        "_ZdaPvmSt11align_val_t",
        "delete[](size, align)",
        Group::Operators,
    ),
    (
        "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "delete(align, nothrow)",
        Group::Operators,
    ),
    (
        "_ZdaPvSt11align_val_tRKSt9nothrow_t",
        "delete[](align, nothrow)",
        Group::Operators,
    ),
];

/// One function of the family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function(usize);

impl Function {
    /// `malloc`. A process is judged by it first.
    pub const MALLOC: Function = Function(0);

    /// The function with that symbol, if the symbol belongs to the family.
    pub fn named(symbol: &[u8]) -> Option<Function> {
        let found = FAMILY
            .iter()
            .position(|(name, ..)| name.as_bytes() == symbol);
        found.map(Function)
    }

    /// All functions of the family.
    pub fn all() -> impl Iterator<Item = Function> {
        (0..FAMILY.len()).map(Function)
    }

    /// The symbol.
    pub fn symbol(self) -> &'static str {
        FAMILY[self.0].0
    }

    /// The name for people.
    pub fn title(self) -> &'static str {
        FAMILY[self.0].1
    }

    /// The group that it belongs to.
    pub fn group(self) -> Group {
        FAMILY[self.0].2
    }

    /// Whether a block may come from this function or go to it directly, not through another
    /// function of the family.
    pub fn handles_blocks(self) -> bool {
        matches!(self.group(), Group::Blocks | Group::Aligned)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// `malloc, free and new`; several operators become one word.
pub fn titles(functions: &[Function]) -> String {
    let is_operator = |function: &&Function| function.group() == Group::Operators;
    let mut words: Vec<&str> = functions
        .iter()
        .filter(|function| !is_operator(function))
        .map(|function| function.title())
        .collect();
    if functions.iter().any(|function| is_operator(&function)) {
        let has = |what| {
            functions
                .iter()
                .any(|f| is_operator(&f) && f.title().starts_with(what))
        };
        words.push(match (has("new"), has("delete")) {
            (true, true) => "operator new and delete",
            (true, false) => "operator new",
            _ => "operator delete",
        });
    }
    words.join(", ")
}

/// Prefixes of the functions that allocate or free blocks and belong to one allocator only.
const OWN_INTERFACES: [(&str, &str); 16] = [
    ("mallocx", "jemalloc"),
    ("rallocx", "jemalloc"),
    ("xallocx", "jemalloc"),
    ("dallocx", "jemalloc"),
    ("sdallocx", "jemalloc"),
    ("je_", "jemalloc"),
    ("_rjem_", "jemalloc"),
    ("mi_malloc", "mimalloc"),
    ("mi_free", "mimalloc"),
    ("mi_heap_", "mimalloc"),
    ("tc_malloc", "tcmalloc"),
    ("tc_free", "tcmalloc"),
    ("tc_new", "tcmalloc"),
    ("scalable_malloc", "oneTBB's malloc"),
    ("scalable_free", "oneTBB's malloc"),
    ("rpmalloc", "rpmalloc"),
];

/// The allocator whose own interface this symbol belongs to.
pub fn own_interface(symbol: &[u8]) -> Option<&'static str> {
    let found = OWN_INTERFACES
        .iter()
        .find(|(start, _)| symbol.starts_with(start.as_bytes()));
    found.map(|(_, allocator)| *allocator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_has_each_symbol_once_and_malloc_first() {
        let mut symbols: Vec<&str> = Function::all().map(Function::symbol).collect();
        assert_eq!(symbols[0], "malloc");
        assert_eq!(Function::named(b"malloc"), Some(Function::MALLOC));
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), FAMILY.len());
        assert_eq!(Function::named(b"mallopt"), None);
    }

    #[test]
    fn operators_are_told_in_one_word() {
        let named = |symbols: &[&str]| {
            let functions = symbols
                .iter()
                .map(|s| Function::named(s.as_bytes()).unwrap());
            titles(&functions.collect::<Vec<_>>())
        };
        assert_eq!(named(&["malloc", "free"]), "malloc, free");
        assert_eq!(
            named(&["_Znwm", "_ZdlPvm", "free"]),
            "free, operator new and delete"
        );
        assert_eq!(named(&["_Znam"]), "operator new");
    }
}
