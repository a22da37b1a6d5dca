// The expressions of #if and #elif: integer arithmetic as C has it, over tokens whose macros are
// already expanded. Remaining identifiers are 0 (in C++ also true and false). All arithmetic is in
// 64 bits. A 'u' suffix makes a comparison unsigned, which is all that headers rely on.
#pragma once

#include <cstdint>
#include <string_view>

#include "lexer.h"

namespace tokens {

struct Value {
  int64_t number = 0;
  bool is_unsigned = false;
};

template <typename Policy, typename Tokens>
class Condition {
 public:
  explicit Condition(const Tokens& tokens) : tokens_(tokens) {}

  bool holds() { return ternary().number != 0; }

 private:
  bool take(std::string_view punctuator) {
    if (at_ == tokens_.size() || !tokens_[at_].is(punctuator)) return false;
    ++at_;
    return true;
  }

  Value ternary() {
    const Value condition = binary(0);
    if (!take("?")) return condition;
    const Value yes = ternary();
    take(":");
    const Value no = ternary();
    return condition.number ? yes : no;
  }

  struct Operator {
    std::string_view text;
    int level;  // higher binds tighter
  };
  const Operator* binary_operator(int least) const {
    static constexpr Operator kOperators[] = {{"||", 0}, {"&&", 1}, {"|", 2},  {"^", 3}, {"&", 4},
                                              {"==", 5}, {"!=", 5}, {"<", 6},  {">", 6}, {"<=", 6},
                                              {">=", 6}, {"<<", 7}, {">>", 7}, {"+", 8}, {"-", 8},
                                              {"*", 9},  {"/", 9},  {"%", 9}};
    if (at_ == tokens_.size() || tokens_[at_].kind != Kind::kPunctuator) return nullptr;
    for (const Operator& o : kOperators) {
      if (o.level >= least && tokens_[at_].is(o.text)) return &o;
    }
    return nullptr;
  }

  Value binary(int least) {
    Value left = unary();
    while (const Operator* o = binary_operator(least)) {
      ++at_;
      const Value right = binary(o->level + 1);
      left = apply(o->text, left, right);
    }
    return left;
  }

  static Value apply(std::string_view o, Value a, Value b) {
    const auto ua = static_cast<uint64_t>(a.number), ub = static_cast<uint64_t>(b.number);
    const bool u = a.is_unsigned || b.is_unsigned;
    const auto boolean = [](bool v) { return Value{v, false}; };
    const auto number = [u](uint64_t v) { return Value{static_cast<int64_t>(v), u}; };
    if (o == "||") return boolean(a.number || b.number);
    if (o == "&&") return boolean(a.number && b.number);
    if (o == "==") return boolean(ua == ub);
    if (o == "!=") return boolean(ua != ub);
    if (o == "<") return boolean(u ? ua < ub : a.number < b.number);
    if (o == ">") return boolean(u ? ua > ub : a.number > b.number);
    if (o == "<=") return boolean(u ? ua <= ub : a.number <= b.number);
    if (o == ">=") return boolean(u ? ua >= ub : a.number >= b.number);
    if (o == "|") return number(ua | ub);
    if (o == "^") return number(ua ^ ub);
    if (o == "&") return number(ua & ub);
    if (o == "<<") return number(ub < 64 ? ua << ub : 0);
    if (o == ">>") {
      const uint64_t by = ub < 63 ? ub : 63;
      return u ? number(ua >> by) : Value{a.number >> by, false};
    }
    if (o == "+") return number(ua + ub);
    if (o == "-") return number(ua - ub);
    if (o == "*") return number(ua * ub);
    if (b.number == 0 || (!u && b.number == -1)) {  // an error, or overflow; headers do neither
      return number(o == "/" && b.number == -1 ? 0 - ua : 0);
    }
    if (o == "/") return u ? number(ua / ub) : Value{a.number / b.number, false};
    return u ? number(ua % ub) : Value{a.number % b.number, false};
  }

  Value unary() {
    if (take("!")) return {unary().number == 0, false};
    if (take("-")) {
      const Value v = unary();
      return {static_cast<int64_t>(0 - static_cast<uint64_t>(v.number)), v.is_unsigned};
    }
    if (take("+")) return unary();
    if (take("~")) {
      const Value v = unary();
      return {~v.number, v.is_unsigned};
    }
    if (take("(")) {
      const Value v = ternary();
      take(")");
      return v;
    }
    if (at_ == tokens_.size()) return {};
    const auto& t = tokens_[at_++];
    if (t.kind == Kind::kNumber) return number(t.text);
    if (t.kind == Kind::kCharacter) return character(t.text);
    if (t.kind == Kind::kIdentifier) {
      if (take("(")) {  // the call of an unknown name: 0, arguments and all
        for (int depth = 1; depth != 0 && at_ < tokens_.size(); ++at_) {
          depth += tokens_[at_].is("(");
          depth -= tokens_[at_].is(")");
        }
      }
      return {std::string_view(t.text) == "true", false};
    }
    return {};
  }

  static Value number(std::string_view text) {
    unsigned base = 10;
    if (text.size() > 1 && text[0] == '0') {
      const char c = text[1];
      base = c == 'x' || c == 'X' ? 16 : c == 'b' || c == 'B' ? 2 : 8;
      text.remove_prefix(base == 8 ? 1 : 2);
    }
    uint64_t value = 0;
    bool is_unsigned = false;
    for (const char c : text) {
      const unsigned lower = static_cast<unsigned char>(c) | 0x20u;
      unsigned digit = 99;
      if (is_digit(c)) digit = static_cast<unsigned>(c - '0');
      if (lower >= 'a' && lower <= 'f') digit = lower - 'a' + 10;
      if (digit < base) {
        value = value * base + digit;
      } else if (c != '\'') {
        is_unsigned |= lower == 'u';
      }
    }
    return {static_cast<int64_t>(value), is_unsigned || (value >> 63) != 0};
  }

  static Value character(std::string_view text) {
    const size_t open = text.find('\'');
    if (open == std::string_view::npos || open + 1 >= text.size()) return {};
    const char c = text[open + 1];
    if (c != '\\' || open + 2 >= text.size()) return {c, false};
    const char e = text[open + 2];
    if (is_digit(e)) {
      int64_t v = 0;
      for (size_t i = open + 2; i < text.size() && is_digit(text[i]); ++i) {
        v = v * 8 + text[i] - '0';
      }
      return {v, false};
    }
    return {e == 'n' ? '\n' : e == 't' ? '\t' : e == 'r' ? '\r' : e, false};
  }

  const Tokens& tokens_;
  size_t at_ = 0;
};

}  // namespace tokens
