// Long work for a thread that waits: between two pieces it asks whether what the thread waits for
// has come.
#pragma once

namespace loam {

struct GoOn {
  bool (*ask)(void* context);
  void* context;

  [[nodiscard]] bool operator()() const { return ask(context); }
};

}  // namespace loam
