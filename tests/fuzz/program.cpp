#include "program.h"

#include <charconv>
#include <cstring>

namespace fuzz {

const char* const kOptionTexts[] = {"CHECK_FREE=full", "SAMPLE=1",
                                    "SAMPLE=7",        "ON_CORRUPTION=report",
                                    "HARDEN=all",      "HARDEN=quarantine=65536",
                                    "HARDEN=random",   "BACKGROUND_PURGE=on",
                                    "PUBLISH=1",       "HUGE_PAGES=on"};
const unsigned kOptionTextCount = sizeof kOptionTexts / sizeof *kOptionTexts;

namespace {

constexpr Form kForms[] = {
    {"option", 0, "o"},
    {"page_size", 0, "p"},
    {"malloc", 'b', "n"},
    {"calloc", 'b', "cn"},
    {"realloc_null", 'b', "n"},
    {"reallocarray_null", 'b', "cn"},
    {"posix_memalign", 'b', "an"},
    {"aligned_alloc", 'b', "an"},
    {"memalign", 'b', "an"},
    {"valloc", 'b', "n"},
    {"pvalloc", 'b', "n"},
    {"new", 'b', "n"},
    {"new_array", 'b', "n"},
    {"new_nothrow", 'b', "n"},
    {"new_array_nothrow", 'b', "n"},
    {"new_aligned", 'b', "an"},
    {"new_array_aligned", 'b', "an"},
    {"loam_alloc", 'b', "hn"},
    {"loam_zalloc", 'b', "hn"},
    {"loam_aligned_alloc", 'b', "han"},
    {"free", 0, "b"},
    {"cfree", 0, "b"},
    {"free_sized", 0, "b"},
    {"free_aligned_sized", 0, "b"},
    {"delete", 0, "b"},
    {"delete_sized", 0, "b"},
    {"realloc_zero", 0, "b"},
    {"loam_free", 0, "b"},
    {"loam_free_sized", 0, "bn"},
    {"bad_free", 0, "hbn"},
    {"stale_free", 0, "b"},
    {"realloc", 0, "bn"},
    {"reallocarray", 0, "bcn"},
    {"loam_realloc", 0, "bn"},
    {"loam_zrealloc", 0, "bn"},
    {"loam_aligned_realloc", 0, "bans"},
    {"loam_try_resize", 0, "bn"},
    {"ask", 0, "b"},
    {"ask_anywhere", 0, "bn"},
    {"heap", 'h', "snn"},
    {"destroy", 0, "h"},
    {"lock", 0, "h"},
    {"try_lock", 0, "h"},
    {"unlock", 0, "h"},
    {"compact", 0, "h"},
    {"trim", 0, "h"},
    {"walk", 0, "hs"},
    {"validate", 0, "h"},
    {"threshold", 0, "hn"},
    {"mode", 0, "hs"},
    {"fill", 'g', "hcnn"},
    {"thin", 0, "gss"},
    {"drop", 0, "g"},
    {"thread", 0, "t"},
    {"end_thread", 0, "t"},
    {"end_thread_freeing", 0, "tb"},
    {"fork", 0, ""},
    {"malloc_trim", 0, ""},
    {"mallinfo", 0, ""},
    {"statistics", 0, ""},
    {"tick", 0, "m"},
    {"refuse", 0, "ss"},
    {"contend", 0, ""},
    {"HeapCreate", 'h', "snn"},
    {"HeapDestroy", 0, "h"},
    {"HeapAlloc", 'b', "hsn"},
    {"HeapReAlloc", 0, "bsn"},
    {"HeapFree", 0, "b"},
    {"HeapSize", 0, "b"},
    {"HeapUse", 0, "hs"},
    {"aligned_offset", 0, "ncan"},
};
static_assert(sizeof kForms / sizeof *kForms == static_cast<size_t>(Op::kCount),
              "a form for every operation");

unsigned limit_of(char letter) {
  return letter == 'b'   ? kBlocks
         : letter == 'h' ? kHeaps
         : letter == 'g' ? kGroups
         : letter == 't' ? kThreads
                         : 0;
}

bool read_number(std::string_view text, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// Reads a name such as "b12" that begins with the letter 'b'.
bool read_name(std::string_view text, char letter, uint64_t* out) {
  return text.size() > 1 && text[0] == letter && read_number(text.substr(1), out) &&
         *out < limit_of(letter);
}

bool read_argument(std::string_view text, char letter, uint64_t* out) {
  if (letter == 'o') {
    for (*out = 0; *out < kOptionTextCount; ++*out) {
      if (text == kOptionTexts[*out]) return true;
    }
    return false;
  }
  if (letter == 't') return read_number(text, out) && *out < kThreads;
  if (limit_of(letter) != 0) return read_name(text, letter, out);
  return read_number(text, out);
}

// What is wrong with the token, or null.
const char* parse_token(std::string_view token, Operation* out) {
  uint64_t result = 0;
  char result_letter = 0;
  const size_t open = token.find('(');
  if (open == token.npos || token.back() != ')') return "no \"name(arguments)\"";
  std::string_view name = token.substr(0, open);
  if (const size_t equals = name.find('='); equals != name.npos) {
    const std::string_view left = name.substr(0, equals);
    result_letter = left.empty() ? '?' : left[0];
    if (!read_name(left, result_letter, &result)) return "no such block, heap or group on the left";
    name = name.substr(equals + 1);
  }
  for (unsigned op = 0; op < static_cast<unsigned>(Op::kCount); ++op) {
    const Form& form = kForms[op];
    if (name != form.name) continue;
    if (form.result != result_letter) return "the result is of another kind";
    if (form.result == 'h' && result == 0) return "h0 is the default heap";
    out->op = static_cast<Op>(op);
    out->result = static_cast<uint8_t>(result);
    std::string_view rest = token.substr(open + 1, token.size() - open - 2);
    const size_t count = strlen(form.arguments);
    for (size_t i = 0; i < count; ++i) {
      const size_t comma = rest.find(',');
      if ((comma == rest.npos) != (i + 1 == count)) return "another number of arguments is wanted";
      if (!read_argument(rest.substr(0, comma), form.arguments[i], &out->arguments[i])) {
        return "an argument is not of its kind";
      }
      rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    }
    return rest.empty() ? nullptr : "no arguments are wanted";
  }
  return "no such operation";
}

}  // namespace

const Form& form_of(Op op) { return kForms[static_cast<size_t>(op)]; }

std::string print(const Operation& operation) {
  const Form& form = form_of(operation.op);
  std::string text;
  if (form.result != 0) {
    text += form.result;
    text += std::to_string(operation.result) + "=";
  }
  text += form.name;
  text += '(';
  for (size_t i = 0; form.arguments[i] != '\0'; ++i) {
    if (i != 0) text += ',';
    const char letter = form.arguments[i];
    if (letter == 'o') {
      text += kOptionTexts[operation.arguments[i] % kOptionTextCount];
      continue;
    }
    if (letter != 't' && limit_of(letter) != 0) text += letter;
    text += std::to_string(operation.arguments[i]);
  }
  return text + ")";
}

std::string print(const Program& program) {
  std::string text;
  for (const Operation& operation : program) text += print(operation) + "\n";
  return text;
}

bool parse(std::string_view text, Program* out, std::string* error) {
  out->clear();
  constexpr std::string_view kSpace = " \t\r\n";
  size_t line = 1;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '#') {
      at = text.find('\n', at);
      if (at == text.npos) break;
      continue;
    }
    if (kSpace.find(text[at]) != kSpace.npos) {
      line += text[at] == '\n';
      ++at;
      continue;
    }
    const size_t end = text.find_first_of(kSpace, at);
    const std::string_view token = text.substr(at, end == text.npos ? text.npos : end - at);
    Operation operation;
    if (const char* wrong = parse_token(token, &operation); wrong != nullptr) {
      *error = "line " + std::to_string(line) + ": \"" + std::string(token) + "\": " + wrong;
      return false;
    }
    out->push_back(operation);
    at = end == text.npos ? text.size() : end;
  }
  return true;
}

}  // namespace fuzz
