// Macros: their definitions, and their expansion as GCC's preprocessor does it, with a stack of
// token sources. A macro is off while a source that came from it is on the stack.
//
//   file lexer  <  argument or body of M1 (M1 off)  <  body of M2 (M2 off)  <- next() reads here
//
// Covered: object- and function-like macros, # and ##, variadic ones with GNU's `, ## __VA_ARGS__`
// and named variadic parameters. Not covered: __VA_OPT__, directives inside arguments.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lexer.h"

namespace tokens {

template <typename Policy, typename T>
using Vector = std::vector<T, Allocator<T, Policy>>;

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
struct TextEqual {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const { return a == b; }
};

template <typename Policy, typename T>
using TextMap = std::unordered_map<String<Policy>, T, TextHash, TextEqual,
                                   Allocator<std::pair<const String<Policy>, T>, Policy>>;

template <typename Policy>
struct Macro {
  Vector<Policy, Token<Policy>> body;
  Vector<Policy, String<Policy>> parameters;  // a variadic one's last is "__VA_ARGS__" or its name
  bool function_like = false;
  bool variadic = false;
  bool off = false;        // being expanded right now
  bool undefined = false;  // kept until the end of the unit: a source may still refer to it
};

// Expands macros in the tokens of `Source`, a callable that fills in the file's next token, or
// kEnd.
template <typename Policy>
class Expander {
 public:
  using TokenT = Token<Policy>;
  using Tokens = Vector<Policy, TokenT>;
  using MacroT = Macro<Policy>;

  MacroT* find(std::string_view name) {
    const auto it = macros_.find(name);
    return it == macros_.end() || it->second.undefined ? nullptr : &it->second;
  }
  void define(String<Policy>&& name, MacroT&& macro) {
    auto [it, fresh] = macros_.try_emplace(std::move(name), std::move(macro));
    if (!fresh) {
      const bool off = it->second.off;
      it->second = std::move(macro);
      it->second.off = off;
    }
  }
  void undefine(std::string_view name) {
    if (MacroT* m = find(name)) m->undefined = true;
  }
  size_t size() const { return macros_.size(); }

  // The next token after expansion; kEnd when the source has ended.
  template <typename Source>
  void next(TokenT& t, Source&& source) {
    for (;;) {
      raw(t, source);
      if (t.kind != Kind::kIdentifier || t.painted) return;
      MacroT* macro = find(t.text);
      if (macro == nullptr) return;
      if (macro->off) {
        t.painted = true;
        return;
      }
      if (!enter(*macro, t, source)) return;
    }
  }

  // Expands a list of tokens on its own, as an argument or an #if line is.
  Tokens expand(Tokens&& list) {
    Tokens result;
    const size_t outer_floor = std::exchange(floor_, stack_.size());
    push(std::move(list), nullptr);
    const auto nothing = [](TokenT& t) { t.kind = Kind::kEnd; };
    for (TokenT t;;) {
      next(t, nothing);
      if (t.kind == Kind::kEnd) break;
      result.push_back(std::move(t));
    }
    while (stack_.size() > floor_) pop();
    floor_ = outer_floor;
    return result;
  }

  bool pending() const { return !stack_.empty(); }

 private:
  struct Context {
    Tokens tokens;
    size_t at = 0;
    MacroT* macro = nullptr;
  };

  void push(Tokens&& list, MacroT* macro) {
    if (macro) macro->off = true;
    stack_.push_back({std::move(list), 0, macro});
  }
  void pop() {
    if (stack_.back().macro) stack_.back().macro->off = false;
    stack_.pop_back();
  }

  template <typename Source>
  void raw(TokenT& t, Source& source) {
    while (stack_.size() > floor_) {
      Context& top = stack_.back();
      if (top.at < top.tokens.size()) {
        t = std::move(top.tokens[top.at++]);  // a context is read once
        return;
      }
      pop();
    }
    source(t);
  }

  void put_back(TokenT&& t) {
    Tokens one;
    one.push_back(std::move(t));
    push(std::move(one), nullptr);
  }

  // Pushes the expansion of `macro`, whose name is `name`. False if it is function-like and no
  // '(' follows; `name` is then an ordinary token.
  template <typename Source>
  bool enter(MacroT& macro, TokenT& name, Source& source) {
    if (!macro.function_like) {
      Tokens body = paste(Tokens(macro.body));
      if (!body.empty()) place(body.front(), name);
      push(std::move(body), &macro);
      return true;
    }
    TokenT t;
    raw(t, source);
    if (!t.is("(")) {
      if (t.kind != Kind::kEnd) put_back(std::move(t));
      return false;
    }
    Vector<Policy, Tokens> arguments = collect(macro, source);
    Tokens result = substitute(macro, arguments);
    if (!result.empty()) place(result.front(), name);
    push(std::move(result), &macro);
    return true;
  }

  static void place(TokenT& first, const TokenT& name) {
    first.space = name.space;
    first.line_start = false;
  }

  // The arguments of a call whose '(' was read, up to its ')'.
  template <typename Source>
  Vector<Policy, Tokens> collect(const MacroT& macro, Source& source) {
    Vector<Policy, Tokens> arguments(1);
    int depth = 0;
    for (TokenT t;;) {
      raw(t, source);
      if (t.kind == Kind::kEnd) break;  // the call is never closed: the file ended
      if (t.is("(")) ++depth;
      if (t.is(")") && depth-- == 0) break;
      const bool rest = macro.variadic && arguments.size() == macro.parameters.size();
      if (depth == 0 && t.is(",") && !rest) {
        arguments.emplace_back();
        continue;
      }
      if (t.line_start) t.space = true;
      t.line_start = false;
      arguments.back().push_back(std::move(t));
    }
    if (arguments.size() < macro.parameters.size()) arguments.resize(macro.parameters.size());
    return arguments;
  }

  static size_t parameter_index(const MacroT& macro, const TokenT& t) {
    if (t.kind != Kind::kIdentifier) return macro.parameters.size();
    size_t i = 0;
    while (i < macro.parameters.size() && macro.parameters[i] != t.text) ++i;
    return i;
  }

  Tokens substitute(const MacroT& macro, Vector<Policy, Tokens>& arguments) {
    const size_t none = macro.parameters.size();
    Vector<Policy, Tokens> expanded(none);
    Vector<Policy, char> is_expanded(none, 0);
    Tokens result;
    for (size_t i = 0; i < macro.body.size(); ++i) {
      const TokenT& t = macro.body[i];
      if (t.is("#") && i + 1 < macro.body.size()) {
        const size_t p = parameter_index(macro, macro.body[i + 1]);
        if (p < none) {
          result.push_back(stringize(arguments[p], t));
          ++i;
          continue;
        }
      }
      const size_t p = parameter_index(macro, t);
      if (p == none) {
        result.push_back(t);
        continue;
      }
      const bool after = i > 0 && macro.body[i - 1].kind == Kind::kPaste;
      const bool before = i + 1 < macro.body.size() && macro.body[i + 1].kind == Kind::kPaste;
      if (after || before) {
        const bool comma =
            after && i > 1 && macro.body[i - 2].is(",") && macro.variadic && p + 1 == none;
        if (comma) {  // GNU: `, ## rest` drops the comma if there is no rest, never pastes
          result.pop_back();
          if (arguments[p].empty()) {
            result.pop_back();
          }
        }
        if (arguments[p].empty() && !comma) {
          TokenT placemarker;
          placemarker.kind = Kind::kOther;
          result.push_back(std::move(placemarker));
        }
        result.insert(result.end(), arguments[p].begin(), arguments[p].end());
      } else {
        if (!is_expanded[p]) {
          expanded[p] = expand(Tokens(arguments[p]));
          is_expanded[p] = 1;
        }
        const size_t first = result.size();
        result.insert(result.end(), expanded[p].begin(), expanded[p].end());
        if (first < result.size()) place(result[first], t);
      }
    }
    return paste(std::move(result));
  }

  static TokenT stringize(const Tokens& argument, const TokenT& hash) {
    TokenT t;
    t.kind = Kind::kString;
    t.file = hash.file;
    t.line = hash.line;
    t.space = hash.space;
    t.text = '"';
    for (size_t i = 0; i < argument.size(); ++i) {
      if (i != 0 && argument[i].space) t.text += ' ';
      const bool literal =
          argument[i].kind == Kind::kString || argument[i].kind == Kind::kCharacter;
      for (const char c : argument[i].text) {
        if (literal && (c == '"' || c == '\\')) t.text += '\\';
        t.text += c;
      }
    }
    t.text += '"';
    return t;
  }

  // Carries out the ## in a list and removes the placemarkers (empty tokens).
  static Tokens paste(Tokens&& list) {
    bool any = false;
    for (const TokenT& t : list) any |= t.kind == Kind::kPaste || t.text.empty();
    if (!any) return std::move(list);
    Tokens result;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind == Kind::kPaste && !result.empty() && i + 1 < list.size()) {
        TokenT& left = result.back();
        const TokenT& right = list[++i];
        if (left.text.empty()) left.kind = right.kind;
        left.text += right.text;
        if (left.kind == Kind::kNumber || left.text.empty()) continue;
        const char c = left.text[0];
        if (is_identifier_start(c)) left.kind = Kind::kIdentifier;
        left.painted = false;
      } else {
        result.push_back(std::move(list[i]));
      }
    }
    std::erase_if(result, [](const TokenT& t) { return t.text.empty(); });
    return result;
  }

  TextMap<Policy, MacroT> macros_;
  Vector<Policy, Context> stack_;
  size_t floor_ = 0;  // contexts below belong to an outer expansion
};

}  // namespace tokens
