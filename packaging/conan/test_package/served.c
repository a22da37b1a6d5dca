#include <loam/loam.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  void* block = malloc(100);
  const int served = loam_heap_of(block) == loam_default();
  free(block);
  puts(served ? "served by loam" : "served by another heap");
  return !served;
}
