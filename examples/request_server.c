/* A server with a heap for each request: everything that a request allocates, by whichever code,
 * goes into its heap, and one loam_heap_destroy() at the end is the clean-up. Nothing can leak from
 * one request to the next, fragmentation ends with the request, and a maximum stops a greedy
 * request before it takes the server's memory.
 *
 *   request_server              answers requests of its own over TCP on the loopback, prints both
 * sides request_server --port N     serves port N until it is killed: echo "sort pear apple" | nc
 * localhost N
 *
 * One line a request:
 *   sort WORD...     the words in order
 *   repeat N TEXT    N times TEXT; for a large N the heap's maximum says no
 *   quit             ends the connection
 *
 *   cc request_server.c $(pkg-config --cflags --libs loam) -lpthread */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <errno.h>
#include <loam/loam.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kLineBytes = 4096, kRequestMaximum = 1 << 20 };

/* --- A request, and the code that serves it: it knows a heap, and frees nothing ------------------
 */

typedef struct request {
  loam_heap* heap;
  char* line;
} request;

/* A growing text in the request's heap. `text` is NULL once memory has run out. */
typedef struct reply {
  loam_heap* heap;
  char* text;
  size_t length;
} reply;

static void append(reply* to, const char* text, size_t length) {
  char* grown;
  if (to->text == NULL) return;
  grown = (char*)loam_realloc(to->heap, to->text, to->length + length + 1);
  if (grown != NULL) {
    memcpy(grown + to->length, text, length);
    to->length += length;
    grown[to->length] = '\0';
  }
  to->text = grown;
}

static int by_text(const void* left, const void* right) {
  return strcmp(*(char* const*)left, *(char* const*)right);
}

static char* copy(loam_heap* heap, const char* text) {
  const size_t bytes = strlen(text) + 1;
  char* const own = (char*)loam_alloc(heap, bytes);
  return own == NULL ? NULL : (char*)memcpy(own, text, bytes);
}

static void sort_words(const request* of, char* words, reply* to) {
  char** list = NULL;
  size_t count = 0;
  size_t i;
  char* place = NULL;
  char* word;
  for (word = strtok_r(words, " ", &place); word != NULL; word = strtok_r(NULL, " ", &place)) {
    const size_t bytes = (count + 1) * sizeof(char*);
    char** const grown =
        (char**)(list == NULL ? loam_alloc(of->heap, bytes) : loam_realloc(of->heap, list, bytes));
    if (grown == NULL || (grown[count] = copy(of->heap, word)) == NULL) {
      to->text = NULL;
      return;
    }
    list = grown;
    ++count;
  }
  if (count != 0) qsort(list, count, sizeof(char*), by_text);
  for (i = 0; i < count; ++i) {
    append(to, list[i], strlen(list[i]));
    append(to, " ", i + 1 < count);
  }
}

static void repeat(char* arguments, reply* to) {
  char* text;
  unsigned long times = strtoul(arguments, &text, 10);
  while (*text == ' ') ++text;
  for (; times != 0 && to->text != NULL; --times) append(to, text, strlen(text));
}

static reply serve(const request* of) {
  reply to = {of->heap, copy(of->heap, ""), 0};
  char* const arguments = strchr(of->line, ' ');
  if (strncmp(of->line, "sort ", 5) == 0) {
    sort_words(of, arguments + 1, &to);
  } else if (strncmp(of->line, "repeat ", 7) == 0) {
    repeat(arguments + 1, &to);
  } else {
    append(&to, "what?", 5);
  }
  return to;
}

/* --- The server: a heap in, a heap out -----------------------------------------------------------
 */

static loam_heap* request_heap(void) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.maximum = kRequestMaximum;
  options.name = "request";
  /* One thread serves a request from beginning to end: no locks needed. */
  options.flags = LOAM_HEAP_UNSYNCHRONIZED;
  return loam_heap_create(&options);
}

/* False when the client has had enough. */
static int answer_line(FILE* out, char* line) {
  request now;
  reply to;
  line[strcspn(line, "\r\n")] = '\0';
  if (strcmp(line, "quit") == 0) return 0;
  now.heap = request_heap();
  if (now.heap == NULL) {
    fprintf(out, "error: the server is out of memory\n");
    return fflush(out) == 0;
  }
  now.line = copy(now.heap, line);
  to = serve(&now);
  if (to.text != NULL) {
    fprintf(out, "%s\n", to.text);
  } else {
    fprintf(out, "error: the request needs more than %d bytes\n", (int)kRequestMaximum);
  }
  loam_heap_destroy(now.heap);
  return fflush(out) == 0;
}

static void serve_connection(int connection) {
  char line[kLineBytes];
  FILE* const stream = fdopen(connection, "r+");
  if (stream == NULL) {
    close(connection);
    return;
  }
  while (fgets(line, sizeof line, stream) != NULL) {
    const int whole = strchr(line, '\n') != NULL;
    /* A stream switches from reading to writing by a positioning call, which a socket ignores. */
    fseek(stream, 0, SEEK_CUR);
    if (!whole) {
      fprintf(stream, "error: a line has %d characters at most\n", kLineBytes - 2);
      break;
    }
    if (!answer_line(stream, line)) break;
  }
  fclose(stream);
}

static void die(const char* what) {
  fprintf(stderr, "request_server: %s: %s\n", what, strerror(errno));
  exit(1);
}

/* Port 0 takes any free one. */
static int listen_on_loopback(unsigned port, struct sockaddr_in* address) {
  socklen_t length = sizeof *address;
  const int yes = 1;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  memset(address, 0, sizeof *address);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address->sin_port = htons((unsigned short)port);
  if (listener < 0) die("socket");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener, (struct sockaddr*)address, sizeof *address) != 0) die("bind");
  if (listen(listener, 16) != 0) die("listen");
  if (getsockname(listener, (struct sockaddr*)address, &length) != 0) die("getsockname");
  return listener;
}

/* --- The client of the demonstration
 * -------------------------------------------------------------- */

static void* client(void* argument) {
  static const char* const requests[] = {"sort pear apple fig", "repeat 3 loam",
                                         "repeat 1000000 loam", "sort the server still answers",
                                         "dance"};
  const struct sockaddr_in* const address = (const struct sockaddr_in*)argument;
  char line[kLineBytes];
  size_t i;
  FILE* stream;
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  if (connection < 0 ||
      connect(connection, (const struct sockaddr*)address, sizeof *address) != 0) {
    die("connect");
  }
  stream = fdopen(connection, "r+");
  if (stream == NULL) die("fdopen");
  for (i = 0; i < sizeof requests / sizeof *requests; ++i) {
    fprintf(stream, "%s\n", requests[i]);
    fflush(stream);
    if (fgets(line, sizeof line, stream) == NULL) die("the server hung up");
    fseek(stream, 0, SEEK_CUR);
    printf("> %s\n%s", requests[i], line);
  }
  /* Many more, whose heaps must not add up. */
  for (i = 0; i < 10000; ++i) {
    fprintf(stream, "sort %zu c b a\n", i);
    fflush(stream);
    if (fgets(line, sizeof line, stream) == NULL) die("the server hung up");
    fseek(stream, 0, SEEK_CUR);
  }
  fprintf(stream, "quit\n");
  fclose(stream);
  return NULL;
}

int main(int argc, char** argv) {
  struct sockaddr_in address;
  pthread_t other_side;
  const int forever = argc == 3 && strcmp(argv[1], "--port") == 0;
  const size_t heaps_before = loam_heaps(NULL, 0);
  int listener;
  if (argc != 1 && !forever) {
    fprintf(stderr, "usage: request_server [--port N]\n");
    return 2;
  }
  listener = listen_on_loopback(forever ? (unsigned)strtoul(argv[2], NULL, 10) : 0, &address);
  if (!forever && pthread_create(&other_side, NULL, client, &address) != 0) die("pthread_create");
  do {
    const int connection = accept(listener, NULL, NULL);
    if (connection < 0) die("accept");
    serve_connection(connection);
  } while (forever);
  pthread_join(other_side, NULL);
  close(listener);
  printf("%zu heaps before 10005 requests, %zu after\n", heaps_before, loam_heaps(NULL, 0));
  return 0;
}
