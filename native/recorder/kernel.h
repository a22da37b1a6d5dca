// The recorder's calls of the system. They are direct system calls, because the C library's
// functions are points of cancellation: a cancelled thread would end inside malloc.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define LOAM_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define LOAM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define LOAM_EXPORT __attribute__((visibility("default")))
// Of a declaration, so that the compiler does without the table of addresses.
#define LOAM_HIDDEN __attribute__((visibility("hidden")))
#define LOAM_COLD __attribute__((cold, noinline))

// Returns the negated error number on failure. errno may have changed.
int kernel_open(const char* path, int flags);
void kernel_close(int file);
void kernel_unlink(const char* path);
void kernel_rmdir(const char* path);
// Allocates pages of the file for this part, zeroed where they are new. Returns 0 or an error
// number.
int kernel_reserve(int file, uint64_t offset, uint64_t bytes);
ssize_t kernel_read(int file, void* bytes, size_t size);
// Appends a file's text to another one, which may be new.
void kernel_append(const char* from, const char* to);
// Copies memory of this process, up to the first page that cannot be read. Returns the bytes
// copied. `to` has one or two pieces.
size_t kernel_copy(uint32_t process, const struct iovec* to, size_t pieces, uintptr_t from);
// One line on standard error.
void kernel_say(const char* const* words, size_t count);
void kernel_sleep(uint64_t nanoseconds);
uint64_t kernel_monotonic(void);
uint64_t kernel_realtime(void);
uint32_t kernel_process(void);
uint32_t kernel_thread(void);
// MAP_FAILED: errno has the reason. The program may have replaced the C library's functions.
void* kernel_map(size_t bytes, int protection, int flags, int file, uint64_t offset);
// Puts empty private pages in the place of others.
void kernel_map_over(void* address, size_t bytes);
void kernel_unmap(void* address, size_t bytes);
// Returns 0 or an error number.
int kernel_advise(void* address, size_t bytes, int advice);
// Makes the file so long, without memory for its new part.
bool kernel_extend(int file, uint64_t bytes);
// Whether a process that lives holds the lock on that file.
bool kernel_is_held(const char* path);
// The start of this process, in ticks since the machine's start; 0 if it is not known.
uint64_t kernel_own_start(void);
// The inode of one of this process's namespaces; 0: unknown.
uint64_t kernel_space(const char* path);
// Whether a filter restricts this process's system calls.
bool kernel_is_filtered(void);
// The path of this process's program, ended by 0.
void kernel_own_program(char* out, size_t size);
bool kernel_has_file(const char* path);

// Decimal digits of `value`, ended by 0; returns their end.
char* text_number(char* out, uint64_t value);
// Copies `text` as far as `end` allows, ends it by 0, and returns its end.
char* text_copy(char* out, const char* end, const char* text);
// Not the C library's function, which may allocate.
const char* error_text(int error);
