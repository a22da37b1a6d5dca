// Windows: a process publishes (counters/publisher.h) the image of its counters in a named mapping,
// and an instance of the counter set that Performance Monitor shows.
//
//   Local\loam-PID.image     a mapping without a file, of the session; it goes with the process
//
// The image is written in place. Meanwhile the generation in its header is odd, as
// formats/counters.md says. Only one thread writes.
#if defined(_WIN32)

#include "os/windows.h"

#include <perflib.h>
#include <winperf.h>

#include <cstring>

#include "base/units.h"
#include "os/os.h"
#include "os/shown_counters.h"

namespace loam::os {

namespace {

constexpr char kPrefix[] = "Local\\loam-";
constexpr size_t kRoomStep = 65536;
constexpr size_t kGenerationAt = 16;

struct Mapping {
  HANDLE handle;
  char* view;
  size_t room;
};
constinit Mapping mapping = {};

void close_mapping() {
  if (mapping.view != nullptr) UnmapViewOfFile(mapping.view);
  if (mapping.handle != nullptr) CloseHandle(mapping.handle);
  mapping = {};
}

// A mapping keeps its length. A longer mapping can get the name only when no reader has the old one
// open.
bool make_room(const char* folder, const char* name, size_t bytes) {
  if (bytes <= mapping.room) return true;
  close_mapping();
  char whole[64];
  const size_t first = strlen(folder), second = strlen(name);
  if (first + second >= sizeof whole) return false;
  memcpy(whole, folder, first);
  memcpy(whole + first, name, second + 1);
  const size_t room = round_up(bytes + bytes / 2, kRoomStep);
  mapping.handle =
      CreateFileMappingA(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE,
                         static_cast<DWORD>(room >> 32), static_cast<DWORD>(room), whole);
  if (mapping.handle == nullptr) return false;
  if (GetLastError() != ERROR_ALREADY_EXISTS)
    mapping.view = static_cast<char*>(MapViewOfFile(mapping.handle, FILE_MAP_WRITE, 0, 0, 0));
  if (mapping.view == nullptr) {
    close_mapping();
    return false;
  }
  mapping.room = room;
  return true;
}

}  // namespace

const char* private_folder(const char* wanted, char* out, size_t size) {
  if (wanted[0] == '/') return "a folder is not chosen on Windows: the value must be off or 1";
  if (size < sizeof kPrefix) return "its name is too long";
  memcpy(out, kPrefix, sizeof kPrefix);
  return nullptr;
}

bool publish_file(const char* folder, const char* name, const void* data, size_t bytes) {
  LastErrorGuard guard;
  if (!make_room(folder, name, bytes)) return false;
  const char* const from = static_cast<const char*>(data);
  uint64_t generation;
  memcpy(&generation, from + kGenerationAt, sizeof generation);
  auto* const shown = reinterpret_cast<uint64_t*>(mapping.view + kGenerationAt);
  constexpr size_t kBehind = kGenerationAt + sizeof generation;
  // A reader that sees a part of the new image also sees an odd or changed generation. This fence
  // and the release below pair with the reader's acquire and its fence.
  __atomic_store_n(shown, generation - 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  memcpy(mapping.view, from, kGenerationAt);
  memcpy(mapping.view + kBehind, from + kBehind, bytes - kBehind);
  __atomic_store_n(shown, generation, __ATOMIC_RELEASE);
  return true;
}

void remove_file(const char*, const char*) {
  LastErrorGuard guard;
  close_mapping();
}

unsigned remove_dead_files(const char*) { return 0; }
void forget_files_after_fork() {}

// --- Performance Monitor ------------------------------------------------------------------------

namespace {

// The identifiers in packaging/loam_counters.man. They were drawn at random once.
constexpr GUID kProvider = {
    0x8cb4eec5, 0x8b0f, 0x4dcf, {0x8b, 0x60, 0x24, 0x70, 0x22, 0xff, 0x61, 0x77}};
constexpr GUID kCounterSet = {
    0x1472438d, 0x1d59, 0x424d, {0x8a, 0x5c, 0x7f, 0x2e, 0x74, 0xe3, 0x15, 0x6c}};

// mingw-w64's <winperf.h> is older than Windows Vista.
constexpr ULONGLONG kByReference = 1;      // PERF_ATTRIB_BY_REFERENCE
constexpr ULONG kStandardDetail = 0xffff;  // PERF_DETAIL_STANDARD
constexpr ULONG kManyInstances = 2;        // PERF_COUNTERSET_MULTI_INSTANCES

constexpr unsigned kMostShown = 128;

// The layout of the system's own tool.
struct Template {
  PERF_COUNTERSET_INFO set;
  PERF_COUNTER_INFO counters[kMostShown];
};
constinit Template shown_template = {};

PERF_COUNTER_INFO info_of(const ShownCounter& counter) {
  PERF_COUNTER_INFO info{};
  info.CounterId = counter.id;
  info.Type = counter.grows ? PERF_COUNTER_BULK_COUNT : PERF_COUNTER_LARGE_RAWCOUNT;
  info.Attrib = kByReference;
  info.Size = sizeof(uint64_t);
  info.DetailLevel = kStandardDetail;
  return info;
}

// "program.exe:4711". pre: there is room for the number
void name_instance(wchar_t (&out)[MAX_PATH + 16]) {
  wchar_t path[MAX_PATH];
  const DWORD length = GetModuleFileNameW(nullptr, path, MAX_PATH);
  DWORD begin = length;
  while (begin != 0 && path[begin - 1] != L'\\') --begin;
  size_t at = 0;
  for (DWORD i = begin; i < length; ++i) out[at++] = path[i];
  out[at++] = L':';
  wchar_t digits[10];
  size_t count = 0;
  for (DWORD number = GetCurrentProcessId(); number != 0 || count == 0; number /= 10)
    digits[count++] = static_cast<wchar_t>(L'0' + number % 10);
  while (count != 0) out[at++] = digits[--count];
  out[at] = L'\0';
}

}  // namespace

// The functions are found by name, so programs that do not publish load nothing for this.
bool show_counters(const ShownCounter* counters, const uint64_t* values, unsigned count) {
  LastErrorGuard guard;
  constexpr const wchar_t* kModule = L"advapi32.dll";
  const auto start = function_of<ULONG(WINAPI*)(GUID*, PERF_PROVIDER_CONTEXT*, HANDLE*)>(
      kModule, "PerfStartProviderEx");
  const auto set_info = function_of<ULONG(WINAPI*)(HANDLE, PERF_COUNTERSET_INFO*, ULONG)>(
      kModule, "PerfSetCounterSetInfo");
  const auto create =
      function_of<PERF_COUNTERSET_INSTANCE*(WINAPI*)(HANDLE, const GUID*, const wchar_t*, ULONG)>(
          kModule, "PerfCreateInstance");
  const auto refer = function_of<ULONG(WINAPI*)(HANDLE, PERF_COUNTERSET_INSTANCE*, ULONG, void*)>(
      kModule, "PerfSetCounterRefValue");
  if (start == nullptr || set_info == nullptr || create == nullptr || refer == nullptr)
    return false;
  if (count > kMostShown) count = kMostShown;

  PERF_PROVIDER_CONTEXT context{};
  context.ContextSize = sizeof context;
  GUID provider_id = kProvider;
  HANDLE provider = nullptr;
  if (start(&provider_id, &context, &provider) != ERROR_SUCCESS) return false;
  shown_template.set = {kCounterSet, kProvider, count, kManyInstances};
  for (unsigned i = 0; i < count; ++i) shown_template.counters[i] = info_of(counters[i]);
  const size_t bytes = sizeof(PERF_COUNTERSET_INFO) + count * sizeof(PERF_COUNTER_INFO);
  if (set_info(provider, &shown_template.set, static_cast<ULONG>(bytes)) != ERROR_SUCCESS)
    return false;
  wchar_t name[MAX_PATH + 16];
  name_instance(name);
  PERF_COUNTERSET_INSTANCE* const instance =
      create(provider, &kCounterSet, name, GetCurrentProcessId());
  if (instance == nullptr) return false;
  for (unsigned i = 0; i < count; ++i) {
    if (refer(provider, instance, counters[i].id, const_cast<uint64_t*>(values + i)) !=
        ERROR_SUCCESS)
      return false;
  }
  return true;
}

}  // namespace loam::os

#endif  // _WIN32
