// Windows: threads and their ends; windows_slots.cpp has their slots.
//
// The loader calls the callbacks in the image's section .CRT$XL* when a thread ends, and when the
// library is unloaded. The linker puts them where the loader looks if _tls_used is referred to.
#if defined(_WIN32)

#include "os/windows.h"

#include "os/os.h"
#include "os/thread_pointer.h"

namespace loam::os {

namespace {

constexpr unsigned kExitSlot = 2;  // the argument of the thread's exit callback

using ThreadExit = void (*)(void*);
constinit ThreadExit thread_exit = nullptr;

// `ending`: not null while the process ends, when the slots need no return.
void WINAPI on_loader_event(void*, DWORD reason, void* ending) {
  if (reason == DLL_PROCESS_DETACH && ending == nullptr) {
    LastErrorGuard guard;
    free_thread_slots();
  }
  if (reason != DLL_THREAD_DETACH) return;
  bool refused = false;
  void* const argument = load_thread_slot(kExitSlot, &refused);
  // pairs with the release in arm_thread_exit()
  const ThreadExit callback = __atomic_load_n(&thread_exit, __ATOMIC_ACQUIRE);
  if (argument == nullptr || callback == nullptr) return;
  LastErrorGuard guard;
  store_thread_slot(kExitSlot, nullptr);
  callback(argument);
}

}  // namespace

bool arm_thread_exit(void (*callback)(void*), void* argument) {
  // pairs with the acquire in on_loader_event()
  __atomic_store_n(&thread_exit, callback, __ATOMIC_RELEASE);
  store_thread_slot(kExitSlot, argument);
  return find_thread_slot(kExitSlot) != kSlotRefused;
}

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

DWORD WINAPI call_body(void* body) {
  reinterpret_cast<void (*)()>(body)();
  return 0;
}

}  // namespace

void stay_loaded() {
  HMODULE module;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
  static_cast<void>(
      GetModuleHandleExW(flags, reinterpret_cast<const wchar_t*>(&on_loader_event), &module));
}

// The thread never ends.
bool start_thread(void (*body)()) {
  LastErrorGuard guard;
  stay_loaded();
  const HANDLE thread =
      CreateThread(nullptr, kStackBytes, &call_body, reinterpret_cast<void*>(body),
                   STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
  if (thread == nullptr) return false;
  CloseHandle(thread);
  return true;
}

uint32_t thread_number() { return GetCurrentThreadId(); }
uint64_t process_number() { return GetCurrentProcessId(); }

// There is no fork().
void register_fork(void (*)(), void (*)(), void (*)()) {}

}  // namespace loam::os

extern "C" {
extern const IMAGE_TLS_DIRECTORY _tls_used;
__attribute__((section(".CRT$XLB"), used)) PIMAGE_TLS_CALLBACK loam_on_loader_event =
    &loam::os::on_loader_event;
// Without a reference the linker leaves the directory of callbacks out.
__attribute__((used)) const IMAGE_TLS_DIRECTORY* const loam_tls_directory = &_tls_used;
}

#endif  // _WIN32
