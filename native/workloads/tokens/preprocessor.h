// The preprocessor: reads a unit's headers, tokenises them, carries out their directives, expands
// macros, and keeps the results: a list of tokens, a table of identifiers with the places of their
// uses, and an ordered table of declared names. The results live until the preprocessor is
// destroyed.
//
// Covered: #include (both forms, by macro, _next), include guards and #pragma once, #define and
// #undef, all conditionals with __has_include, expansion (macros.h). Not covered: #line, _Pragma;
// #error is counted, not obeyed. A missing header is counted and skipped.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <list>
#include <map>
#include <string_view>
#include <utility>

#include "conditions.h"
#include "harness/random.h"
#include "macros.h"
#include "predefined.h"
#include "sources.h"

namespace tokens {

struct Counts {
  uint64_t tokens = 0, files = 0, bytes = 0, macros = 0, expansions = 0, missing = 0, errors = 0;
  uint64_t identifiers = 0, declared = 0;
};

template <typename Policy>
class Preprocessor {
 public:
  using TokenT = Token<Policy>;
  using StringT = String<Policy>;
  using Tokens = Vector<Policy, TokenT>;
  using TokenList = std::list<TokenT, Allocator<TokenT, Policy, true>>;

  // `checksum` is fed with every token's text.
  Preprocessor(const Unit& unit, Counts& counts, lab::Checksum& checksum)
      : unit_(unit), counts_(counts), checksum_(checksum) {
    StringT predefined(kPredefined);
    predefined += unit.cplusplus ? kPredefinedCplusplus : kPredefinedC;
    predefined += unit.windows ? kPredefinedWindows : kPredefinedLinux;
    text(predefined, 0, kNoFolder);
  }

  void run() {
    StringT source(unit_.text);
    join_lines(source);
    text(source, 0, kNoFolder);
    counts_.macros += expander_.size();
    counts_.identifiers += identifiers_.size();
    counts_.declared += declared_.size();
  }

  const TokenList& output() const { return output_; }

 private:
  static constexpr size_t kNoFolder = kMostFolders;
  static constexpr int kMostDepth = 200;

  using Place = std::pair<uint32_t, uint32_t>;  // file, line
  using Places = std::list<Place, Allocator<Place, Policy>>;
  struct Declared {
    StringT keyword;
    Places places;
  };
  struct Conditional {  // one open #if, a group of which is being processed
    bool guard;         // is it the file's include guard?
  };
  // One file being read.
  struct File {
    Lexer<Policy> lexer;
    uint32_t number;
    size_t folder;  // its place in the unit's list of folders
    StringT path;
    Vector<Policy, Conditional> open;
    StringT guard;
    bool outside = false;  // code outside the guard's group: the guard does not cover the file
    bool first = true;
  };

  // --- files ---------------------------------------------------------------------------------

  void text(std::string_view whole, uint32_t number, size_t folder, StringT path = {}) {
    File file{Lexer<Policy>(whole, number), number, folder, std::move(path), {}, {}};
    File* outer = std::exchange(file_, &file);
    const auto source = [this](TokenT& t) { from_file(t); };
    for (TokenT t;;) {
      expander_.next(t, source);
      if (t.kind == Kind::kEnd) {
        if (!at_directive_) break;
        at_directive_ = false;
        directive();
        continue;
      }
      emit(std::move(t));
    }
    if (!file.outside && !file.guard.empty()) guards_.insert_or_assign(file.path, file.guard);
    file_ = outer;
  }

  // A '#' at the start of a line ends the input of the expander, so that no macro call runs into a
  // directive. The loop above then carries the directive out and goes on.
  void from_file(TokenT& t) {
    if (at_directive_) {
      t.kind = Kind::kEnd;
      return;
    }
    file_->lexer.next(t);
    if (t.kind == Kind::kPunctuator && t.line_start && t.is("#")) {
      at_directive_ = true;
      t.kind = Kind::kEnd;
      return;
    }
    if (t.kind != Kind::kEnd && file_->open.empty()) file_->outside = true;
    if (t.kind != Kind::kEnd) file_->first = false;
  }

  // Reads the file if it is there; false if not.
  bool open_file(const StringT& path, size_t folder) {
    if (once_.find(path) != once_.end()) return true;
    if (const auto g = guards_.find(path); g != guards_.end() && expander_.find(g->second)) {
      return true;
    }
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat s;
    if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
      ::close(fd);
      return false;
    }
    StringT whole(static_cast<size_t>(s.st_size), '\0');
    size_t used = 0;
    while (used < whole.size()) {
      const ssize_t n = ::read(fd, whole.data() + used, whole.size() - used);
      if (n <= 0) break;
      used += static_cast<size_t>(n);
    }
    ::close(fd);
    whole.resize(used);
    ++counts_.files;
    counts_.bytes += used;
    join_lines(whole);
    ++depth_;
    text(whole, ++file_number_, folder, path);
    --depth_;
    return true;
  }

  static StringT joined(std::string_view folder, std::string_view name) {
    StringT path(folder);
    path += '/';
    path += name;
    return path;
  }

  // The place of `name` as (path, folder index); an empty path if there is none.
  std::pair<StringT, size_t> locate(std::string_view name, bool quoted, bool next) {
    if (name.starts_with("/")) return {StringT(name), kNoFolder};
    if (quoted && !next) {
      const std::string_view self = file_->path;
      if (const size_t slash = self.rfind('/'); slash != std::string_view::npos) {
        StringT path = joined(self.substr(0, slash), name);
        if (is_file(path.c_str())) return {std::move(path), file_->folder};
      }
    }
    const size_t first = next && file_->folder != kNoFolder ? file_->folder + 1 : 0;
    if (first == 0) {
      if (const auto known = located_.find(name); known != located_.end()) return known->second;
    }
    for (size_t i = first; i < kMostFolders && !unit_.folders[i].empty(); ++i) {
      StringT path = joined(unit_.folders[i], name);
      if (!is_file(path.c_str())) continue;
      if (first == 0) located_.try_emplace(StringT(name), path, i);
      return {std::move(path), i};
    }
    return {};
  }

  // --- directives ----------------------------------------------------------------------------

  Tokens rest_of_line() {
    Tokens line;
    for (TokenT t;;) {
      file_->lexer.next_on_line(t);
      if (t.kind == Kind::kEnd) return line;
      line.push_back(std::move(t));
    }
  }

  void directive() {
    File& file = *file_;
    TokenT name;
    file.lexer.next_on_line(name);
    const bool first = std::exchange(file.first, false);
    const bool outside = file.open.empty();
    const std::string_view d = name.text;
    if (d == "if" || d == "ifdef" || d == "ifndef") {
      if_directive(d, first);
    } else if (d == "elif" || d == "else") {
      if (!file.open.empty() && file.open.back().guard) file.outside = true;
      file.lexer.skip_line();
      skip_group(true);  // its group was taken, or this line would not be read as a directive
    } else if (d == "endif") {
      file.lexer.skip_line();
      if (!file.open.empty()) file.open.pop_back();
    } else {
      if (outside && !d.empty() && d != "pragma") file.outside = true;
      if (d == "include") {
        include(false);
      } else if (d == "include_next") {
        include(true);
      } else if (d == "define") {
        define();
      } else if (d == "undef") {
        file.lexer.next_on_line(name);
        expander_.undefine(name.text);
        file.lexer.skip_line();
      } else if (d == "pragma") {
        file.lexer.next_on_line(name);
        if (name.text == "once") once_.try_emplace(file.path, true);
        file.lexer.skip_line();
      } else {
        counts_.errors += d == "error";
        if (name.kind != Kind::kEnd) file.lexer.skip_line();
      }
    }
  }

  void if_directive(std::string_view d, bool first) {
    File& file = *file_;
    bool guard = false, holds;
    if (d == "if") {
      holds = condition();
    } else {
      TokenT name;
      file.lexer.next_on_line(name);
      holds = is_defined(name.text) == (d == "ifdef");
      file.lexer.skip_line();
      guard = first && d == "ifndef";
      if (guard) file.guard = name.text;
    }
    if (file.open.empty() && !guard) file.outside = true;
    file.open.push_back({guard});
    if (!holds) skip_group(false);
  }

  // Skips groups of the innermost conditional until one must be processed, or its #endif.
  void skip_group(bool taken) {
    File& file = *file_;
    int depth = 0;
    while (file.lexer.skip_to_directive()) {
      TokenT name;
      file.lexer.next_on_line(name);
      const std::string_view d = name.text;
      if (d == "if" || d == "ifdef" || d == "ifndef") {
        ++depth;
      } else if (d == "endif") {
        if (depth-- == 0) {
          file.lexer.skip_line();
          if (!file.open.empty()) file.open.pop_back();
          return;
        }
      } else if (depth == 0 && (d == "else" || d == "elif")) {
        if (!file.open.empty() && file.open.back().guard) file.outside = true;
        if (!taken && (d == "else" || condition())) {
          if (d == "else") file.lexer.skip_line();
          return;
        }
        if (d == "elif" && !taken) continue;  // condition() read the line
      }
      if (name.kind != Kind::kEnd) file.lexer.skip_line();
    }
  }

  bool is_defined(std::string_view name) {
    return expander_.find(name) != nullptr || name.starts_with("__has_");
  }

  bool condition() {
    // Twice: headers wrap __has_builtin in macros of their own.
    const Tokens expanded = resolve(expander_.expand(resolve(rest_of_line())));
    return Condition<Policy, Tokens>(expanded).holds();
  }

  // Replaces `defined X`, `__has_include(...)` and similar operators by 0 or 1.
  Tokens resolve(Tokens&& line) {
    Tokens out;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string_view t = line[i].text;
      if (t == "defined" && i + 1 < line.size()) {
        const bool paren = line[i + 1].is("(");
        const size_t at = i + (paren ? 2 : 1);
        out.push_back(number(at < line.size() && is_defined(line[at].text)));
        i = at + (paren ? 1 : 0);
      } else if (t.starts_with("__has_") && i + 1 < line.size() && line[i + 1].is("(")) {
        StringT argument;
        size_t at = i + 2;
        for (int depth = 0; at < line.size(); ++at) {
          if (line[at].is("(")) ++depth;
          if (line[at].is(")") && depth-- == 0) break;
          argument += line[at].text;
        }
        out.push_back(number(has(t, argument)));
        i = at;
      } else {
        out.push_back(std::move(line[i]));
      }
    }
    return out;
  }
  // __has_include, __has_builtin and __has_attribute, as GCC 12 answers where headers ask.
  bool has(std::string_view what, std::string_view argument) {
    if (what.starts_with("__has_include")) {
      return argument.size() > 2 && !locate(argument.substr(1, argument.size() - 2),
                                            argument[0] == '"', what.ends_with("_next"))
                                         .first.empty();
    }
    if (what == "__has_builtin") {
      return (argument.starts_with("__builtin_") && argument != "__builtin_fclose") ||
             argument == "__is_same" || argument == "__is_aggregate" ||
             argument == "__is_layout_compatible" ||
             argument == "__is_pointer_interconvertible_base_of" ||
             argument == "__has_unique_object_representations";
    }
    return what == "__has_attribute" || what == "__has_cpp_attribute";
  }
  static TokenT number(bool value) {
    TokenT t;
    t.kind = Kind::kNumber;
    t.text = value ? '1' : '0';
    return t;
  }

  void include(bool next) {
    StringT name(file_->lexer.header_name());
    if (name.empty()) {
      for (const TokenT& t : expander_.expand(rest_of_line())) name += t.text;
    } else {
      file_->lexer.skip_line();
    }
    if (name.size() < 3 || depth_ >= kMostDepth) {
      ++counts_.errors;
      return;
    }
    const bool quoted = name.starts_with('"');
    const auto [path, folder] =
        locate(std::string_view(name).substr(1, name.size() - 2), quoted, next);
    if (path.empty() || !open_file(path, folder)) ++counts_.missing;
  }

  void define() {
    TokenT t;
    file_->lexer.next_on_line(t);
    if (t.kind != Kind::kIdentifier) {
      file_->lexer.skip_line();
      return;
    }
    StringT name = std::move(t.text);
    Macro<Policy> macro;
    file_->lexer.next_on_line(t);
    if (t.is("(") && !t.space) {
      macro.function_like = true;
      for (bool after_name = false;; after_name = t.kind == Kind::kIdentifier) {
        file_->lexer.next_on_line(t);
        if (t.kind == Kind::kEnd || t.is(")")) break;
        if (t.kind == Kind::kIdentifier) macro.parameters.push_back(std::move(t.text));
        if (t.is("...")) {
          // `name...` makes the parameter before it the variadic one, `...` alone its own.
          if (!after_name) macro.parameters.emplace_back("__VA_ARGS__");
          macro.variadic = true;
        }
      }
      file_->lexer.next_on_line(t);
    }
    while (t.kind != Kind::kEnd) {
      if (t.is("##")) t.kind = Kind::kPaste;
      macro.body.push_back(std::move(t));
      t = TokenT();
      file_->lexer.next_on_line(t);
    }
    if (!macro.body.empty()) macro.body.front().space = false;
    expander_.define(std::move(name), std::move(macro));
  }

  // --- what is kept --------------------------------------------------------------------------

  void emit(TokenT&& t) {
    ++counts_.tokens;
    add_to_checksum(t.text);
    if (t.kind == Kind::kIdentifier) {
      auto it = identifiers_.find(std::string_view(t.text));
      if (it == identifiers_.end()) it = identifiers_.try_emplace(t.text).first;
      it->second.emplace_back(t.file, t.line);
      if (is_declaring(last_keyword_)) declare(t);
    }
    if (t.kind == Kind::kIdentifier) {
      last_keyword_ = t.text;
    } else {
      last_keyword_.clear();
    }
    output_.push_back(std::move(t));
  }
  static bool is_declaring(std::string_view word) {
    return word == "class" || word == "struct" || word == "union" || word == "enum" ||
           word == "namespace" || word == "typename" || word == "concept" || word == "using";
  }
  void declare(const TokenT& t) {
    Declared& d = declared_[t.text];
    if (d.places.empty()) d.keyword = last_keyword_;
    d.places.emplace_back(t.file, t.line);
  }
  void add_to_checksum(std::string_view text) {
    uint64_t word = text.size();
    for (const char c : text) word = word * 131 + static_cast<unsigned char>(c);
    checksum_.add(word);
  }

  const Unit& unit_;
  Counts& counts_;
  lab::Checksum& checksum_;
  Expander<Policy> expander_;
  TokenList output_;
  TextMap<Policy, Places> identifiers_;
  std::map<StringT, Declared, std::less<>, Allocator<std::pair<const StringT, Declared>, Policy>>
      declared_;
  TextMap<Policy, bool> once_;
  TextMap<Policy, StringT> guards_;
  TextMap<Policy, std::pair<StringT, size_t>> located_;
  StringT last_keyword_;
  File* file_ = nullptr;
  uint32_t file_number_ = 0;
  int depth_ = 0;
  bool at_directive_ = false;
};

}  // namespace tokens
