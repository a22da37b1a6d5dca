#include "options.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stress {
namespace {

constexpr char kUsage[] =
    "usage: stress [--seed N] [--seconds N | --operations N] [--threads N] [--slots N]\n"
    "              [--live-mib N] [--limit-mib N] [--no-fork] [--trace]\n"
    "\n"
    "Random calls of the allocation family on whichever malloc is preloaded, checked against a\n"
    "model. The same seed with --threads 1 and --operations makes the same requests everywhere.\n"
    "  --seconds N      stop after N seconds (default 10)\n"
    "  --operations N   stop after N operations in all\n"
    "  --threads N      workers alive at once; each is replaced when it ends (default 3)\n"
    "  --slots N        blocks alive at once, at most (default 20000)\n"
    "  --live-mib N     bytes alive at once, about (default 192 MiB)\n"
    "  --limit-mib N    limit the address space: allocations may fail, but only with ENOMEM\n"
    "  --no-fork        leave fork out\n"
    "  --trace          print each operation (one thread only)\n";

[[noreturn]] void usage_error(const char* problem, const char* what) {
  fprintf(stderr, "stress: %s '%s'\n%s", problem, what, kUsage);
  exit(2);
}

uint64_t number(const char* name, const char* text, uint64_t lowest) {
  if (text == nullptr) usage_error("a number must follow", name);
  char* end = nullptr;
  errno = 0;
  const uint64_t value = strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || *text == '-') {
    usage_error("not a number:", text);
  }
  if (value < lowest) usage_error("too small for", name);
  return value;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  const struct {
    const char* name;
    uint64_t* value;
    uint64_t lowest;
  } numbers[] = {
      {"--seed", &options.seed, 1},
      {"--seconds", &options.seconds, 1},
      {"--operations", &options.operations, 1},
      {"--threads", &options.threads, 1},
      {"--slots", &options.slots, 16},
      {"--live-mib", &options.live_mib, 1},
      {"--limit-mib", &options.limit_mib, 32},
  };
  for (int i = 1; i < argc; i++) {
    bool known = false;
    for (const auto& entry : numbers) {
      if (strcmp(argv[i], entry.name) != 0) continue;
      *entry.value = number(entry.name, i + 1 < argc ? argv[i + 1] : nullptr, entry.lowest);
      i++;
      known = true;
      break;
    }
    if (known) continue;
    if (strcmp(argv[i], "--no-fork") == 0) {
      options.forks = false;
    } else if (strcmp(argv[i], "--trace") == 0) {
      options.trace = true;
    } else if (strcmp(argv[i], "--help") == 0) {
      fputs(kUsage, stdout);
      exit(0);
    } else {
      usage_error("unknown option", argv[i]);
    }
  }
  if (options.seconds != 0 && options.operations != 0) {
    usage_error("give --seconds or", "--operations");
  }
  if (options.trace && options.threads != 1) usage_error("use --threads 1 with", "--trace");
  if (options.threads > 512) usage_error("at most 512 for", "--threads");
  if (options.seconds == 0 && options.operations == 0) options.seconds = 10;
  return options;
}

}  // namespace stress
