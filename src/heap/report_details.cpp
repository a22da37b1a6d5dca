#include "heap/report_details.h"

#include "hardening/hardening.h"
#include "os/fatal.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "private/private_heap.h"

namespace loam {

namespace {

void add_name(ReportLine& line, const char* name) {
  for (; *name != '\0'; ++name) {
    const bool printable = *name >= ' ' && *name <= '~';
    line.add(printable ? name : "?", 1);
  }
}

void add_offset(ReportLine& line, uintptr_t address, uintptr_t base) {
  if (address == base) return;
  if (address > base) {
    line.add(", ").add_number(address - base).add(" bytes into the block at ").add_hex(base);
  } else {
    line.add(", ").add_number(base - address).add(" bytes before the block at ").add_hex(base);
  }
}

// The same for a block in a mapping of its own.
uintptr_t add_mapping(ReportLine& line, uintptr_t address) {
  if (const HugeMap::Entry live = huge_map.covering(address); live.address != 0) {
    add_offset(line, address, live.address);
    line.add(", block of ").add_number(live.requested).add(" bytes, heap ");
    const PrivateHeap* heap =
        live.heap == 0 ? nullptr : reinterpret_cast<HeapRun*>(live.heap)->heap;
    add_name(line, heap == nullptr           ? "default"
                   : heap->name()[0] != '\0' ? heap->name()
                                             : "private");
    return live.address;
  }
  if (const WalledBlocks::Freed freed = walled_blocks.freed_at(address); freed.begin != 0) {
    add_offset(line, address, freed.block);
    line.add(", freed block of ").add_number(freed.requested).add(" bytes, heap default");
    return freed.block;
  }
  return address;
}

// Returns the slot's start for an address in a small block, else the address.
uintptr_t add_place(ReportLine& line, uintptr_t address) {
  const Span* span = span_at(address);
  if (span == nullptr) return add_mapping(line, address);
  // An empty span that waits had a block there: its former heap tells what is wrong.
  const bool was_cut = span->kind == SpanKind::kStanding && span->size_class != kNoClass;
  if (!holds_blocks(span->kind) && !was_cut) return address;
  uintptr_t base = span_base(span);
  size_t slot_bytes = 0;
  const char* heap = "default";
  if (span->heap == kPrivateHeap) {
    const HeapRun* run = private_run_at(reinterpret_cast<void*>(address));
    if (run == nullptr) return address;
    slot_bytes = run->use == RunUse::kSpan ? run->slot_bytes : 0;
    heap = run->heap->name()[0] != '\0' ? run->heap->name() : "private";
  } else if (is_cut_into_slots(span->kind) || was_cut) {
    slot_bytes = class_info(index_of(span->size_class)).bytes;
  }
  if (slot_bytes != 0) base += (address - base) / slot_bytes * slot_bytes;
  if (slot_bytes == 0 && (span->kind != SpanKind::kLarge)) base = address;
  add_offset(line, address, base);
  if (slot_bytes != 0) {
    line.add(", class ").add_number(slot_bytes);
  } else if (span->kind == SpanKind::kLarge) {
    line.add(", large block of ").add_number(span->large.requested).add(" bytes");
  }
  line.add(", heap ");
  add_name(line, heap);
  return base;
}

void add_code(ReportLine& line, const char* before, const void* code) {
  char where[128];
  if (code != nullptr && os::describe_code(code, where, sizeof where)) line.add(before).add(where);
}

void add_site(ReportLine& line, const WalledBlocks::Site& site) {
  if (site.block == 0) return;
  line.add("; allocated by thread ").add_number(site.thread);
  const char* before = " at ";
  for (const void* const caller : site.callers) {
    add_code(line, before, caller);
    before = ", ";
  }
}

}  // namespace

void describe_for_report(ReportLine& line, const void* address) {
  const uintptr_t block = add_place(line, reinterpret_cast<uintptr_t>(address));
  line.add(", thread ").add_number(os::thread_number());
  FreeLog::Free last{};
  if (hardening.owns(reinterpret_cast<void*>(block)))
    return add_site(line, walled_blocks.site_of(block));  // that free was of an earlier block there
  const WalledBlocks::Freed freed = walled_blocks.freed_at(block);
  if (freed.begin != 0) {
    last = {freed.caller, freed.thread, freed.requested};
  } else if (!hardening.log().find(reinterpret_cast<void*>(block), &last)) {
    return add_site(line, walled_blocks.site_of(block));
  } else if (class_at(reinterpret_cast<void*>(block)) == 0) {
    line.add(", freed block of ").add_number(last.bytes).add(" bytes");
  }
  line.add("; freed by thread ").add_number(last.thread);
  add_code(line, " at ", last.caller);
  add_site(line, freed.allocated);
}

}  // namespace loam
