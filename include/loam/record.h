/* Names for moments of a program that `loam record` records. Without the recorder nothing happens,
 * so that programs may keep their marks; nothing is linked. Works on any allocator. */
#ifndef LOAM_RECORD_H
#define LOAM_RECORD_H

#ifdef __cplusplus
extern "C" {
#endif

/* The recorder's own, where the program runs under it. */
void loam_record_mark(const char* name) __attribute__((weak));

#ifdef __cplusplus
}
#endif

/* A moment: what comes now is called `name` in the trace. At most 255 bytes are kept. */
static inline void loam_mark(const char* name) {
  if (loam_record_mark) loam_record_mark(name);
}

#endif
