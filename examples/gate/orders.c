/* A service with open orders: each has a note and some lines, and goes after a while.
 *
 *   cc -O1 -o orders orders.c                       as it should be
 *   cc -O1 -DFORGETS_NOTES -o orders orders.c       with a fault: a closed order's note stays
 *
 * ./orders [STEPS]   takes about a second without an argument, so that `loam record` sees its
 * memory often enough.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPEN = 20000, LINES = 4 };

struct order {
  char *note;
  char *lines[LINES];
};

static struct order *orders[OPEN];
static unsigned long long state = 88172645463325252ULL;

static size_t below(size_t most) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (size_t)(state >> 11) % most;
}

static char *text(size_t length) {
  char *block = malloc(length);
  if (!block) abort();
  memset(block, 'x', length);
  return block;
}

static struct order *opened(void) {
  struct order *order = malloc(sizeof *order);
  if (!order) abort();
  order->note = text(100 + below(400));
  for (int i = 0; i < LINES; ++i) order->lines[i] = text(20 + below(60));
  return order;
}

static void closed(struct order *order) {
  for (int i = 0; i < LINES; ++i) free(order->lines[i]);
#ifndef FORGETS_NOTES
  free(order->note);
#endif
  free(order);
}

int main(int count, char **arguments) {
  const long steps = count > 1 ? atol(arguments[1]) : 100000;
  for (long step = 0; step < steps; ++step) {
    struct order **place = &orders[below(OPEN)];
    if (*place) closed(*place);
    *place = opened();
    if (step % 1000 == 999) {
      const struct timespec pause = {0, 10000000};
      nanosleep(&pause, NULL);
    }
  }
  for (size_t i = 0; i < OPEN; ++i) {
    if (orders[i]) closed(orders[i]);
  }
  puts("done");
  return 0;
}
