// A class with a heap of its own: one base class gives it operator new and delete that use it. Its
// objects lie together, apart from what else the program allocates; they are counted apart, can be
// listed, and their memory goes back to the system when they have gone, although other objects
// that were made in between stay.
//
//   c++ -std=c++20 class_heap.cpp $(pkg-config --cflags --libs loam)
#include <cstdio>
#include <loam/loam.hpp>
#include <memory>
#include <string>
#include <vector>

// A preprocessor's token: hundreds of thousands, made and dropped together.
struct token : loam::with_heap<token> {
  int kind = 0;
  int line = 0;
  std::size_t offset = 0;
  std::size_t length = 0;
};

int main() {
  std::vector<std::string> messages;  // these outlive the tokens that were made around them
  for (int run = 1; run <= 3; ++run) {
    std::vector<std::unique_ptr<token>> tokens;
    for (int i = 0; i < 200000; ++i) {
      tokens.push_back(std::make_unique<token>());
      tokens.back()->line = i / 10;
      if (i % 50000 == 0)
        messages.push_back("a message that is long enough for a block of its own");
    }
    const loam::heap_ref heap = token::class_heap();
    const loam::heap_summary full = heap.summary();
    std::printf("run %d: %zu tokens in the heap \"%s\", neighbours of nobody else: %s\n", run,
                full.blocks, heap.name(), heap.owns(messages.back().data()) ? "no" : "yes");

    std::size_t last_line = 0;  // every token can be found without a list of them
    heap.for_each_block([&](const loam::heap_entry& entry) {
      const auto* one = static_cast<const token*>(entry.address);
      if (static_cast<std::size_t>(one->line) > last_line)
        last_line = static_cast<std::size_t>(one->line);
    });
    std::printf("run %d: the last token stands in line %zu\n", run, last_line);

    tokens.clear();
    heap.trim();
    const loam::heap_summary empty = heap.summary();
    std::printf("run %d: %zu tokens left, %s\n", run, empty.blocks,
                empty.committed < full.committed / 20 ? "their memory is the system's again"
                                                      : "their memory is still here");
  }
  std::printf("%zu messages stayed\n", messages.size());
  return 0;
}
