// What a program publishes with LOAM_PUBLISH=1: the image of its counters in a named mapping, which
// another process reads, and an instance of the counter set for Performance Monitor, as it is
// registered.
//
//   publish MANIFEST          runs itself as the other process
//   publish - NAME PID        that process
#undef _WIN32_WINNT
#define _WIN32_WINNT 0x0602
#include <windows.h>
// This header needs <windows.h> first.
#include <perflib.h>
#include <process.h>
#include <winperf.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"
#include "loam/stats.h"

namespace {

// --- The other process: formats/counters.md, in short -------------------------------------------

uint64_t word(const char* image, size_t at) {
  uint64_t value;
  memcpy(&value, image + at, sizeof value);
  return value;
}

int read_image(const char* name, uint64_t process) {
  const HANDLE mapping = OpenFileMappingA(FILE_MAP_READ, FALSE, name);
  CHECK(mapping != nullptr);
  const char* const view = static_cast<const char*>(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0));
  CHECK(view != nullptr);
  std::vector<char> image;
  for (int tries = 0;; ++tries) {
    CHECK(tries < 1000);
    const uint64_t before =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(view + 16), __ATOMIC_ACQUIRE);
    const uint64_t bytes = word(view, 56);
    image.assign(view, view + bytes);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (before % 2 == 0 && word(view, 16) == before && before != 0) break;
    Sleep(1);
  }
  CHECK(memcmp(image.data(), "LOAMIMAG", 8) == 0);
  CHECK(word(image.data(), 32) == process);
  // One of the pieces has the directory.
  const uint64_t directory = word(image.data(), 24);
  const size_t pieces = word(image.data(), 48) & 0xffffffff;
  bool found = false;
  for (size_t i = 0; i < pieces; ++i) {
    const char* const piece = image.data() + 64 + 24 * i;
    if (directory - word(piece, 0) >= word(piece, 8)) continue;
    found =
        memcmp(image.data() + word(piece, 16) + (directory - word(piece, 0)), "LOAMCNTR", 8) == 0;
  }
  CHECK(found);
  return 0;
}

// --- The counter set ----------------------------------------------------------------------------

struct Shown {
  GUID provider{}, set{};
  std::vector<PERF_COUNTER_INFO> counters;
  std::wstring instance;
  std::vector<const uint64_t*> values;  // in the order of the counters
  bool granted = true;
};
// The publisher writes it before main(), and even before this program's constructors.
Shown& shown() {
  static Shown* const it = new Shown;
  return *it;
}
std::atomic<bool> is_shown{false};

}  // namespace

extern "C" {
struct CountedText {
  USHORT length, room;
  const char* text;
};
__declspec(dllimport) LONG NTAPI LdrGetProcedureAddress(HMODULE, const CountedText*, ULONG, void**);
}

namespace {

FARPROC look_up(HMODULE module, const char* name) {
  const USHORT length = static_cast<USHORT>(strlen(name));
  const CountedText text{length, static_cast<USHORT>(length + 1), name};
  void* found = nullptr;
  if (LdrGetProcedureAddress(module, &text, 0, &found) != 0) return nullptr;
  return reinterpret_cast<FARPROC>(found);
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(
      reinterpret_cast<void*>(look_up(GetModuleHandleA("advapi32.dll"), name)));
}

ULONG WINAPI start(GUID* provider, PERF_PROVIDER_CONTEXT* context, HANDLE* out) {
  shown().provider = *provider;
  const ULONG result = real<decltype(&start)>("PerfStartProviderEx")(provider, context, out);
  shown().granted &= result == ERROR_SUCCESS;
  return result;
}

ULONG WINAPI set_info(HANDLE provider, PERF_COUNTERSET_INFO* set, ULONG bytes) {
  shown().set = set->CounterSetGuid;
  const auto* const first = reinterpret_cast<const PERF_COUNTER_INFO*>(set + 1);
  shown().counters.assign(first, first + set->NumCounters);
  CHECK(bytes == sizeof *set + set->NumCounters * sizeof *first);
  const ULONG result = real<decltype(&set_info)>("PerfSetCounterSetInfo")(provider, set, bytes);
  shown().granted &= result == ERROR_SUCCESS;
  return result;
}

PERF_COUNTERSET_INSTANCE* WINAPI create(HANDLE provider, const GUID* set, const wchar_t* name,
                                        ULONG number) {
  shown().instance = name;
  auto* const made = real<decltype(&create)>("PerfCreateInstance")(provider, set, name, number);
  shown().granted &= made != nullptr && memcmp(&made->CounterSetGuid, set, sizeof *set) == 0;
  return made;
}

ULONG WINAPI refer(HANDLE provider, PERF_COUNTERSET_INSTANCE* instance, ULONG id, void* address) {
  const ULONG result =
      real<decltype(&refer)>("PerfSetCounterRefValue")(provider, instance, id, address);
  // The system keeps the counters behind the instance, a word for each.
  const size_t place = shown().values.size();
  void* kept;
  memcpy(&kept, reinterpret_cast<const char*>(instance + 1) + place * sizeof kept, sizeof kept);
  shown().granted &= result == ERROR_SUCCESS && kept == address;
  CHECK(place < shown().counters.size() && shown().counters[place].CounterId == id);
  shown().values.push_back(static_cast<const uint64_t*>(address));
  if (place + 1 == shown().counters.size()) is_shown = true;
  return result;
}

FARPROC WINAPI find(HMODULE module, const char* name) {
  const struct {
    const char* name;
    void* own;
  } calls[] = {{"PerfStartProviderEx", reinterpret_cast<void*>(&start)},
               {"PerfSetCounterSetInfo", reinterpret_cast<void*>(&set_info)},
               {"PerfCreateInstance", reinterpret_cast<void*>(&create)},
               {"PerfSetCounterRefValue", reinterpret_cast<void*>(&refer)}};
  for (const auto& call : calls) {
    const bool is_name = reinterpret_cast<uintptr_t>(name) > 0xffff;  // otherwise a number
    if (is_name && strcmp(name, call.name) == 0) return reinterpret_cast<FARPROC>(call.own);
  }
  return look_up(module, name);
}

}  // namespace

extern "C" {
void* loam_test_get_procedure asm("__imp_GetProcAddress") = reinterpret_cast<void*>(&find);
}

namespace {

std::string text_of(const GUID& id) {
  char text[64];
  snprintf(text, sizeof text, "{%08lx-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x}", id.Data1,
           id.Data2, id.Data3, id.Data4[0], id.Data4[1], id.Data4[2], id.Data4[3], id.Data4[4],
           id.Data4[5], id.Data4[6], id.Data4[7]);
  return text;
}

void what_is_shown_is_what_is_registered(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string manifest{std::istreambuf_iterator<char>(file), {}};
  CHECK(manifest.find("providerGuid=\"" + text_of(shown().provider)) != std::string::npos);
  CHECK(manifest.find("counterSet guid=\"" + text_of(shown().set)) != std::string::npos);
  size_t registered = 0;
  for (size_t at = 0; (at = manifest.find("<counter ", at)) != std::string::npos; ++at)
    ++registered;
  CHECK(registered == shown().counters.size() && registered > 40);
  for (const PERF_COUNTER_INFO& counter : shown().counters) {
    const size_t at = manifest.find("<counter id=\"" + std::to_string(counter.CounterId) + "\"");
    CHECK(at != std::string::npos);
    const std::string row = manifest.substr(at, manifest.find("</counter>", at) - at);
    const bool grows = row.find("\"perf_counter_bulk_count\"") != std::string::npos;
    CHECK(counter.Type == (grows ? PERF_COUNTER_BULK_COUNT : PERF_COUNTER_LARGE_RAWCOUNT));
    CHECK(counter.Attrib == 1 && row.find("\"reference\"") != std::string::npos);
  }
  const std::wstring number = L":" + std::to_wstring(GetCurrentProcessId());
  CHECK(shown().instance.find(L".exe" + number) != std::wstring::npos);
  CHECK(shown().granted);

  // A figure changes with the heap.
  const size_t live = manifest.find("Loam.Heap.live_bytes\"");
  const size_t its = manifest.rfind("id=\"", live) + 4;
  const ULONG id = std::stoul(manifest.substr(its));
  const uint64_t* value = nullptr;
  for (size_t i = 0; i < shown().counters.size(); ++i) {
    if (shown().counters[i].CounterId == id) value = shown().values[i];
  }
  CHECK(value != nullptr);
  constexpr size_t kBytes = size_t{64} << 20;
  void* const block = malloc(kBytes);
  while (__atomic_load_n(value, __ATOMIC_RELAXED) < kBytes) Sleep(20);
  free(block);
  while (__atomic_load_n(value, __ATOMIC_RELAXED) >= kBytes) Sleep(20);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) return read_image(argv[2], std::stoul(argv[3]));
  CHECK(argc == 2);
  while (!is_shown) Sleep(20);
  what_is_shown_is_what_is_registered(argv[1]);
  const std::string number = std::to_string(GetCurrentProcessId());
  const std::string name = "Local\\loam-" + number + ".image";
  CHECK(_spawnl(_P_WAIT, argv[0], "publish", "-", name.c_str(), number.c_str(), nullptr) == 0);
  return 0;
}
