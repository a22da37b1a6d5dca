// A tokenizer for C and C++ as the preprocessor sees it: identifiers, preprocessing numbers,
// strings (raw ones too), characters and punctuators. Comments are dropped, continued lines are
// joined. Works on one file's text, which must outlive it.
//
// A token knows whether it was the first on its line (a '#' there begins a directive) and whether
// there was space before it (stringizing needs that).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "policies.h"

namespace tokens {

// kPaste is a ## in a macro's body, an operator; elsewhere, and where ## results from pasting, it
// is an ordinary punctuator.
enum class Kind : uint8_t {
  kEnd,
  kIdentifier,
  kNumber,
  kString,
  kCharacter,
  kPunctuator,
  kPaste,
  kOther
};

template <typename Policy>
using String = std::basic_string<char, std::char_traits<char>, Allocator<char, Policy>>;

template <typename Policy>
struct Token {
  Kind kind = Kind::kEnd;
  bool line_start = false;
  bool space = false;
  bool painted = false;  // a macro's name met inside its own expansion: never expanded again
  uint32_t file = 0;
  uint32_t line = 0;
  String<Policy> text;

  bool is(std::string_view punctuator) const {
    return kind == Kind::kPunctuator && std::string_view(text) == punctuator;
  }
};

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What may begin an identifier: letters, _, $, and any byte of a UTF-8 sequence.
inline constexpr auto kIdentifierStart = [] {
  std::array<bool, 256> start{};
  for (unsigned c = 0; c < 256; ++c) {
    start[c] =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c >= 0x80;
  }
  return start;
}();
inline bool is_identifier_start(char c) { return kIdentifierStart[static_cast<unsigned char>(c)]; }
inline bool is_identifier_part(char c) { return is_identifier_start(c) || is_digit(c); }

// Joins lines that end in a backslash (translation phase 2). The removed newlines are put back
// after the joined line, so that line numbers stay right.
template <typename Text>
void join_lines(Text& text) {
  const size_t first = text.find('\\');
  if (first == Text::npos) return;
  size_t out = first, owed = 0;
  for (size_t in = first; in < text.size(); ++in) {
    if (text[in] == '\\') {
      size_t k = in + 1;
      if (k < text.size() && text[k] == '\r') ++k;
      if (k < text.size() && text[k] == '\n') {
        in = k;
        ++owed;
        continue;
      }
    }
    const char c = text[in];
    text[out++] = c;
    if (c == '\n') {
      for (; owed != 0; --owed) text[out++] = '\n';
    }
  }
  text.resize(out);
}

template <typename Policy>
class Lexer {
 public:
  Lexer(std::string_view text, uint32_t file)
      : at_(text.data()), end_(text.data() + text.size()), file_(file) {}

  // The next token of the file; kEnd at its end.
  void next(Token<Policy>& t) {
    t.space = skip_space(true);
    read(t);
  }

  // The next token on this line; kEnd before the newline.
  void next_on_line(Token<Policy>& t) {
    t.space = skip_space(false);
    if (at_ < end_ && *at_ == '\n') {
      t.kind = Kind::kEnd;
      t.text.clear();
      return;
    }
    read(t);
  }

  // Leaves the line, newline included, comments that span lines included.
  void skip_line() {
    for (;;) {
      skip_space(false);
      if (at_ == end_) return;
      if (*at_ == '\n') {
        newline();
        return;
      }
      if (*at_ == '"' || *at_ == '\'') {
        quoted_end(*at_);
      } else {
        ++at_;
      }
    }
  }

  // Goes to the next line that begins with '#', and past that '#', so that no tokens are made of a
  // skipped group. False at the end of the file.
  bool skip_to_directive() {
    for (;;) {
      skip_space(true);
      if (at_ == end_) return false;
      if (*at_ == '#' && line_start_) {
        ++at_;
        line_start_ = false;
        return true;
      }
      line_start_ = false;
      skip_line();
    }
  }

  // A header's name after #include: "name" or <name>, delimiters kept; empty if neither follows.
  std::string_view header_name() {
    skip_space(false);
    if (at_ == end_ || (*at_ != '"' && *at_ != '<')) return {};
    const char* begin = at_;
    const char close = *at_ == '"' ? '"' : '>';
    const char* p = at_ + 1;
    while (p < end_ && *p != close && *p != '\n') ++p;
    if (p == end_ || *p != close) return {};
    at_ = p + 1;
    return {begin, static_cast<size_t>(at_ - begin)};
  }

  uint32_t line() const { return line_; }

 private:
  void newline() {
    ++at_;
    ++line_;
    line_start_ = true;
  }

  // Skips blanks and comments, and newlines if wanted. True if anything was skipped.
  bool skip_space(bool lines) {
    const char* begin = at_;
    while (at_ < end_) {
      const char c = *at_;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
        ++at_;
      } else if (c == '\n') {
        if (!lines) break;
        newline();
      } else if (c == '/' && at_ + 1 < end_ && at_[1] == '*') {
        const std::string_view rest(at_ + 2, static_cast<size_t>(end_ - at_ - 2));
        const size_t close = rest.find("*/");
        const std::string_view comment = rest.substr(0, close);
        line_ += static_cast<uint32_t>(std::count(comment.begin(), comment.end(), '\n'));
        at_ = close == std::string_view::npos ? end_ : comment.data() + close + 2;
      } else if (c == '/' && at_ + 1 < end_ && at_[1] == '/') {
        const void* newline = std::memchr(at_, '\n', static_cast<size_t>(end_ - at_));
        at_ = newline ? static_cast<const char*>(newline) : end_;
      } else {
        break;
      }
    }
    return at_ != begin;
  }

  void read(Token<Policy>& t) {
    t.file = file_;
    t.line = line_;
    t.line_start = line_start_;
    t.painted = false;
    line_start_ = false;
    if (at_ == end_) {
      t.kind = Kind::kEnd;
      t.text.clear();
      return;
    }
    const char* begin = at_;
    t.kind = scan();
    t.text.assign(begin, static_cast<size_t>(at_ - begin));
  }

  Kind scan() {
    const char c = *at_;
    if (is_identifier_start(c)) {
      const char* begin = at_;
      while (at_ < end_ && is_identifier_part(*at_)) ++at_;
      if (at_ < end_ && (*at_ == '"' || *at_ == '\'')) {
        const std::string_view prefix(begin, static_cast<size_t>(at_ - begin));
        const bool raw = prefix.ends_with('R');
        const std::string_view encoding = raw ? prefix.substr(0, prefix.size() - 1) : prefix;
        if (encoding == "L" || encoding == "u" || encoding == "U" || encoding == "u8" ||
            (raw && encoding.empty())) {
          if (raw && *at_ == '"') return raw_string();
          if (!raw) return quoted();
        }
      }
      return Kind::kIdentifier;
    }
    if (is_digit(c) || (c == '.' && at_ + 1 < end_ && is_digit(at_[1]))) return number();
    if (c == '"' || c == '\'') return quoted();
    return punctuator();
  }

  Kind number() {
    while (at_ < end_) {
      const char c = *at_;
      if ((c == '+' || c == '-') &&
          (at_[-1] == 'e' || at_[-1] == 'E' || at_[-1] == 'p' || at_[-1] == 'P')) {
        ++at_;
      } else if (c == '\'' && at_ + 1 < end_ && is_identifier_part(at_[1])) {
        at_ += 2;  // digit separator
      } else if (is_identifier_part(c) || c == '.') {
        ++at_;
      } else {
        break;
      }
    }
    return Kind::kNumber;
  }

  void quoted_end(char quote) {
    for (++at_; at_ < end_ && *at_ != '\n'; ++at_) {
      if (*at_ == '\\' && at_ + 1 < end_ && at_[1] != '\n') {
        ++at_;
      } else if (*at_ == quote) {
        ++at_;
        return;
      }
    }
  }
  Kind quoted() {
    const char quote = *at_;
    quoted_end(quote);
    return quote == '"' ? Kind::kString : Kind::kCharacter;
  }

  Kind raw_string() {
    const char* open = ++at_;
    while (at_ < end_ && *at_ != '(' && *at_ != '\n') ++at_;
    const std::string_view delimiter(open, static_cast<size_t>(at_ - open));
    for (; at_ < end_; ++at_) {
      line_ += *at_ == '\n';
      if (*at_ != ')') continue;
      const std::string_view rest(at_ + 1, static_cast<size_t>(end_ - at_ - 1));
      if (rest.starts_with(delimiter) && rest.size() > delimiter.size() &&
          rest[delimiter.size()] == '"') {
        at_ += delimiter.size() + 2;
        break;
      }
    }
    return Kind::kString;
  }

  Kind punctuator() {
    static constexpr std::string_view kThree[] = {"...", "<=>", "<<=", ">>=", "->*"};
    static constexpr std::string_view kTwo[] = {
        "##", "::", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
        "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", ".*"};
    if (std::string_view("(){}[];,?~").find(*at_) != std::string_view::npos) {
      return ++at_, Kind::kPunctuator;  // most of them, and none begins a longer one
    }
    const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
    for (const auto p : kThree) {
      if (rest.starts_with(p)) return at_ += 3, Kind::kPunctuator;
    }
    for (const auto p : kTwo) {
      if (rest.starts_with(p)) return at_ += 2, Kind::kPunctuator;
    }
    const char c = *at_++;
    return c == '\\' || c == '@' || c == '`' ? Kind::kOther : Kind::kPunctuator;
  }

  const char* at_;
  const char* end_;
  uint32_t file_;
  uint32_t line_ = 1;
  bool line_start_ = true;
};

}  // namespace tokens
