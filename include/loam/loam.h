/* Loam's C interface: private heaps beside malloc, and the same calls for the default heap.
 *
 *   loam_heap* heap = loam_heap_create(NULL);      a growable heap for any thread
 *   char* text = loam_alloc(heap, 100);
 *   loam_free(heap, text);                         or free(text): free() takes any heap's block
 *   loam_heap_destroy(heap);                       all blocks that are left end with it
 *
 * Conventions
 *
 *   Sizes       are bytes. A size above PTRDIFF_MAX never succeeds; size 0 gives a block of its
 *               own.
 *   Alignment   of every block is at least LOAM_ALIGNMENT (16).
 *   Status      LOAM_OK is 0; every other value is a refusal after which nothing has changed.
 *               loam_last_status() tells it for functions that return something else. errno stays
 *               as it is.
 *   Threads     every function may be called by any thread at any time, unless its text says
 *               otherwise. The caller serialises all calls on a heap made with
 *               LOAM_HEAP_UNSYNCHRONIZED.
 *   Handles     a heap that was destroyed answers LOAM_INVALID_HEAP until its handle is given to
 *               another heap; handles are given out again as late as possible. NULL is never a
 *               heap, except where said.
 *   Blocks      a pointer that is no live block of the heap (wild, freed, into the middle, another
 *               heap's) is answered by a status, not by a crash: the heap keeps its records away
 *               from its blocks. See loam_set_corruption_policy() for ending the process instead.
 *   Signals     no function may be called in a signal handler.
 *   fork()      the child has all heaps as they were; locks that other threads held are free
 *               there.
 *
 * C11 and C++11 or later. docs/heaps.md is the guide. */
#ifndef LOAM_LOAM_H
#define LOAM_LOAM_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(LOAM_BUILDS_DLL)
#define LOAM_API __declspec(dllexport)
#elif defined(__GNUC__)
#define LOAM_API __attribute__((visibility("default")))
#else
#define LOAM_API
#endif
#if defined(__GNUC__)
#define LOAM_ALLOCATES(position) __attribute__((malloc, alloc_size(position), warn_unused_result))
#else
#define LOAM_ALLOCATES(position)
#endif

#ifdef __cplusplus
#define LOAM_NOEXCEPT noexcept
extern "C" {
#else
#define LOAM_NOEXCEPT
#endif

/** This header's version; loam_version() is the library's. The form is
 *  major * 10000 + minor * 100 + patch. Library, tool and packages take their version from this
 *  line. */
#define LOAM_HEADER_VERSION 100

/** The least alignment of every block, in bytes. */
#define LOAM_ALIGNMENT 16

/** A heap. Opaque; never copied, never dereferenced. */
typedef struct loam_heap loam_heap;

/** What a call answers. Compare with LOAM_OK: further values may be added. */
typedef enum loam_status {
  LOAM_OK = 0,
  LOAM_OUT_OF_MEMORY = 1,    /**< the system refused memory */
  LOAM_LIMIT_REACHED = 2,    /**< the heap's maximum forbids it */
  LOAM_INVALID_ARGUMENT = 3, /**< a size, alignment, flag or null that no call serves */
  LOAM_INVALID_HEAP = 4,     /**< null, destroyed, or never a heap */
  LOAM_INVALID_BLOCK = 5,    /**< no live block starts there: wild, freed, inside, null */
  LOAM_WRONG_HEAP = 6,       /**< a live block, of another heap */
  LOAM_NOT_IN_PLACE = 7,     /**< cannot be done without moving the block */
  LOAM_NOT_SUPPORTED = 8,    /**< this heap cannot do it, whatever the arguments */
  LOAM_ONE_WAY = 9,          /**< this setting cannot be undone */
  LOAM_BUSY = 10,            /**< another thread holds the heap's lock */
  LOAM_NOT_OWNER = 11,       /**< the calling thread does not hold the heap's lock */
  LOAM_NO_MORE = 12,         /**< the walk is at its end */
  LOAM_CHANGED = 13,         /**< the walk's entry is gone: start again, or lock the heap */
  LOAM_CORRUPT = 14          /**< the heap's own records contradict each other, or what guards a
                                  block (LOAM_HEAP_CANARY, LOAM_HEAP_POISON) was overwritten */
} loam_status;

/** "out of memory" and so on, for people; "unknown status" for other numbers. Static storage. */
LOAM_API const char* loam_status_text(int status) LOAM_NOEXCEPT;

/** Why the calling thread's last refused call was refused. A success leaves it as it is, as with
 *  errno. LOAM_OK before the first refusal. */
LOAM_API loam_status loam_last_status(void) LOAM_NOEXCEPT;

/** The library's version as major * 10000 + minor * 100 + patch. */
LOAM_API unsigned loam_version(void) LOAM_NOEXCEPT;

/** The same as text, as in "0.1.0". Static storage. */
LOAM_API const char* loam_version_text(void) LOAM_NOEXCEPT;

/* ---- Heaps ----------------------------------------------------------------------------------- */

/** Called when the heap cannot serve `bytes`, with none of Loam's locks held by the call: it may
 *  free blocks of any heap. A result other than 0 has the request tried again, 0 lets it fail.
 *  It may also leave by longjmp or, where the program is compiled with unwind tables, by a C++
 *  exception. */
typedef int (*loam_failure_callback)(void* context, loam_heap* heap, size_t bytes);

enum {
  /** No locks: only one thread at a time may use the heap or free its blocks, by any call (also
   *  free()). The heap keeps its front end. Debug builds of the library end the process when they
   *  see two threads inside at once. */
  LOAM_HEAP_UNSYNCHRONIZED = 1u << 0,
  /** loam_size() and the walk give the size that was asked for. Two bytes a slot, kept away from
   *  the block. Without it they give the usable size for small blocks; large ones (above 32 KiB)
   *  are always exact. */
  LOAM_HEAP_EXACT_SIZES = 1u << 1,
  /** Mode 2 from the start, and a cache for each thread from its first call. For few busy heaps. */
  LOAM_HEAP_EAGER = 1u << 2,
  /** A block is overwritten with zeros when it is freed (not by loam_heap_destroy()). */
  LOAM_HEAP_ZERO_ON_FREE = 1u << 3,
  /** At least 8 secret bytes stand behind every block, up to the end of its slot or page. If one
   *  of them was overwritten, every call with the block refuses it with LOAM_CORRUPT and leaves it
   *  as it is, loam_size() and loam_validate() too; free() and realloc() report it and end the
   *  process. The usable bytes are those that were asked for. Implies LOAM_HEAP_EXACT_SIZES; the
   *  heap has no threads' caches. */
  LOAM_HEAP_CANARY = 1u << 4,
  /** A freed block is filled with bytes 0xf5 and is not reused until 64 KiB of other blocks were
   *  freed after it (blocks above 16 KiB are exempt). A write to it meanwhile is reported, and ends
   *  the process, when the block becomes free for reuse; loam_validate() of the heap tells earlier.
   *  The heap has no threads' caches. */
  LOAM_HEAP_POISON = 1u << 5,
  /** Bits that the library ignores. loam_heap_flags() returns them to the layer above that set
   *  them. */
  LOAM_HEAP_USER_FLAGS = 0x7f000000
};

/** Options of a new heap. Start from LOAM_HEAP_OPTIONS_INIT: fields that a later version adds are
 *  then zero. */
typedef struct loam_heap_options {
  size_t size;     /**< sizeof(loam_heap_options): says which fields are there */
  size_t initial;  /**< bytes set aside at creation, rounded up to pages; without them creation
                        fails. If they reach up to `maximum`, they include the heap's records. */
  size_t maximum;  /**< 0: the heap grows as long as the system lets it. Otherwise the heap never
                        holds more than this many bytes, rounded up to pages: blocks in whole pages,
                        cached ones too, and the heap's own records. A full heap serves other sizes
                        from its freed blocks: a freed block of up to 32 KiB serves any smaller
                        request, freed neighbours in one span serve a larger one. */
  unsigned flags;  /**< LOAM_HEAP_* */
  unsigned reserved; /**< 0 */
  loam_failure_callback on_failure; /**< or NULL */
  void* context;                    /**< for on_failure */
  const char* name; /**< for counters and messages, or NULL; the first 31 bytes are copied */
} loam_heap_options;

#define LOAM_HEAP_OPTIONS_INIT {sizeof(loam_heap_options), 0, 0, 0, 0, NULL, NULL, NULL}

/** A new heap; NULL `options` mean growable, for any thread. Returns NULL with
 *  LOAM_OUT_OF_MEMORY, LOAM_LIMIT_REACHED (`initial`, or the heap's records, exceed `maximum`),
 *  or LOAM_INVALID_ARGUMENT (size field too small, unknown flags, a field set that this library
 *  does not know). Costs about 1 KiB until it is used; then at least one 4 KiB page for each
 *  size class in use. */
LOAM_API loam_heap* loam_heap_create(const loam_heap_options* options) LOAM_NOEXCEPT;

/** Ends the heap with every block of it, in time proportional to spans and large blocks, without
 *  touching a block. In a heap with canaries it reads them, and reports each block that was
 *  overrun. Pointers that threads still cache are dropped. No other thread may be using the heap or
 *  its blocks; debug builds of the library end the process when they see one. LOAM_INVALID_HEAP;
 *  LOAM_NOT_SUPPORTED for the default heap; LOAM_BUSY while another thread holds its lock. */
LOAM_API loam_status loam_heap_destroy(loam_heap* heap) LOAM_NOEXCEPT;

/** The heap behind malloc(). It is always there and never destroyed. Each call below says what it
 *  does differently for it. */
LOAM_API loam_heap* loam_default(void) LOAM_NOEXCEPT;

/** Writes the live heaps' handles, the default heap first, to heaps[0 .. capacity - 1] as far as
 *  they fit, and returns how many there are. `heaps` may be NULL if capacity is 0. A heap of the
 *  list may be gone when it is read. */
LOAM_API size_t loam_heaps(loam_heap** heaps, size_t capacity) LOAM_NOEXCEPT;

/** The name that was given at creation, "" if none, "default" for the default heap; NULL for no
 *  heap. Lives as long as the heap. */
LOAM_API const char* loam_heap_name(loam_heap* heap) LOAM_NOEXCEPT;

/** The flags that were given at creation; 0 for the default heap, and with LOAM_INVALID_HEAP for
 *  no heap. */
LOAM_API unsigned loam_heap_flags(loam_heap* heap) LOAM_NOEXCEPT;

/** The heap that the live block belongs to (the default heap included), or NULL with
 *  LOAM_INVALID_BLOCK. Any pointer is answered. For the default heap see loam_validate(). */
LOAM_API loam_heap* loam_heap_of(const void* block) LOAM_NOEXCEPT;

/* ---- Blocks ---------------------------------------------------------------------------------- */
/* The functions without LOAM_NOEXCEPT may call the heap's failure callback. */

/** A block of `bytes` bytes, content unspecified. NULL with LOAM_OUT_OF_MEMORY,
 *  LOAM_LIMIT_REACHED or LOAM_INVALID_HEAP; the heap's failure callback is asked before the
 *  first two. */
LOAM_API void* loam_alloc(loam_heap* heap, size_t bytes) LOAM_ALLOCATES(2);

/** The same, and all of its usable bytes are zero. */
LOAM_API void* loam_zalloc(loam_heap* heap, size_t bytes) LOAM_ALLOCATES(2);

/** A block at a multiple of `alignment`, a power of two; nothing is allocated on top, and
 *  loam_free() takes it back as any other. `bytes` need not be a multiple. As loam_alloc(), and
 *  LOAM_INVALID_ARGUMENT for another alignment. */
LOAM_API void* loam_aligned_alloc(loam_heap* heap, size_t alignment, size_t bytes)
    LOAM_ALLOCATES(3);

/** Resizes, and moves if it must; content is kept up to the smaller size. The block must be the
 *  heap's. NULL leaves the block as it was: LOAM_INVALID_BLOCK (NULL too), LOAM_WRONG_HEAP, or
 *  what loam_alloc() says. bytes == 0 keeps a block of size 0, it does not free. A block that
 *  moves is aligned to LOAM_ALIGNMENT only. */
LOAM_API void* loam_realloc(loam_heap* heap, void* block, size_t bytes);

/** The same, and the bytes that the block gains are zero: from the exact old size on in a heap
 *  with LOAM_HEAP_EXACT_SIZES and for blocks above 32 KiB. Any other block must come from
 *  loam_zalloc() or loam_zrealloc(), and the program must not have written behind the size that
 *  it asked for. */
LOAM_API void* loam_zrealloc(loam_heap* heap, void* block, size_t bytes);

/** The same as loam_realloc() (`zero` 0) or loam_zrealloc(), and a block that moves is aligned
 *  to `alignment`. */
LOAM_API void* loam_aligned_realloc(loam_heap* heap, void* block, size_t alignment, size_t bytes,
                                    int zero);

/** Resizes the block where it stands: a small block within its size class (also to 0), a larger
 *  one as far as the pages behind it are free. LOAM_NOT_IN_PLACE leaves it as it was. The content
 *  of the bytes that it gains is unspecified. */
LOAM_API loam_status loam_try_resize(loam_heap* heap, void* block, size_t bytes) LOAM_NOEXCEPT;

/** Frees the heap's block, from any thread. NULL is LOAM_OK. The block is not freed with
 *  LOAM_INVALID_BLOCK, LOAM_WRONG_HEAP and LOAM_CORRUPT. Two threads that free one block at the
 *  same instant may both get LOAM_OK. The second free is then found when the block returns to its
 *  span: it is dropped, and reported as loam_set_corruption_policy() says. */
LOAM_API loam_status loam_free(loam_heap* heap, void* block) LOAM_NOEXCEPT;

/** The same, and compares `bytes` with the block. LOAM_INVALID_ARGUMENT, without freeing the
 *  block, when `bytes` is more than the usable size, or in a heap of exact sizes is not
 *  loam_size(). */
LOAM_API loam_status loam_free_sized(loam_heap* heap, void* block, size_t bytes) LOAM_NOEXCEPT;

/** The size that was asked for where it is kept (LOAM_HEAP_EXACT_SIZES, and every block above 32
 *  KiB), else the usable size. SIZE_MAX with LOAM_INVALID_BLOCK, LOAM_WRONG_HEAP or
 *  LOAM_INVALID_HEAP. */
LOAM_API size_t loam_size(loam_heap* heap, const void* block) LOAM_NOEXCEPT;

/** Bytes that the caller may use, at least those asked for. SIZE_MAX as with loam_size(). */
LOAM_API size_t loam_usable_size(loam_heap* heap, const void* block) LOAM_NOEXCEPT;

/** LOAM_OK if `block` is a live block of the heap, else LOAM_INVALID_BLOCK, LOAM_WRONG_HEAP, or
 *  LOAM_CORRUPT when its canary was overwritten. Any address is answered and none is read. With
 *  NULL the heap's records are checked against each other, which takes time in proportion to its
 *  spans: LOAM_OK or LOAM_CORRUPT. In the default heap a block that another thread is freeing at
 *  this moment may still be called live, and the check of records needs all other threads to be
 *  quiet. */
LOAM_API loam_status loam_validate(loam_heap* heap, const void* block) LOAM_NOEXCEPT;

/* ---- Looking at a heap ----------------------------------------------------------------------- */

/** What an entry of a walk is. */
enum {
  LOAM_ENTRY_REGION = 1,      /**< a run of pages of the heap; the entries inside it follow */
  LOAM_ENTRY_UNCOMMITTED = 2, /**< pages inside the region that were given back to the system */
  LOAM_ENTRY_FREE = 3,        /**< a free slot; slots in threads' caches count as free */
  LOAM_ENTRY_SMALL = 4,       /**< a live block in a slot of a size class */
  LOAM_ENTRY_LARGE = 5,       /**< a live block of whole pages, without a REGION entry */
  LOAM_ENTRY_HUGE = 6         /**< a live block in a mapping of its own (above 32 MiB, or above
                                   32 KiB with LOAM_HARDEN), without a REGION entry */
};

/** One step of a walk. Set `address` to NULL and `size` to sizeof(loam_walk_entry) to start. */
typedef struct loam_walk_entry {
  size_t size;
  void* address;    /**< of the block, slot, region or pages */
  size_t bytes;     /**< of a live block: loam_size(); of any other entry: its length */
  size_t overhead;  /**< of a live block: its slot or pages less `bytes`; of a region: bytes in
                         no slot */
  unsigned kind;    /**< LOAM_ENTRY_* */
  unsigned reserved;
  size_t region;             /**< number of the region in this walk, counted from 0 */
  size_t committed_bytes;    /**< of a region: backed or ready to be */
  size_t uncommitted_bytes;  /**< of a region: given back */
  void* first;               /**< of a region: its first slot */
  void* last;                /**< of a region: the first address behind its slots */
  size_t cursor[4];          /**< Loam's own; a walk may be given up without a further call. All
                                  zero: the walk goes on behind the entry that `address`, `bytes`,
                                  `kind` and `region` describe. Any kind of a live block then
                                  stands for every kind of a live block. */
} loam_walk_entry;

/** Steps to the next entry, in constant time. LOAM_ENTRY_HUGE entries come in order of address, and
 *  a step to one takes time in proportion to their number. LOAM_NO_MORE at the end. Hold the heap's
 *  lock for a true picture. Without it the walk is safe, but may answer LOAM_CHANGED when the span
 *  that it stood in is gone. Every slot is listed once, live or free. The default heap's lock stops
 *  no allocation, and slots in threads' caches count as live there. LOAM_INVALID_HEAP;
 *  LOAM_INVALID_ARGUMENT for a wrong `size`. */
LOAM_API loam_status loam_walk_next(loam_heap* heap, loam_walk_entry* entry) LOAM_NOEXCEPT;

/** Returns 0 to go on. The callback must not allocate from the walked heap, free to it, or destroy
 *  it. */
typedef int (*loam_walk_callback)(void* context, const loam_walk_entry* entry);

/** Calls `visit` for every entry under the heap's lock. LOAM_OK at the end, and when `visit` ends
 *  the walk. */
LOAM_API loam_status loam_walk(loam_heap* heap, loam_walk_callback visit, void* context);

/** Filled by loam_summary(). Set `size` to sizeof(loam_heap_summary) before. Bytes, but for the
 *  last three. */
typedef struct loam_heap_summary {
  size_t size;
  size_t allocated;      /**< in live blocks, whole slots and pages counted; not cached slots */
  size_t committed;      /**< spans, large and huge blocks, what is set aside, and records */
  size_t reserved;       /**< the same plus pages given back inside spans */
  size_t maximum;        /**< as at creation; 0 = grows */
  size_t peak_committed; /**< the most that `committed` was */
  size_t cached;         /**< in slots that threads' caches hold */
  size_t free;           /**< in free slots */
  size_t records;        /**< the heap's own, part of committed */
  size_t blocks;         /**< live blocks */
  size_t spans;          /**< runs of pages cut into slots */
  size_t large_blocks;   /**< live blocks of whole pages, own mappings included */
} loam_heap_summary;

/** Exact while no other thread uses the heap. The default heap's `blocks` and `large_blocks` leave
 *  out large blocks up to 32 MiB. LOAM_INVALID_HEAP, LOAM_INVALID_ARGUMENT. */
LOAM_API loam_status loam_summary(loam_heap* heap, loam_heap_summary* summary) LOAM_NOEXCEPT;

/* ---- Lock ------------------------------------------------------------------------------------ */

/** Stops every other thread's allocations and frees in this heap, those from caches too, until
 *  the unlock; they wait. Recursive. Returns once no other thread is inside. On an
 *  unsynchronised heap it counts and excludes no thread. On the default heap it excludes only
 *  other threads that lock it, not malloc() and free(). LOAM_INVALID_HEAP. */
LOAM_API loam_status loam_lock(loam_heap* heap) LOAM_NOEXCEPT;

/** The same without waiting for another holder: LOAM_BUSY. */
LOAM_API loam_status loam_try_lock(loam_heap* heap) LOAM_NOEXCEPT;

/** LOAM_NOT_OWNER when the calling thread does not hold it. */
LOAM_API loam_status loam_unlock(loam_heap* heap) LOAM_NOEXCEPT;

/* ---- Memory and behaviour -------------------------------------------------------------------- */

/** Returns every thread's cached slots to their spans and empty spans to the page heap, and gives
 *  free pages (between the heaps' spans and inside them) back to the system. Returns the heap's
 *  largest free block that was backed just before, in bytes; it is no promise that a block of that
 *  size can be had. The bytes that were released go to *released (may be NULL). 0 with
 *  LOAM_INVALID_HEAP. Takes time in proportion to the heap's spans. The default heap reaches the
 *  calling thread's cache only. */
LOAM_API size_t loam_compact(loam_heap* heap, size_t* released) LOAM_NOEXCEPT;

/** loam_compact() for one heap, or with NULL for the default heap and every heap that is neither
 *  unsynchronised nor locked by another thread. LOAM_INVALID_HEAP. */
LOAM_API loam_status loam_trim(loam_heap* heap) LOAM_NOEXCEPT;

enum {
  LOAM_MODE_STANDARD = 0,    /**< every call takes the heap's lock */
  LOAM_MODE_LOOKASIDE = 1,   /**< Windows XP's; LOAM_NOT_SUPPORTED */
  LOAM_MODE_LOW_FRAGMENTATION = 2 /**< threads that use the heap often get a cache */
};

/** Turns the front end on: mode 2, for ever. A heap turns it on by itself after 18 allocations of
 *  one size class. LOAM_ONE_WAY for another mode once it is on; LOAM_INVALID_ARGUMENT,
 *  LOAM_INVALID_HEAP. The default heap and an unsynchronised heap accept mode 2 too. */
LOAM_API loam_status loam_set_mode(loam_heap* heap, int mode) LOAM_NOEXCEPT;

/** 0 or 2; -1 with LOAM_INVALID_HEAP. The default heap's is always 2. */
LOAM_API int loam_get_mode(loam_heap* heap) LOAM_NOEXCEPT;

/** The most that loam_set_small_threshold() takes, in bytes, and the threshold of a new heap. */
#define LOAM_MAX_SMALL_THRESHOLD 16384

/** Blocks up to `bytes` go through threads' caches; larger blocks, and all blocks with 0, go to
 *  the heap's spans under its lock. A cached block stays cached until its thread uses it or ends,
 *  or until loam_compact(). LOAM_INVALID_ARGUMENT above LOAM_MAX_SMALL_THRESHOLD;
 *  LOAM_NOT_SUPPORTED for the default heap. */
LOAM_API loam_status loam_set_small_threshold(loam_heap* heap, size_t bytes) LOAM_NOEXCEPT;

/** SIZE_MAX with LOAM_INVALID_HEAP. */
LOAM_API size_t loam_get_small_threshold(loam_heap* heap) LOAM_NOEXCEPT;

/** What happens when a block is misused. Calls of this header can answer with a status. free(),
 *  realloc() and operator delete cannot, nor can the library for a mistake that it finds later:
 *  these are called mistakes without a status below. */
enum {
  LOAM_CORRUPTION_REPORT = 0, /**< one line for a mistake without a status; the call is dropped */
  LOAM_CORRUPTION_ABORT = 1,  /**< a mistake without a status ends the process with one line: the
                                   default */
  LOAM_CORRUPTION_TERMINATE = 2 /**< so do LOAM_INVALID_BLOCK and LOAM_WRONG_HEAP of functions
                                     that free or resize */
};

/** Sets the policy of the whole process. It may only become stricter: LOAM_ONE_WAY for a weaker
 *  policy than the present one. The option LOAM_ON_CORRUPTION sets the first policy.
 *  LOAM_INVALID_ARGUMENT. */
LOAM_API loam_status loam_set_corruption_policy(int policy) LOAM_NOEXCEPT;

LOAM_API int loam_get_corruption_policy(void) LOAM_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* LOAM_LOAM_H */
