/* Porting a Windows program: counts the words of a text in a heap of its own, written against the
 * Windows heap functions. The only line that Linux asks for is the first #include; on Windows it is
 * <windows.h>.
 *
 *   word_index [FILE]        without FILE it reads standard input
 *
 *   Linux     cc word_index.c $(pkg-config --cflags --libs loam)
 *   Windows   cl /I include word_index.c, or x86_64-w64-mingw32-gcc -I include word_index.c
 *
 * What the port can rely on: exact HeapSize, zeroed growth, HeapWalk over every block, errors by
 * GetLastError, and one HeapDestroy instead of freeing word by word. */
#include <ctype.h>
#include <loam/win32.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
  struct word* next;
  DWORD count;
  char text[1];
} word;

typedef struct index {
  HANDLE heap;
  word** slots; /* chains, by hash; zeroed by HEAP_ZERO_MEMORY */
  SIZE_T words;
} index_t;

static void die(const char* what) {
  fprintf(stderr, "word_index: %s failed: error %lu\n", what, (unsigned long)GetLastError());
  exit(1);
}

static SIZE_T slot_count(const index_t* index) {
  return HeapSize(index->heap, 0, index->slots) / sizeof(word*);
}

static SIZE_T hash(const char* text) {
  SIZE_T value = 5381;
  for (; *text != '\0'; ++text) value = value * 33 + (unsigned char)*text;
  return value;
}

/* Twice the slots; HEAP_ZERO_MEMORY clears the new half, and every word then finds its place again.
 */
static void grow(index_t* index) {
  const SIZE_T before = slot_count(index);
  const SIZE_T after = before * 2;
  word** slots =
      (word**)HeapReAlloc(index->heap, HEAP_ZERO_MEMORY, index->slots, after * sizeof(word*));
  SIZE_T i;
  if (slots == NULL) die("HeapReAlloc");
  index->slots = slots;
  for (i = 0; i < before; ++i) {
    word* one = slots[i];
    slots[i] = NULL;
    while (one != NULL) {
      word* const next = one->next;
      word** const place = &slots[hash(one->text) % after];
      /* A word moves to its old slot or to the one `before` higher, which is not visited any more.
       */
      one->next = *place;
      *place = one;
      one = next;
    }
  }
}

static void count_word(index_t* index, const char* text, SIZE_T length) {
  word** place = &index->slots[hash(text) % slot_count(index)];
  word* one = *place;
  while (one != NULL && strcmp(one->text, text) != 0) one = one->next;
  if (one == NULL) {
    one = (word*)HeapAlloc(index->heap, 0, sizeof(word) + length);
    if (one == NULL) die("HeapAlloc");
    memcpy(one->text, text, length + 1);
    one->count = 0;
    one->next = *place;
    *place = one;
    if (++index->words > slot_count(index)) {
      ++one->count;
      grow(index);
      return;
    }
  }
  ++one->count;
}

static void read_words(index_t* index, FILE* file) {
  char text[64];
  SIZE_T length = 0;
  int c;
  do {
    c = getc(file);
    if (c != EOF && isalpha(c) && length < sizeof text - 1) {
      text[length++] = (char)tolower(c);
    } else if (length != 0) {
      text[length] = '\0';
      count_word(index, text, length);
      length = 0;
    }
  } while (c != EOF);
}

static int by_count(const void* left, const void* right) {
  const word* const a = *(word* const*)left;
  const word* const b = *(word* const*)right;
  if (a->count != b->count) return a->count < b->count ? 1 : -1;
  return strcmp(a->text, b->text);
}

static void print_most_frequent(const index_t* index, SIZE_T wanted) {
  word** const sorted = (word**)HeapAlloc(index->heap, 0, index->words * sizeof(word*));
  const SIZE_T slots = slot_count(index);
  SIZE_T found = 0;
  SIZE_T i;
  if (sorted == NULL) die("HeapAlloc");
  for (i = 0; i < slots; ++i) {
    word* one;
    for (one = index->slots[i]; one != NULL; one = one->next) sorted[found++] = one;
  }
  qsort(sorted, found, sizeof(word*), by_count);
  for (i = 0; i < found && i < wanted; ++i) {
    printf("%6lu  %s\n", (unsigned long)sorted[i]->count, sorted[i]->text);
  }
  if (!HeapFree(index->heap, 0, sorted)) die("HeapFree");
}

/* Every live block of the heap is in the walk, with the size that was asked for. */
static void print_heap(const index_t* index) {
  PROCESS_HEAP_ENTRY entry;
  BOOL table_seen = FALSE;
  if (!HeapLock(index->heap)) die("HeapLock");
  entry.lpData = NULL;
  while (HeapWalk(index->heap, &entry)) {
    if ((entry.wFlags & PROCESS_HEAP_ENTRY_BUSY) != 0 && entry.lpData == (PVOID)index->slots) {
      table_seen = entry.cbData == HeapSize(index->heap, 0, index->slots);
    }
  }
  if (GetLastError() != ERROR_NO_MORE_ITEMS) die("HeapWalk");
  HeapUnlock(index->heap);
  printf("the walk met the table with its exact size: %s\n", table_seen ? "yes" : "no");
}

/* A heap with a maximum says no; it does not take the process with it. */
static void show_limit(void) {
  const HANDLE small = HeapCreate(0, 0, 256 * 1024);
  LPVOID block;
  if (small == NULL) die("HeapCreate");
  SetLastError(NO_ERROR);
  block = HeapAlloc(small, 0, 1024 * 1024);
  printf("1 MiB from a heap of 256 KiB: %s, error %lu\n", block == NULL ? "refused" : "granted",
         (unsigned long)GetLastError());
  if (!HeapDestroy(small)) die("HeapDestroy");
}

int main(int argc, char** argv) {
  index_t index;
  ULONG mode = 2; /* the low-fragmentation heap */
  FILE* file = stdin;
  if (argc > 1 && (file = fopen(argv[1], "r")) == NULL) {
    fprintf(stderr, "word_index: cannot open %s\n", argv[1]);
    return 1;
  }
  index.words = 0;
  index.heap = HeapCreate(0, 0, 0);
  if (index.heap == NULL) die("HeapCreate");
  if (!HeapSetInformation(index.heap, HeapCompatibilityInformation, &mode, sizeof mode)) {
    /* Under a debugger Windows refuses; everything works without. */
    fprintf(stderr, "word_index: no low-fragmentation heap: error %lu\n",
            (unsigned long)GetLastError());
  }
  index.slots = (word**)HeapAlloc(index.heap, HEAP_ZERO_MEMORY, 16 * sizeof(word*));
  if (index.slots == NULL) die("HeapAlloc");
  read_words(&index, file);
  printf("%lu different words in %lu slots\n", (unsigned long)index.words,
         (unsigned long)slot_count(&index));
  print_most_frequent(&index, 5);
  print_heap(&index);
  show_limit();
  if (!HeapDestroy(index.heap)) die("HeapDestroy");
  if (file != stdin) fclose(file);
  return 0;
}
