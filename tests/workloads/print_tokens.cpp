// Prints the tokens that the preprocessor of the `tokens` experiment makes of its input, one a
// line, so that they can be compared with a compiler's.
//
//   print_tokens c++|c < SOURCE     preprocesses SOURCE as a file of that language
//   print_tokens split < SOURCE     only tokenises it; directives become tokens like any other
#include <cstdio>
#include <string>
#include <string_view>

#include "tokens/preprocessor.h"

using namespace tokens;

int main(int argc, char** argv) {
  const std::string_view mode = argc == 2 ? argv[1] : "";
  std::string source;
  for (int c; (c = std::getchar()) != EOF;) source.push_back(static_cast<char>(c));

  if (mode == "split") {
    Lexer<MallocPolicy> lexer(source, 0);
    for (Token<MallocPolicy> t;;) {
      lexer.next(t);
      if (t.kind == Kind::kEnd) return 0;
      std::printf("%s\n", t.text.c_str());
    }
  }
  if (mode != "c++" && mode != "c") {
    std::fprintf(stderr, "print_tokens: want c++, c or split, not '%s'\n", argc > 1 ? argv[1] : "");
    return 2;
  }
  const Sources sources(mode, 0);
  Unit unit = *sources.begin();
  unit.text = source;
  Counts counts;
  lab::Checksum checksum;
  Preprocessor<MallocPolicy> preprocessor(unit, counts, checksum);
  preprocessor.run();
  for (const auto& t : preprocessor.output()) std::printf("%s\n", t.text.c_str());
  return 0;
}
