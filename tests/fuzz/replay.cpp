// Replays programs of the fuzzer's language, finds the shortest one that still fails, or makes
// random programs for a time.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "mutate.h"
#include "runner.h"

namespace {

using namespace fuzz;

constexpr char kUsage[] =
    "usage: fuzz_replay [--trace] FILE|FOLDER...     each program must pass\n"
    "       fuzz_replay --minimise FILE              print the shortest program found that still "
    "fails\n"
    "       fuzz_replay --seconds N [--seed N] [--keep FOLDER]\n"
    "                                                random programs for N seconds; the first that "
    "fails is\n"
    "                                                kept in FOLDER (default: here) as "
    "failed-SEED\n";

constexpr unsigned kLimitSeconds = 60;
constexpr size_t kOperations = 150;

[[noreturn]] void usage(const char* problem) {
  fprintf(stderr, "fuzz_replay: %s\n%s", problem, kUsage);
  exit(2);
}

Program read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) {
    fprintf(stderr, "fuzz_replay: %s cannot be read\n", path.c_str());
    exit(2);
  }
  Program program;
  std::string error;
  if (!parse(text, &program, &error)) {
    fprintf(stderr, "fuzz_replay: %s, %s\n", path.c_str(), error.c_str());
    exit(2);
  }
  return program;
}

// Runs in a process of its own, so that each run starts afresh and a failure ends nothing else.
// Returns the wait status.
int run(const Program& program, bool trace, bool quiet) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    perror("fuzz_replay: fork");
    exit(2);
  }
  if (child == 0) {
    alarm(kLimitSeconds);
    if (quiet && freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    Runner(*fuzz_heap_calls(), program, trace).run();
    fflush(nullptr);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Leaves out pieces, half of the program first, while the rest still fails. Then makes arguments
// small.
Program minimised(Program program) {
  const auto fails = [](const Program& p) { return run(p, false, true) != 0; };
  for (size_t piece = std::max<size_t>(program.size() / 2, 1);;) {
    bool shorter = false;
    for (size_t at = 0; at < program.size();) {
      Program candidate = program;
      const auto begin = candidate.begin() + static_cast<ptrdiff_t>(at);
      candidate.erase(begin, begin + static_cast<ptrdiff_t>(std::min(piece, program.size() - at)));
      if (fails(candidate)) {
        program = candidate;
        shorter = true;
      } else {
        at += piece;
      }
    }
    if (piece == 1 && !shorter) break;
    if (!shorter || piece > program.size()) piece = std::max<size_t>(piece / 2, 1);
  }
  for (Operation& operation : program) {
    for (size_t i = 0; form_of(operation.op).arguments[i] != '\0'; ++i) {
      for (uint64_t smaller = 0; smaller < operation.arguments[i]; smaller = smaller * 2 + 1) {
        const uint64_t was = operation.arguments[i];
        operation.arguments[i] = smaller;
        if (fails(program)) break;
        operation.arguments[i] = was;
      }
    }
  }
  return program;
}

int run_random(uint64_t seconds, uint64_t seed, const std::filesystem::path& keep) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t programs = 0;
  for (; std::chrono::steady_clock::now() < end; ++programs, ++seed) {
    Random random(seed);
    Program program = random_program(random, 1 + random.below(kOperations));
    if (run(program, false, false) == 0) continue;
    const std::filesystem::path path = keep / ("failed-" + std::to_string(seed));
    std::ofstream(path) << print(program);
    fprintf(stderr, "fuzz_replay: seed %llu failed; its program is %s\n",
            static_cast<unsigned long long>(seed), path.c_str());
    return 1;
  }
  printf("%llu random programs passed, the last seed was %llu\n",
         static_cast<unsigned long long>(programs), static_cast<unsigned long long>(seed - 1));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool trace = false, minimise = false;
  uint64_t seconds = 0, seed = 1;
  std::filesystem::path keep = ".";
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name) -> uint64_t {
      char* rest = nullptr;
      const uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], &rest, 10) : 0;
      if (i + 1 >= argc || *rest != '\0' || rest == argv[i + 1])
        usage((std::string("a number must follow ") + name).c_str());
      ++i;
      return value;
    };
    if (strcmp(argv[i], "--trace") == 0) {
      trace = true;
    } else if (strcmp(argv[i], "--minimise") == 0) {
      minimise = true;
    } else if (strcmp(argv[i], "--seconds") == 0) {
      seconds = number("--seconds");
    } else if (strcmp(argv[i], "--seed") == 0) {
      seed = number("--seed");
    } else if (strcmp(argv[i], "--keep") == 0 && i + 1 < argc) {
      keep = argv[++i];
    } else if (argv[i][0] == '-') {
      usage((std::string("no such option: ") + argv[i]).c_str());
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
        paths.push_back(entry.path());
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  if (seconds != 0) return run_random(seconds, seed, keep);
  if (paths.empty()) usage("no program is named, and no time");
  std::sort(paths.begin(), paths.end());
  if (minimise) {
    const Program program = read(paths[0]);
    if (run(program, false, true) == 0) {
      fprintf(stderr, "fuzz_replay: %s passes\n", paths[0].c_str());
      return 2;
    }
    fputs(print(minimised(program)).c_str(), stdout);
    return 0;
  }
  size_t failed = 0;
  for (const std::filesystem::path& path : paths) {
    const Program program = read(path);
    const int status = run(program, trace, false);
    if (status == 0) continue;
    ++failed;
    fprintf(stderr, "fuzz_replay: %s failed (wait status %#x); see it happen with --trace\n",
            path.c_str(), unsigned(status));
  }
  printf("%zu programs, %zu failed\n", paths.size(), failed);
  return failed == 0 ? 0 : 1;
}
