#include "mutate.h"

#include <algorithm>
#include <cstring>

namespace fuzz {

namespace {

// Sizes at which the heap changes its method: classes, pages, runs, mappings of their own, and
// sizes that no heap can serve.
constexpr uint64_t kEdges[] = {0,
                               1,
                               8,
                               16,
                               17,
                               32,
                               64,
                               128,
                               144,
                               1024,
                               1040,
                               2048,
                               4096,
                               8192,
                               16384,
                               32768,
                               32769,
                               65536,
                               131072,
                               262144,
                               1048576,
                               2097152,
                               4194304,
                               33554432,
                               33558528,
                               67108864,
                               uint64_t{1} << 40,
                               uint64_t{1} << 62,
                               ~uint64_t{0} >> 1,
                               ~uint64_t{0}};

uint64_t random_size(Random& random) {
  switch (random.below(16)) {
    case 0: {
      const uint64_t edge = kEdges[random.below(sizeof kEdges / sizeof *kEdges)];
      return edge + random.below(3) - (edge == 0 ? 0 : 1);
    }
    case 1:
      return random.below(random.below(16) == 0 ? uint64_t{64} << 20
                                                : uint64_t{1} << 20);  // pages cost time
    case 2:
    case 3:
      return random.below(150'000);
    case 4:
    case 5:
    case 6:
      return random.below(40'000);
    case 7:
    case 8:
    case 9:
      return random.below(4096);
    default:
      return random.below(300);
  }
}

uint64_t random_argument(char letter, Random& random) {
  switch (letter) {
    case 'b':
      // Few values, so that they occur again
      return random.below(random.below(3) == 0 ? kBlocks : 8);
    case 'h':
      return random.below(random.below(3) == 0 ? kHeaps : 3);
    case 'g':
      return random.below(kGroups);
    case 't':
      return random.below(kThreads);
    case 'n':
      return random_size(random);
    case 'a':
      if (random.below(12) == 0) return random_size(random);
      return uint64_t{1} << (random.below(4) == 0 ? random.below(26) : random.below(13));
    case 'c':
      return random.below(random.below(4) == 0 ? 3000 : 60);
    case 'm':
      return random.below(3) == 0 ? random.below(5000) : random.below(30);
    case 'o':
      return random.below(kOptionTextCount);
    case 'p':
      return uint64_t{4096} << (2 * random.below(3));
    default:
      return random.below(random.below(4) == 0 ? 100 : 10);
  }
}

bool is_setting(Op op) { return op == Op::kOption || op == Op::kPageSize; }

size_t place(const Program& program, Random& random) {
  return program.empty() ? 0 : random.below(program.size() + 1);
}

}  // namespace

Operation random_operation(Random& random) {
  Operation operation;
  const Op makers[] = {Op::kMalloc,   Op::kCalloc, Op::kLoamAlloc,
                       Op::kWinAlloc, Op::kFill,   Op::kNew};
  const Op enders[] = {Op::kFree, Op::kFree, Op::kLoamFree, Op::kThin, Op::kRealloc, Op::kThread};
  switch (random.below(4)) {
    case 0:
      operation.op = makers[random.below(6)];
      break;
    case 1:
      operation.op = enders[random.below(6)];
      break;
    default:
      operation.op = static_cast<Op>(random.below(static_cast<uint64_t>(Op::kCount)));
  }
  const Form& form = form_of(operation.op);
  if (form.result != 0)
    operation.result = static_cast<uint8_t>(random_argument(form.result, random));
  if (form.result == 'h' && operation.result == 0) operation.result = 1;
  for (size_t i = 0; form.arguments[i] != '\0'; ++i)
    operation.arguments[i] = random_argument(form.arguments[i], random);
  // Most heaps should be made successfully, and most fills should be small.
  const bool is_heap = operation.op == Op::kHeap || operation.op == Op::kWinHeap;
  if (is_heap && random.below(3) != 0) operation.arguments[1] = 0;
  if (is_heap && random.below(2) != 0) operation.arguments[2] = 0;
  if (is_heap) operation.arguments[0] = random.below(64);
  if (operation.op == Op::kFill && random.below(8) != 0) operation.arguments[2] %= 1100;
  return operation;
}

Program random_program(Random& random, size_t operations) {
  Program program;
  while (program.size() < operations) {
    const Operation operation = random_operation(random);
    // Settings are rare. Otherwise every program would run with all of them.
    if (is_setting(operation.op) && random.below(20) != 0) continue;
    program.push_back(operation);
  }
  return program;
}

void mutate(Program* program, Random& random, size_t most_operations) {
  for (uint64_t changes = 1 + random.below(4); changes != 0; --changes) {
    const size_t size = program->size();
    const uint64_t kind = size == 0 ? 0 : random.below(8);
    if (kind <= 2 && size < most_operations) {
      program->insert(program->begin() + static_cast<ptrdiff_t>(place(*program, random)),
                      random_operation(random));
    } else if (kind == 3) {
      const size_t from = random.below(size),
                   count = 1 + random.below(std::min<size_t>(size - from, 8));
      const auto begin = program->begin() + static_cast<ptrdiff_t>(from);
      program->erase(begin, begin + static_cast<ptrdiff_t>(count));
    } else if (kind == 4) {
      std::swap((*program)[random.below(size)], (*program)[random.below(size)]);
    } else if (kind == 5 && size < most_operations) {
      // Repeats a piece, because repetition fills caches and queues.
      const size_t from = random.below(size);
      const size_t count =
          std::min<size_t>({1 + random.below(16), size - from, most_operations - size});
      const Program piece(program->begin() + static_cast<ptrdiff_t>(from),
                          program->begin() + static_cast<ptrdiff_t>(from + count));
      program->insert(program->begin() + static_cast<ptrdiff_t>(place(*program, random)),
                      piece.begin(), piece.end());
    } else {
      Operation& operation = (*program)[random.below(size)];
      const Form& form = form_of(operation.op);
      const size_t count = strlen(form.arguments);
      const uint64_t which = random.below(count + 1);
      if (which == count) {
        if (form.result == 'h') {
          operation.result = static_cast<uint8_t>(1 + random.below(kHeaps - 1));
        } else if (form.result != 0) {
          operation.result = static_cast<uint8_t>(random_argument(form.result, random));
        }
      } else if (form.arguments[which] == 'n' && random.below(2) == 0) {
        operation.arguments[which] += random.below(65) - 32;
      } else {
        operation.arguments[which] = random_argument(form.arguments[which], random);
      }
    }
  }
}

Program cross(const Program& one, const Program& other, Random& random, size_t most_operations) {
  Program program = one;
  if (!other.empty()) {
    const size_t from = random.below(other.size()), count = 1 + random.below(other.size() - from);
    program.insert(program.begin() + static_cast<ptrdiff_t>(place(program, random)),
                   other.begin() + static_cast<ptrdiff_t>(from),
                   other.begin() + static_cast<ptrdiff_t>(from + count));
  }
  if (program.size() > most_operations) program.resize(most_operations);
  return program;
}

}  // namespace fuzz
