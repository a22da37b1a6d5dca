// launch: starts one program under an allocator and watches it from outside.
//
// `launch --report FILE [--preload OBJECT] [--set NAME=VALUE]... [--timeout SECONDS] [--repeat N]
//         [--interval-ms N] -- COMMAND ARGS...`
//
// It is a program of its own for two reasons. maxrss survives exec, so a large parent would show in
// every child's peak. Sampling from Python would take the second core away from a two-threaded
// case. While the child runs, its smaps_rollup is read every 50 ms. A reading walks the child's
// page tables under its mmap lock, so the pause after it is at least kRestPerWork times as long as
// the reading.
//
// FILE gets one JSON object: wall, user and system seconds, faults, peak (of maxrss and samples),
// average (over time), last sample, LazyFree and huge pages at their highest, sampling figures, and
// the child's end. With --repeat N the child runs N times without sampling and FILE gets every
// run's seconds. One more run is then stopped at its exit to read its resident memory, because
// maxrss is batched per CPU and hundreds of kB off.
//
// Exit status: the child's, 128 + signal if it was killed, 124 if it ran past the timeout, 125 for
// a fault of the launcher itself, 127 if the command cannot be started.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "harness/system.h"

namespace {

using lab::now_ns;

constexpr int kExitTimeout = 124, kExitLauncher = 125, kExitNoCommand = 127;
constexpr uint64_t kRestPerWork = 20;  // sampling takes at most about a twentieth of one core

struct Options {
  std::string report, preload;
  std::vector<std::string> set;
  uint64_t timeout_s = 600, repeat = 0, interval_ms = 50;
  char** command = nullptr;
};

[[noreturn]] void usage(std::string_view problem, std::string_view detail = {}) {
  lab::fail(kExitLauncher, "launch: ", problem, detail,
            "; usage: launch --report FILE [--preload OBJECT] [--set NAME=VALUE]... "
            "[--timeout SECONDS] [--repeat N] [--interval-ms N] -- COMMAND ARGS...");
}

uint64_t number(const char* text, const char* option) {
  uint64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end || value == 0) usage(option, " wants a number from 1");
  return value;
}

Options parse(int argc, char** argv) {
  Options o;
  int i = 1;
  for (; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) usage(name, " wants a value");
    const char* value = argv[++i];
    if (name == "--report")
      o.report = value;
    else if (name == "--preload")
      o.preload = value;
    else if (name == "--set")
      o.set.emplace_back(value);
    else if (name == "--timeout")
      o.timeout_s = number(value, "--timeout");
    else if (name == "--repeat")
      o.repeat = number(value, "--repeat");
    else if (name == "--interval-ms")
      o.interval_ms = number(value, "--interval-ms");
    else
      usage("unknown option ", name);
  }
  if (o.report.empty()) usage("--report is missing");
  if (i + 1 >= argc) usage("no command after --");
  o.command = argv + i + 1;
  return o;
}

// The child's environment: the launcher's without a preload, and the variables of --set.
std::vector<char*> environment(Options& o) {
  if (!o.preload.empty()) o.set.push_back("LD_PRELOAD=" + o.preload);
  std::vector<char*> result;
  const auto replaced = [&](std::string_view entry) {
    const auto name = entry.substr(0, entry.find('=') + 1);
    if (name == "LD_PRELOAD=") return true;
    for (const auto& s : o.set) {
      if (std::string_view(s).starts_with(name)) return true;
    }
    return false;
  };
  for (char** e = environ; *e; ++e) {
    if (!replaced(*e)) result.push_back(*e);
  }
  for (auto& s : o.set) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

// vfork semantics, so that a start costs the same whatever the launcher holds.
pid_t start(const Options& o, char* const* env) {
  static volatile int exec_error;
  exec_error = 0;
  const pid_t child = vfork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // an interrupted benchmark leaves nothing running
    execvpe(o.command[0], o.command, env);
    exec_error = errno;
    _exit(kExitNoCommand);
  }
  if (child < 0) lab::fail(kExitLauncher, "launch: cannot fork: ", strerror(errno));
  if (exec_error != 0) {
    waitpid(child, nullptr, 0);
    lab::fail(kExitNoCommand, "launch: cannot start '", o.command[0], "': ", strerror(exec_error));
  }
  return child;
}

struct Samples {
  uint64_t count = 0, peak = 0, last = 0, first = 0, lazyfree_peak = 0, huge_peak = 0;
  uint64_t reading_ns = 0;
  double byte_seconds = 0, seconds = 0;  // the integral of resident over time, and its span
  uint64_t last_at = 0;

  void add(pid_t child) {
    static char buffer[4096];
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/smaps_rollup", static_cast<int>(child));
    const uint64_t begin = now_ns();
    const auto text = lab::read_proc(path, buffer, sizeof buffer);
    const uint64_t at = now_ns();
    reading_ns = at - begin;
    const uint64_t rss = lab::proc_field_bytes(text, "Rss:");
    if (rss == 0) return;  // the process is about to end
    if (count != 0) {
      const double span = static_cast<double>(at - last_at) * 1e-9;
      byte_seconds += span * (static_cast<double>(rss) + static_cast<double>(last)) / 2;
      seconds += span;
    } else {
      first = rss;
    }
    last = rss;
    last_at = at;
    ++count;
    if (rss > peak) peak = rss;
    const uint64_t lazy = lab::proc_field_bytes(text, "LazyFree:");
    const uint64_t huge = lab::proc_field_bytes(text, "AnonHugePages:");
    if (lazy > lazyfree_peak) lazyfree_peak = lazy;
    if (huge > huge_peak) huge_peak = huge;
  }

  double average() const {
    return seconds > 0 ? byte_seconds / seconds : static_cast<double>(first);
  }
};

int exit_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

FILE* open_report(const Options& o) {
  FILE* file = std::fopen(o.report.c_str(), "we");
  if (!file) {
    lab::fail(kExitLauncher, "launch: cannot write '", o.report, "': ", strerror(errno));
  }
  return file;
}

int watch(const Options& o, char* const* env) {
  FILE* report = open_report(o);
  const uint64_t begin = now_ns(), deadline = begin + o.timeout_s * 1'000'000'000u;
  const pid_t child = start(o, env);
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (handle < 0) lab::fail(kExitLauncher, "launch: pidfd_open failed (Linux 5.3 or newer)");
  Samples samples;
  bool timed_out = false;
  uint64_t pause_ms = 2;  // the first sample comes early, so that short runs have one
  for (;;) {
    pollfd wait{handle, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(pause_ms)) > 0) break;
    if (now_ns() > deadline) {
      timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    samples.add(child);
    const uint64_t rest = samples.reading_ns * kRestPerWork / 1'000'000;
    pause_ms = rest > o.interval_ms ? rest : o.interval_ms;
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  const uint64_t end = now_ns();
  const uint64_t max_rss = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  const int code = timed_out ? kExitTimeout : exit_status(status);
  std::fprintf(report,
               "{\"seconds\":%.6f,\"user_seconds\":%.6f,\"system_seconds\":%.6f,"
               "\"minor_faults\":%ld,\"major_faults\":%ld,\"voluntary_switches\":%ld,"
               "\"involuntary_switches\":%ld,\"rss_peak\":%llu,\"rss_average\":%.0f,"
               "\"rss_end\":%llu,\"lazyfree_peak\":%llu,\"huge_peak\":%llu,\"samples\":%llu,"
               "\"exit\":%d}\n",
               static_cast<double>(end - begin) * 1e-9, seconds(usage.ru_utime),
               seconds(usage.ru_stime), usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw,
               usage.ru_nivcsw,
               static_cast<unsigned long long>(max_rss > samples.peak ? max_rss : samples.peak),
               samples.average(), static_cast<unsigned long long>(samples.last),
               static_cast<unsigned long long>(samples.lazyfree_peak),
               static_cast<unsigned long long>(samples.huge_peak),
               static_cast<unsigned long long>(samples.count), code);
  if (std::fclose(report) != 0) {
    lab::fail(kExitLauncher, "launch: cannot write '", o.report, "': ", strerror(errno));
  }
  return code;
}

struct AtExit {
  uint64_t rss = 0, anonymous = 0;  // zero where tracing is not allowed
};

// Runs the command once more, traced, and reads its memory just before it is torn down.
AtExit memory_at_exit(const Options& o, char* const* env) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kExitLauncher);
    execvpe(o.command[0], o.command, env);
    _exit(kExitNoCommand);
  }
  if (child < 0) return {};
  AtExit result;
  bool first = true;
  for (int status = 0; waitpid(child, &status, 0) == child && WIFSTOPPED(status);) {
    long signal = WSTOPSIG(status);
    if (first) {  // the stop that exec makes
      ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
      first = false;
      signal = 0;
    } else if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
      static char buffer[4096];
      const auto path = "/proc/" + std::to_string(child) + "/smaps_rollup";
      const auto text = lab::read_proc(path.c_str(), buffer, sizeof buffer);
      result = {lab::proc_field_bytes(text, "Rss:"), lab::proc_field_bytes(text, "Anonymous:")};
      signal = 0;
    }
    ptrace(PTRACE_CONT, child, nullptr, signal);
  }
  return result;
}

// Start-up: the same command again and again, each run timed from vfork to its end.
int repeat(const Options& o, char* const* env) {
  FILE* report = open_report(o);
  std::fprintf(report, "{\"runs\":[");
  uint64_t peak = 0;
  long faults = 0;
  int code = 0;
  const uint64_t deadline = now_ns() + o.timeout_s * 1'000'000'000u;
  for (uint64_t i = 0; i < o.repeat && code == 0; ++i) {
    const uint64_t begin = now_ns();
    const pid_t child = start(o, env);
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    const uint64_t end = now_ns();
    std::fprintf(report, "%s%.9f", i ? "," : "", static_cast<double>(end - begin) * 1e-9);
    const uint64_t max_rss = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    if (max_rss > peak) peak = max_rss;
    faults += usage.ru_minflt;
    code = now_ns() > deadline ? kExitTimeout : exit_status(status);
  }
  const AtExit at_exit = code == 0 ? memory_at_exit(o, env) : AtExit{};
  std::fprintf(report,
               "],\"rss_peak\":%llu,\"rss_at_exit\":%llu,\"anonymous_at_exit\":%llu,"
               "\"minor_faults\":%.2f,\"exit\":%d}\n",
               static_cast<unsigned long long>(peak), static_cast<unsigned long long>(at_exit.rss),
               static_cast<unsigned long long>(at_exit.anonymous),
               static_cast<double>(faults) / static_cast<double>(o.repeat), code);
  if (std::fclose(report) != 0) {
    lab::fail(kExitLauncher, "launch: cannot write '", o.report, "': ", strerror(errno));
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  const auto env = environment(options);
  return options.repeat ? repeat(options, env.data()) : watch(options, env.data());
}
