// The command line of an experiment: `NAME [--quick|--full] [--seed N] [--PARAMETER VALUE]...`.
//
// Every parameter is declared once, by name, with its default in either form, its limits and its
// help. Its value is also what the start line prints under "parameters". `done()` comes after the
// last one: it prints --help, or refuses undeclared parameters. Errors say what is wrong and what
// is allowed, on standard error, and end the process with status 2.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "json.h"
#include "system.h"

namespace lab {

class Arguments {
 public:
  Arguments(std::string_view workload, std::string_view summary, int argc, char** argv)
      : workload_(workload), summary_(summary), argc_(argc), argv_(argv) {
    if (argc > kMost) fail(kExitUsage, workload, ": too many arguments");
    for (int i = 1; i < argc; ++i) {
      const std::string_view a = argv[i];
      if (a == "--full" || a == "--quick") {
        if (form_given_ && full_ != (a == "--full")) {
          fail(kExitUsage, workload_, ": --quick and --full exclude each other");
        }
        form_given_ = used_[i] = true;
        full_ = a == "--full";
      } else if (a == "--help" || a == "-h") {
        help_ = used_[i] = true;
      }
    }
    seed_ = number("seed", 1, 1, 0, ~uint64_t{0}, "seeds every random choice");
  }

  bool full() const { return full_; }
  uint64_t seed() const { return seed_; }
  std::string_view workload() const { return workload_; }

  // A count. `quick` and `full` are the defaults of the two forms.
  uint64_t number(std::string_view name, uint64_t quick, uint64_t full, uint64_t least,
                  uint64_t most, std::string_view help) {
    return numeric(name, quick, full, least, most, help, false);
  }

  // A size in bytes; K, M and G (binary) may follow the digits.
  uint64_t bytes(std::string_view name, uint64_t quick, uint64_t full, uint64_t least,
                 uint64_t most, std::string_view help) {
    return numeric(name, quick, full, least, most, help, true);
  }

  // One of a list of words; the first is the default, in the full form `full` if given.
  std::string_view choice(std::string_view name, std::initializer_list<std::string_view> allowed,
                          std::string_view help, std::string_view full = {}) {
    if (full.empty()) full = *allowed.begin();
    std::string_view value = full_ ? full : *allowed.begin();
    if (const char* given = take(name)) {
      value = given;
      bool known = false;
      for (const auto word : allowed) known |= word == value;
      if (!known && !help_) {
        write_error(workload_);
        write_error(": --");
        write_error(name);
        write_error(" has no value '");
        write_error(value);
        write_error("'; allowed are");
        for (const auto word : allowed) {
          write_error(" ");
          write_error(word);
        }
        fail(kExitUsage, "");
      }
    }
    Parameter p{.name = name, .text = value, .full_text = full, .help = help};
    for (const auto word : allowed) {
      if (p.choice_count < kMostChoices) p.choices[p.choice_count++] = word;
    }
    remember(p);
    return value;
  }

  // A text as given; the caller checks it.
  std::string_view text(std::string_view name, std::string_view usual, std::string_view help) {
    const char* given = take(name);
    const Parameter p{.name = name,
                      .text = given ? given : usual,
                      .full_text = usual,
                      .help = help,
                      .choices = {usual},
                      .choice_count = 1};
    remember(p);
    return p.text;
  }

  // Call after the last parameter was declared.
  void done() {
    if (help_) print_help();
    for (int i = 1; i < argc_; ++i) {
      if (used_[i]) continue;
      fail(kExitUsage, workload_, ": unknown argument '", argv_[i], "'; --help lists them all");
    }
  }

  void write_parameters(JsonLine& line) const {
    for (size_t i = 0; i < count_; ++i) {
      const Parameter& p = parameters_[i];
      if (p.name == "seed") continue;
      if (p.numeric) {
        line.add(p.name, p.value);
      } else {
        line.add(p.name, p.text);
      }
    }
  }

 private:
  static constexpr int kMost = 64;
  static constexpr size_t kMostChoices = 16;

  struct Parameter {
    std::string_view name, text = {}, full_text = {}, help;
    uint64_t value = 0, quick = 0, full = 0;
    bool numeric = false;
    std::string_view choices[kMostChoices] = {};  // the first is the default
    size_t choice_count = 0;
  };

  uint64_t numeric(std::string_view name, uint64_t quick, uint64_t full, uint64_t least,
                   uint64_t most, std::string_view help, bool suffix) {
    uint64_t value = full_ ? full : quick;
    if (const char* given = take(name); given && !help_) {
      const std::string_view text = given;
      const char* end = text.data() + text.size();
      auto [at, error] = std::from_chars(text.data(), end, value);
      bool good = error == std::errc() && at != text.data();
      if (good && suffix && at + 1 == end) {
        const unsigned shift = *at == 'K' ? 10 : *at == 'M' ? 20 : *at == 'G' ? 30 : 0;
        good = shift != 0 && value <= (~uint64_t{0} >> shift);
        if (good) value <<= shift;
        ++at;
      }
      if (!good || at != end || value < least || value > most) {
        char low[24], high[24];
        *std::to_chars(low, low + 23, least).ptr = 0;
        *std::to_chars(high, high + 23, most).ptr = 0;
        fail(kExitUsage, workload_, ": --", name, " takes a whole number from ", low, " to ", high,
             suffix ? " (K, M or G may follow)" : "", ", not '", text, "'");
      }
    }
    remember({.name = name,
              .help = help,
              .value = value,
              .quick = quick,
              .full = full,
              .numeric = true});
    return value;
  }

  // The value given for `--name VALUE` or `--name=VALUE`; the last one wins.
  const char* take(std::string_view name) {
    const char* found = nullptr;
    for (int i = 1; i < argc_; ++i) {
      std::string_view a = argv_[i];
      if (used_[i] || a.size() < 2 + name.size() || !a.starts_with("--") ||
          a.substr(2, name.size()) != name) {
        continue;
      }
      if (a.size() == 2 + name.size()) {
        if (i + 1 == argc_) {
          if (!help_) fail(kExitUsage, workload_, ": --", name, " needs a value after it");
          continue;
        }
        used_[i] = used_[i + 1] = true;
        found = argv_[++i];
      } else if (a[2 + name.size()] == '=') {
        used_[i] = true;
        found = argv_[i] + 3 + name.size();
      }
    }
    return found;
  }

  void remember(const Parameter& p) {
    if (count_ == kMost) fail(kExitFailed, workload_, ": too many parameters for its harness");
    parameters_[count_++] = p;
  }

  [[noreturn]] void print_help() const {
    const auto out = [](std::string_view s) { (void)!::write(STDOUT_FILENO, s.data(), s.size()); };
    const auto number_text = [&](uint64_t v) {
      char text[24];
      out({text, static_cast<size_t>(std::to_chars(text, text + 24, v).ptr - text)});
    };
    out(workload_);
    out(" - ");
    out(summary_);
    out("\n\nUsage: ");
    out(workload_);
    out(" [--quick|--full] [--seed N] [--PARAMETER VALUE]...\n\n"
        "Runs the experiment on this process's malloc (preload one with LD_PRELOAD) and writes\n"
        "one JSON object a line to standard output: a start, the checkpoints, an end.\n\n"
        "  --quick, --full   the size of the experiment; quick is the default\n");
    for (size_t i = 0; i < count_; ++i) {
      const Parameter& p = parameters_[i];
      out("  --");
      out(p.name);
      if (p.numeric) {
        out(" N   ");
        out(p.help);
        out(" (default ");
        number_text(p.quick);
        if (p.full != p.quick) {
          out("; full ");
          number_text(p.full);
        }
        out(")\n");
      } else {
        out(" WORD   ");
        out(p.help);
        out(" (");
        for (size_t k = 0; k < p.choice_count && p.choice_count > 1; ++k) {
          if (k) out("|");
          out(p.choices[k]);
        }
        out(p.choice_count > 1 ? "; default " : "default ");
        out(p.choices[0]);
        if (p.full_text != p.choices[0]) {
          out(", full ");
          out(p.full_text);
        }
        out(")\n");
      }
    }
    out("  --help   prints this\n");
    _exit(0);
  }

  std::string_view workload_, summary_;
  int argc_;
  char** argv_;
  bool used_[kMost + 1] = {};
  bool full_ = false, form_given_ = false, help_ = false;
  uint64_t seed_ = 1;
  Parameter parameters_[kMost];
  size_t count_ = 0;
};

}  // namespace lab
