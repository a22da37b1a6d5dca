// The C++ part: blocks of malloc(), of operator new, of libstdc++'s own code, and of the C library
// itself.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {
std::vector<std::string>* words;
}

extern "C" {
void* words_malloc(size_t bytes) { return malloc(bytes); }
void words_free(void* block) { free(block); }
// A vector's array comes from operator new, called by code of this file.
const void* words_fill(size_t count) {
  words = new std::vector<std::string>(count, std::string(100, 'x'));
  return words->data();
}
// A string's text comes from operator new, called inside libstdc++.
const void* words_text() { return words->front().data(); }
void words_clear() { delete words; }
char* words_copy(const char* text) { return strdup(text); }
}
