// Memory that libc allocates for us comes from the same heap and can be given to free: strdup,
// asprintf, getline, open_memstream, realpath, getcwd, scandir, regcomp, qsort's buffer.
#include <dirent.h>
#include <regex.h>

#include "check.h"

static int ascending(const void* left, const void* right) {
  const uint64_t a = *(const uint64_t*)left;
  const uint64_t b = *(const uint64_t*)right;
  return (a > b) - (a < b);
}

int main(void) {
  for (int round = 0; round < 200; ++round) {
    char* text = strdup("a string");
    CHECK(text != NULL && strcmp(text, "a string") == 0);
    CHECK(malloc_usable_size(text) >= 9);
    text = realloc(text, 4000);
    CHECK(text != NULL && strcmp(text, "a string") == 0);
    free(text);

    text = strndup("cut here", 3);
    CHECK(text != NULL && strcmp(text, "cut") == 0);
    free(text);

    CHECK_EQUAL(asprintf(&text, "%0*d", 5000, 7), 5000);
    CHECK(strlen(text) == 5000 && text[4999] == '7');
    free(text);

    text = realpath("/proc/../tmp", NULL);
    CHECK(text != NULL && text[0] == '/');
    free(text);
    text = getcwd(NULL, 0);
    CHECK(text != NULL);
    free(text);

    size_t length = 0;
    FILE* const stream = open_memstream(&text, &length);
    CHECK(stream != NULL);
    for (int i = 0; i < 1000; ++i) fprintf(stream, "%d,", i);
    fclose(stream);
    CHECK(length == strlen(text) && strncmp(text, "0,1,2,", 6) == 0);
    free(text);
  }

  FILE* const file = fopen("/proc/self/maps", "r");
  CHECK(file != NULL);
  char* line = NULL;
  size_t capacity = 0;
  int lines = 0;
  while (getline(&line, &capacity, file) > 0) ++lines;
  CHECK(lines > 3);
  CHECK(malloc_usable_size(line) >= capacity);
  free(line);
  fclose(file);

  struct dirent** entries = NULL;
  const int count = scandir("/", &entries, NULL, alphasort);
  CHECK(count > 2);
  for (int i = 0; i < count; ++i) free(entries[i]);
  free(entries);

  regex_t expression;
  CHECK_EQUAL(regcomp(&expression, "^(a|b)*c{2,40}(d[0-9]+)?$", REG_EXTENDED), 0);
  CHECK_EQUAL(regexec(&expression, "ababccccd42", 0, NULL, 0), 0);
  regfree(&expression);

  // Big enough that glibc's qsort takes a buffer from malloc.
  enum { kNumbers = 200000 };
  uint64_t* const numbers = malloc(kNumbers * sizeof *numbers);
  CHECK(numbers != NULL);
  uint64_t seed = 42;
  for (int i = 0; i < kNumbers; ++i) numbers[i] = next_random(&seed);
  qsort(numbers, kNumbers, sizeof *numbers, ascending);
  for (int i = 1; i < kNumbers; ++i) CHECK(numbers[i - 1] <= numbers[i]);
  free(numbers);
  return 0;
}
