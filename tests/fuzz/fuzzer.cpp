// The entry points for libFuzzer. One runs a program of the language, and one changes programs
// operation by operation.
#include <cstring>

#include "mutate.h"
#include "runner.h"

namespace {

constexpr size_t kOperations = 150;

fuzz::Program parse_or_empty(const uint8_t* data, size_t size, bool* fine) {
  fuzz::Program program;
  std::string error;
  *fine =
      fuzz::parse(std::string_view(reinterpret_cast<const char*>(data), size), &program, &error);
  if (!*fine) program.clear();
  return program;
}

// A program that is too long is cut off at the end of an operation.
size_t write(const fuzz::Program& program, uint8_t* data, size_t room) {
  size_t size = 0;
  for (const fuzz::Operation& operation : program) {
    const std::string text = fuzz::print(operation) + "\n";
    if (size + text.size() > room) break;
    memcpy(data + size, text.data(), text.size());
    size += text.size();
  }
  return size;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bool fine;
  const fuzz::Program program = parse_or_empty(data, size, &fine);
  if (!fine || program.size() > kOperations) return -1;
  fuzz::Runner(*fuzz_heap_calls(), program, false).run();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  bool fine;
  fuzz::Program program = parse_or_empty(data, size, &fine);
  fuzz::Random random(seed);
  fuzz::mutate(&program, random, kOperations);
  return write(program, data, most);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* one, size_t one_size,
                                            const uint8_t* other, size_t other_size, uint8_t* out,
                                            size_t most, unsigned seed) {
  bool fine;
  const fuzz::Program a = parse_or_empty(one, one_size, &fine),
                      b = parse_or_empty(other, other_size, &fine);
  fuzz::Random random(seed);
  return write(fuzz::cross(a, b, random, kOperations), out, most);
}
