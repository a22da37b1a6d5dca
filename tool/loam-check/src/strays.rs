//! Judges bindings: whether all calls of the family end at the same allocator.

use loam_format::words;

use crate::family::{titles, Function};
use crate::findings::{Judge, Severity};
use crate::linked::{Binding, Linked, Module, Provider};

impl Judge<'_> {
    /// Judges whether calls end where they should.
    pub(super) fn bindings(&mut self) {
        let linked = self.linked().clone();
        let heap =
            |place: Option<usize>| place.is_some_and(|place| linked.modules[place].is_loam());
        let first = linked.first(Function::MALLOC, 0);
        if let Some(place) = first.filter(|_| !heap(first)) {
            let module = linked.modules[place].path.clone();
            self.add(
                "searched-first",
                Severity::Fails,
                &module,
                "exports malloc and is searched before the heap, so the whole program uses it"
                    .to_owned(),
                "build it without its allocator, or name the heap before it: in LD_PRELOAD, or \
                 with -lloam first at the link",
            );
        }
        self.mixture(&linked, first);
        if heap(first) {
            self.strays(&linked);
        }
        self.own_interfaces(&linked);
        self.operators();
        let heaps: Vec<&Module> = linked
            .modules
            .iter()
            .filter(|m| m.is_loam() && m.namespace == 0)
            .collect();
        if let [_, others @ ..] = heaps.as_slice() {
            for other in others {
                self.add(
                    "two-heaps",
                    Severity::Unsafe,
                    &other.path,
                    format!(
                        "holds a second copy of the heap beside {}: its malloc is not used, but \
                         loam_* functions that it calls inside are its own",
                        heaps[0].path
                    ),
                    "link the heap once: the program with -lloam, and everything else without \
                     libloam.a",
                );
            }
        }
    }

    /// Finds functions of the family that come from different allocators.
    fn mixture(&mut self, linked: &Linked, first: Option<usize>) {
        let Some(malloc) = first else { return };
        let mut others: Vec<(usize, Vec<Function>)> = Vec::new();
        for function in Function::all().filter(|function| function.handles_blocks()) {
            // Two cases are harmless: a function that no module uses, and calls that an allocator
            // hands on to the C library by that library's own names.
            let is_handed_on = |module: &Module| {
                function.symbol().starts_with("__libc_") && module.exports(Function::MALLOC)
            };
            let is_used = linked.bindings.iter().any(|b| {
                let module = &linked.modules[b.module];
                b.function == function && module.namespace == 0 && !is_handed_on(module)
            });
            let Some(place) = linked
                .first(function, 0)
                .filter(|place| *place != malloc && is_used)
            else {
                continue;
            };
            // Another finding reports two copies of the heap.
            if linked.modules[place].is_loam() && linked.modules[malloc].is_loam() {
                continue;
            }
            match others.iter_mut().find(|(known, _)| *known == place) {
                Some((_, functions)) => functions.push(function),
                None => others.push((place, vec![function])),
            }
        }
        for (place, functions) in others {
            let (malloc, other) = (&linked.modules[malloc], &linked.modules[place]);
            // The allocator with the smaller part of the family needs the repair.
            let repair = if place < first.unwrap_or(0) || other.is_system() {
                malloc
            } else {
                other
            };
            let repair = if other.is_loam() { malloc } else { repair };
            let what = format!(
                "brings only a part of the family: malloc comes from {}, but {} from {}, and a \
                 block of one is freed by the other",
                malloc.name(),
                titles(&functions),
                other.name()
            );
            let path = if place < first.unwrap_or(0) {
                other.path.clone()
            } else {
                repair.path.clone()
            };
            self.add(
                "partial-override",
                Severity::Unsafe,
                &path,
                what,
                "override all of malloc, free, calloc, realloc, memalign, posix_memalign and \
                 aligned_alloc, or none",
            );
        }
    }

    /// Finds references that are bound past the heap although the program's malloc is the heap's.
    fn strays(&mut self, linked: &Linked) {
        let mut strays: Vec<(usize, Provider, Vec<Function>)> = Vec::new();
        let is_stray = |binding: &&Binding| {
            !linked.is_loam(binding.provider)
                && binding.function.handles_blocks()
                && !linked.modules[binding.module].is_loader
        };
        for binding in linked.bindings.iter().filter(is_stray) {
            if linked.modules[binding.module].namespace != 0 {
                continue; // Told once for all.
            }
            // If a module before the heap defines the function, that is a mixture, which is
            // reported above.
            let global = linked.first(binding.function, 0).map(Provider::Module);
            if global == Some(binding.provider) {
                continue;
            }
            let known = strays
                .iter_mut()
                .find(|(m, p, _)| (*m, *p) == (binding.module, binding.provider));
            match known {
                Some((_, _, functions)) => functions.push(binding.function),
                None => strays.push((binding.module, binding.provider, vec![binding.function])),
            }
        }
        for (place, provider, functions) in strays {
            let module = &linked.modules[place];
            let (why, remedy) = if matches!(provider, Provider::Elsewhere(_)) {
                (
                    "something put another function in the place of the dynamic linker's",
                    "find out what hooks malloc there (a profiler, a debugging tool), and stop it",
                )
            } else {
                (
                    "it was opened with RTLD_DEEPBIND, which searches a library's own libraries \
                     first",
                    "open it without RTLD_DEEPBIND",
                )
            };
            let what = format!(
                "uses {} of {} and not of the heap: {why}; its blocks crash or leak where others \
                 free them",
                titles(&functions),
                linked.provider_name(provider)
            );
            self.add(
                "bound-elsewhere",
                Severity::Unsafe,
                &module.path,
                what,
                remedy,
            );
        }
        let apart: Vec<&Module> = linked
            .modules
            .iter()
            .filter(|m| m.namespace != 0 && !m.is_loader)
            .collect();
        if let Some(one) = apart.first() {
            let names: Vec<&str> = apart.iter().map(|module| module.name()).collect();
            let what = format!(
                "was loaded by dlmopen into a namespace of its own, where no preload reaches: {} \
                 there {} a malloc apart from the heap, and blocks must not cross",
                words::list(&names),
                if names.len() == 1 { "uses" } else { "use" },
            );
            self.add(
                "other-namespace",
                Severity::Partial,
                &one.path,
                what,
                "open it with dlopen, or link it with -lloam",
            );
        }
    }

    /// Finds uses of another allocator's own interface, such as `mallocx`, beside the heap's
    /// malloc.
    fn own_interfaces(&mut self, linked: &Linked) {
        for module in &linked.modules {
            let Some(file) = &module.file else { continue };
            let is_offered = |name: &String| {
                linked.modules.iter().find(|m| {
                    m.file
                        .as_ref()
                        .is_some_and(|file| file.offers.contains(name))
                })
            };
            let mut calls: Vec<&str> = Vec::new();
            let mut whose = None;
            for (name, allocator) in &file.foreign {
                if let Some(provider) = is_offered(name) {
                    calls.push(name);
                    whose = Some((provider.name(), allocator));
                }
            }
            if let Some((provider, allocator)) = whose {
                calls.truncate(6);
                let what = format!(
                    "calls {} of {allocator} ({provider}) itself: such blocks are not the heap's, \
                     and free() of one stops the program",
                    words::list(&calls)
                );
                self.add(
                    "own-interface",
                    Severity::Unsafe,
                    &module.path,
                    what,
                    "build it without that allocator, so that all its blocks come from malloc",
                );
            }
        }
    }
}
