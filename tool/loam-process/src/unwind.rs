//! Stacks of a process, unwound outside of it: by the tables of its files (`.eh_frame`), and by
//! frame pointers if there are no tables.
//!
//! The stack was copied when it was current (`rings::CopiedStack`). Of the process only its
//! mappings are needed, and they may be told after its end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind,
    UnwindRegsNative, Unwinder, UnwinderNative,
};
use loam_format::bytes::u64_at;
use loam_format::memory::Memory;
use loam_format::trace::{Module, Named};

use crate::code::{Code, Codes};
use crate::jit;
use crate::mappings::Mapping;
use crate::process::Pid;
use crate::remote::ProcessMemory;
use crate::rings::{CopiedStack, Registers};

/// The most frames of a stack. A copied stack has a few thousand at most.
const MOST_FRAMES: usize = 2_048;
/// The least time between two reads of the mappings. For a page of code that is seen for the first
/// time they are read at once, because a library that was loaded a moment ago may be unloaded a
/// moment later.
const REFRESH: Duration = Duration::from_millis(100);
/// The most pages that were looked up in vain; code that a program makes itself may lie in many.
const MOST_UNKNOWN: usize = 4_096;
/// The most return addresses in code made at run time whose code is remembered.
const MOST_RETURNS: usize = 1 << 16;
/// Bits of an address within a page.
const PAGE_BITS: u32 = 12;

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The module, by its place in `Stacks::modules`; none: no file.
    pub module: Option<u32>,
    /// The address in the module's numbering, or in memory.
    pub address: u64,
}

/// A stack, the innermost frame first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unwound {
    /// Its frames, without those of the recorder.
    pub frames: Vec<Place>,
    /// The stack pointer in each.
    pub pointers: Vec<u64>,
    /// Whether frames further out are missing.
    pub is_cut: bool,
}

/// Frames of the file in which a stack begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// They are the recorder's, and are left out.
    Left,
    /// They are the program's.
    Kept,
}

struct Mapped {
    mapping: Mapping,
    module: u32,
    /// The distance from an address of the file to the one in memory.
    bias: u64,
    /// Whether the program made the code at run time.
    is_made: bool,
}

/// Unwinds the stacks of one process image.
pub struct Stacks {
    pid: Pid,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// By first address.
    mapped: BTreeMap<u64, Mapped>,
    modules: Vec<Module>,
    refreshed: Option<Instant>,
    /// Pages that belong to no file.
    unknown: HashSet<u64>,
    memory: ProcessMemory,
    /// By return address in made code: the bytes that are dropped before the next return.
    returns: HashMap<u64, Option<u64>>,
}

impl std::fmt::Debug for Stacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stacks")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

impl Stacks {
    /// Makes one for this process.
    pub fn of(pid: Pid) -> Stacks {
        Stacks {
            pid,
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            mapped: BTreeMap::new(),
            modules: Vec::new(),
            refreshed: None,
            unknown: HashSet::new(),
            memory: ProcessMemory::of(pid),
            returns: HashMap::new(),
        }
    }

    /// The files that places name, without checksums. The list only grows.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Unwinds a stack that the recorder copied, without the recorder's own frames. `look` says
    /// what the process has mapped, if that can be known; it is called when a frame lies in no
    /// known file.
    pub fn unwind(
        &mut self,
        stack: &CopiedStack,
        codes: &mut Codes,
        look: impl FnMut() -> Vec<Vec<Mapping>>,
    ) -> Unwound {
        self.unwind_from(stack, Own::Left, codes, look)
    }

    /// The same for a stack that the kernel copied: with all its frames.
    pub fn unwind_all(
        &mut self,
        stack: &CopiedStack,
        codes: &mut Codes,
        look: impl FnMut() -> Vec<Vec<Mapping>>,
    ) -> Unwound {
        self.unwind_from(stack, Own::Kept, codes, look)
    }

    fn unwind_from(
        &mut self,
        stack: &CopiedStack,
        own: Own,
        codes: &mut Codes,
        mut look: impl FnMut() -> Vec<Vec<Mapping>>,
    ) -> Unwound {
        loop {
            let (unwound, unknown) = self.follow(stack, own);
            let is_due = self.refreshed.is_none_or(|at| at.elapsed() >= REFRESH);
            let has_room = self.unknown.len() < MOST_UNKNOWN;
            let is_new = unknown.iter().any(|page| !self.unknown.contains(page));
            if unknown.is_empty() || !(is_due || is_new && has_room) {
                return unwound;
            }
            self.refreshed = Some(Instant::now());
            // The recorder copied the stack, so its code must be mapped. Otherwise these are the
            // mappings of the program that the process became meanwhile.
            let here = stack.registers.instruction;
            let is_of_it = |all: &Vec<Mapping>| {
                own == Own::Kept
                    || all
                        .iter()
                        .any(|mapping| mapping.executable && mapping.contains(here))
            };
            let Some(mappings) = look().into_iter().find(is_of_it) else {
                return unwound;
            };
            if has_room {
                self.unknown.extend(unknown);
            }
            if !self.learn(mappings, codes) {
                return unwound;
            }
        }
    }

    /// Learns which files are mapped, before [`Stacks::return_addresses`].
    pub fn prepare(&mut self, mappings: Vec<Mapping>, codes: &mut Codes) {
        self.learn(mappings, codes);
    }

    /// The addresses of all frames, whatever file they lie in, and whether they were followed to
    /// the stack's end.
    pub fn return_addresses(&mut self, stack: &CopiedStack) -> (Vec<u64>, bool) {
        let (places, is_whole) = self.places(stack);
        let addresses = places.into_iter().map(|(address, _)| address);
        (addresses.collect(), is_whole)
    }

    /// Adds a module in which frames lie that this does not find itself; its number.
    pub fn add_module(&mut self, module: Module) -> u32 {
        self.number(module)
    }

    /// Names an address of such a module, behind all that were named before.
    pub fn name(&mut self, module: u32, named: Named) {
        self.modules[module as usize].names.push(named);
    }

    /// Takes the present mappings; false: nothing changed. A mapping that no longer exists is kept,
    /// while nothing else lies there, for stacks that were copied before.
    fn learn(&mut self, mappings: Vec<Mapping>, codes: &mut Codes) -> bool {
        let is_code =
            |one: &Mapping| one.executable && one.name.starts_with('/') || jit::is_made(one);
        let now: BTreeMap<u64, Mapping> = mappings
            .into_iter()
            .filter(is_code)
            .map(|one| (one.start, one))
            .collect();
        self.returns.clear();
        let is_covered = |known: &Mapping| {
            let before = now.range(..known.end).next_back();
            before.is_some_and(|(_, other)| other.end > known.start && other != known)
        };
        let gone: Vec<u64> = self
            .mapped
            .iter()
            .filter(|(_, known)| is_covered(&known.mapping))
            .map(|(start, _)| *start)
            .collect();
        for start in &gone {
            self.mapped.remove(start);
            self.unwinder.remove_module(*start);
        }
        let mut has_changed = !gone.is_empty();
        for (start, mapping) in now {
            if !self.mapped.contains_key(&start) {
                has_changed = true;
                self.add(mapping, codes);
            }
        }
        has_changed
    }

    fn add(&mut self, mapping: Mapping, codes: &mut Codes) {
        let code = match mapping.name.starts_with('/') {
            true => codes.of(self.pid, &mapping),
            false => None,
        };
        if code.is_none() && jit::is_made(&mapping) {
            self.add_made(mapping);
            return;
        }
        let module = Module {
            path: mapping.name.clone(),
            build_id: code.as_ref().and_then(|code| code.build_id.clone()),
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            ..Module::default()
        };
        let place = self.number(module);
        // Without the file, an address is the address in memory, less the file's begin in memory.
        let wanted = code
            .as_ref()
            .and_then(|code| code.address_of(mapping.offset));
        let bias = mapping.start.wrapping_sub(wanted.unwrap_or(mapping.offset));
        if let Some(code) = &code {
            let range = mapping.start..mapping.end;
            self.unwinder.add_module(framehop::Module::new(
                mapping.name.clone(),
                range,
                bias,
                sections(code),
            ));
        }
        let mapped = Mapped {
            module: place,
            bias,
            is_made: false,
            mapping,
        };
        self.mapped.insert(mapped.mapping.start, mapped);
    }

    /// Code without a file: frame pointers lead through it, and its addresses are those in memory.
    fn add_made(&mut self, mapping: Mapping) {
        let module = self.number(Module {
            path: jit::PATH.to_owned(),
            ..Module::default()
        });
        let mapped = Mapped {
            module,
            bias: 0,
            is_made: true,
            mapping,
        };
        self.mapped.insert(mapped.mapping.start, mapped);
    }

    fn number(&mut self, module: Module) -> u32 {
        let place = self.modules.iter().position(|known| *known == module);
        let place = place.unwrap_or_else(|| {
            self.modules.push(module);
            self.modules.len() - 1
        });
        place as u32
    }

    fn find(&self, address: u64) -> Option<&Mapped> {
        let (_, found) = self.mapped.range(..=address).next_back()?;
        found.mapping.contains(address).then_some(found)
    }

    /// Whether the code belongs to the C library, to which a signal handler returns.
    fn is_c_library(&self, address: u64) -> bool {
        let name = self.find(address).and_then(|one| one.mapping.file_name());
        name.is_some_and(|name| name.starts_with("libc") || name.starts_with("ld-musl"))
    }

    /// The places of a stack with the stack pointer in each, and whether it was followed to its
    /// end.
    fn places(&mut self, stack: &CopiedStack) -> (Vec<(u64, u64)>, bool) {
        let registers = &stack.registers;
        let mut read = |address: u64| {
            let offset = address.checked_sub(registers.stack).ok_or(())?;
            u64_at(&stack.bytes, usize::try_from(offset).map_err(|_| ())?).ok_or(())
        };
        let mut frame = native(registers);
        let mut at = FrameAddress::from_instruction_pointer(registers.instruction);
        let mut addresses = Vec::new();
        while addresses.len() < MOST_FRAMES {
            addresses.push((at.address_for_lookup(), frame.sp()));
            if at.is_return_address() && self.is_c_library(at.address_for_lookup()) {
                // Tables do not lead from a signal handler's return to the interrupted function,
                // and frame pointers leave that function out.
                let before = interrupted(&frame, &mut read);
                if let Some(before) = before.filter(|one| self.find(one.instruction).is_some()) {
                    frame = native(&before);
                    at = FrameAddress::from_instruction_pointer(before.instruction);
                    continue;
                }
            }
            if let Some(caller) = self.leave(at, &frame, &mut read) {
                frame = native(&caller);
                match FrameAddress::from_return_address(caller.instruction) {
                    Some(caller) => at = caller,
                    None => return (addresses, false),
                }
                continue;
            }
            let next = self
                .unwinder
                .unwind_frame(at, &mut frame, &mut self.cache, &mut read);
            at = match next {
                Ok(Some(caller)) => match FrameAddress::from_return_address(caller) {
                    Some(caller) => caller,
                    None => return (addresses, false),
                },
                Ok(None) => return (addresses, true),
                Err(_) => return (addresses, false),
            };
        }
        (addresses, false)
    }

    /// Leaves code that was made at run time and keeps no frame pointer, if all that it does after
    /// the call is to drop its frame and return: CPython's trampolines for perf do. None: it is
    /// other code.
    fn leave(
        &mut self,
        at: FrameAddress,
        frame: &UnwindRegsNative,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Registers> {
        let is_made = self
            .find(at.address_for_lookup())
            .is_some_and(|one| one.is_made);
        if !at.is_return_address() || !is_made || cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        let dropped = self.dropped_at(at.address_for_lookup().wrapping_add(1))?;
        let place = frame.sp().checked_add(dropped)?;
        Some(Registers {
            instruction: read(place).ok()?,
            stack: place.checked_add(8)?,
            frame: frame_pointer(frame),
            link: 0,
        })
    }

    /// The bytes that `add rsp, BYTES; ret` at this address drops.
    fn dropped_at(&mut self, address: u64) -> Option<u64> {
        if let Some(known) = self.returns.get(&address) {
            return *known;
        }
        let mut code = [0; 5];
        let is_read = self.memory.read(address, &mut code).is_ok();
        let dropped = match code {
            [0x48, 0x83, 0xc4, bytes @ 0..=0x78, 0xc3] if is_read && bytes % 8 == 0 => {
                Some(u64::from(bytes))
            }
            _ => None,
        };
        if self.returns.len() < MOST_RETURNS {
            self.returns.insert(address, dropped);
        }
        dropped
    }

    /// The known frames, and the pages of frames that lie in no file.
    fn follow(&mut self, stack: &CopiedStack, own: Own) -> (Unwound, Vec<u64>) {
        let registers = &stack.registers;
        let (addresses, is_whole) = self.places(stack);
        let recorder = self.find(registers.instruction).map(|one| one.module);
        let mut unwound = Unwound {
            frames: Vec::with_capacity(addresses.len()),
            pointers: Vec::with_capacity(addresses.len()),
            is_cut: !is_whole,
        };
        let mut unknown = Vec::new();
        for (address, pointer) in addresses {
            let found = self.find(address);
            if found.is_none() {
                unknown.push(address >> PAGE_BITS);
            }
            let place = Place {
                module: found.map(|one| one.module),
                address: address.wrapping_sub(found.map_or(0, |one| one.bias)),
            };
            if own == Own::Kept || place.module.is_none() || place.module != recorder {
                unwound.frames.push(place);
                unwound.pointers.push(pointer);
            }
        }
        if own == Own::Left && recorder.is_none() {
            unwound = Unwound {
                is_cut: true,
                ..Unwound::default()
            };
        }
        (unwound, unknown)
    }
}

/// The registers that a signal interrupted: the kernel puts a `ucontext` where the stack pointer is
/// when the handler returns.
#[cfg(target_arch = "x86_64")]
fn interrupted(
    frame: &UnwindRegsNative,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Registers> {
    const FRAME: u64 = 120;
    const STACK: u64 = 160;
    const INSTRUCTION: u64 = 168;
    const FLAGS: u64 = 176;
    const SEGMENTS: u64 = 184;
    /// The code segment of a 64-bit program, a flag that is always set, and all flags that exist.
    const CODE: u64 = 0x33;
    const SET: u64 = 2;
    const ALL: u64 = (1 << 22) - 1;
    let mut word = |at: u64| read(frame.sp().wrapping_add(at)).ok();
    let flags = word(FLAGS)?;
    if word(SEGMENTS)? & 0xffff != CODE || flags & SET == 0 || flags > ALL {
        return None;
    }
    Some(Registers {
        instruction: word(INSTRUCTION)?,
        stack: word(STACK)?,
        frame: word(FRAME)?,
        link: 0,
    })
}

/// They are not known: the stack ends at the handler.
#[cfg(target_arch = "aarch64")]
fn interrupted(
    _frame: &UnwindRegsNative,
    _read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Registers> {
    None
}

#[cfg(target_arch = "x86_64")]
fn native(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.link, registers.stack, registers.frame)
}

#[cfg(target_arch = "x86_64")]
fn frame_pointer(registers: &UnwindRegsNative) -> u64 {
    registers.bp()
}

#[cfg(target_arch = "aarch64")]
fn frame_pointer(registers: &UnwindRegsNative) -> u64 {
    registers.fp()
}

fn sections(code: &Code) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    let range = |section: &Option<crate::code::Section>| section.as_ref().map(|one| one.0.clone());
    let bytes = |section: &Option<crate::code::Section>| section.as_ref().map(|one| one.1.clone());
    ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: code.text.clone(),
        got_svma: code.offsets.clone(),
        eh_frame_svma: range(&code.frames),
        eh_frame: bytes(&code.frames),
        eh_frame_hdr_svma: range(&code.index),
        eh_frame_hdr: bytes(&code.index),
        ..ExplicitModuleSectionInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, name: &str) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            executable: true,
            name: name.into(),
            ..Mapping::default()
        }
    }

    /// No tables: frame pointers lead from frame to frame.
    #[test]
    fn frame_pointers_lead_outwards_and_frames_of_the_recorder_are_left_out() {
        let (recorder, program) = (0x7000_0000, 0x5000_0000);
        let mut bytes = vec![0; 64];
        let mut word =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        // The frame of the recorder, that of the program, and the outermost one.
        word(0x10, 0x7fff_0020);
        word(0x18, program + 0x40);
        word(0x20, 0);
        word(0x28, program + 0x80);
        let stack = CopiedStack {
            registers: Registers {
                instruction: recorder + 8,
                stack: 0x7fff_0000,
                frame: 0x7fff_0010,
                link: 0,
            },
            bytes,
            ..CopiedStack::default()
        };
        let mut stacks = Stacks::of(0);
        let mut codes = Codes::default();
        let wrong = vec![mapping(program, "/no/such/program")];
        let right = vec![
            mapping(program, "/no/such/program"),
            mapping(recorder, "/no/such/recorder.so"),
        ];
        let unwound = stacks.unwind(&stack, &mut codes, || vec![wrong.clone()]);
        assert_eq!((unwound.frames.len(), unwound.is_cut), (0, true));
        (stacks.refreshed, stacks.unknown) = (None, HashSet::new());
        let unwound = stacks.unwind(&stack, &mut codes, || vec![wrong.clone(), right.clone()]);
        let places: Vec<_> = unwound
            .frames
            .iter()
            .map(|place| {
                (
                    stacks.modules()[place.module.unwrap() as usize]
                        .path
                        .as_str(),
                    place.address,
                )
            })
            .collect();
        assert_eq!(
            places,
            [("/no/such/program", 0x3f), ("/no/such/program", 0x7f)]
        );
    }
}
