// Blocks by every common form, so many rounds of them; idle.py counts what the recorder executes.
#include <stdlib.h>

static void* volatile kept;

int main(int count, char** arguments) {
  const long rounds = count > 1 ? atol(arguments[1]) : 0;
  for (long i = 0; i < rounds; ++i) {
    kept = malloc(40);
    kept = realloc(kept, 72);
    free(kept);
    kept = calloc(3, 16);
    free(kept);
    kept = ::operator new(56);
    ::operator delete(kept);
  }
}
