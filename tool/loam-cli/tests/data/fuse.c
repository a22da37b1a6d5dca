/* A file system of one file, for tests of what happens when its server stops answering.
 *
 *   fuse serve MOUNT FILE   shows FILE as MOUNT/file, says "ready", serves until it is killed
 *   fuse held PATH          maps a page of PATH as a program's, says "ready", waits
 *
 * Exit status 77: this system does not allow it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int device;

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t length) {
  struct fuse_out_header out = {(uint32_t)(sizeof out + length), error, in->unique};
  struct iovec parts[2] = {{&out, sizeof out}, {(void *)body, length}};
  if (writev(device, parts, 2) < 0 && errno != ENOENT) exit(1);
}

/* The kernel keeps nothing: each question comes to the server. */
static struct fuse_attr attributes(uint64_t node, uint64_t size) {
  struct fuse_attr found = {.ino = node, .size = size, .nlink = 1, .blksize = 4096};
  found.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0755;
  return found;
}

static int serve(const char *mount_point, const char *path) {
  int file = open(path, O_RDONLY);
  struct stat info;
  if (file < 0 || fstat(file, &info) != 0) return 1;
  device = open("/dev/fuse", O_RDWR);
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
           device);
  if (device < 0 || mount("loam-test", mount_point, "fuse", 0, options) != 0) return 77;
  puts("ready");
  fflush(stdout);
  static char request[1 << 18], data[1 << 18];
  for (;;) {
    ssize_t length = read(device, request, sizeof request);
    if (length < 0 && errno == ENODEV) return 0;
    if (length < (ssize_t)sizeof(struct fuse_in_header)) continue;
    const struct fuse_in_header *in = (void *)request;
    const void *body = in + 1;
    uint64_t size = (uint64_t)info.st_size;
    switch (in->opcode) {
      case FUSE_INIT: {
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                    .minor = FUSE_KERNEL_MINOR_VERSION};
        out.max_write = 1 << 16;
        answer(in, 0, &out, sizeof out);
        break;
      }
      case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = 2, .attr = attributes(2, size)};
        int is_there = strcmp(body, "file") == 0;
        answer(in, is_there ? 0 : -ENOENT, &out, is_there ? sizeof out : 0);
        break;
      }
      case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid, size)};
        answer(in, 0, &out, sizeof out);
        break;
      }
      case FUSE_OPEN:
      case FUSE_OPENDIR: {
        struct fuse_open_out out = {0};
        answer(in, 0, &out, sizeof out);
        break;
      }
      case FUSE_READ: {
        const struct fuse_read_in *wanted = body;
        ssize_t got = pread(file, data, wanted->size, (off_t)wanted->offset);
        answer(in, 0, data, got < 0 ? 0 : (size_t)got);
        break;
      }
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
      case FUSE_FLUSH:
        answer(in, 0, 0, 0);
        break;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        break;
      default:
        answer(in, -ENOSYS, 0, 0);
    }
  }
}

static int held(const char *path) {
  int file = open(path, O_RDONLY);
  if (file < 0 || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
    return 1;
  close(file); /* which asks the server, and can not be killed where that does not answer */
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}

int main(int count, char **words) {
  if (count == 4 && strcmp(words[1], "serve") == 0) return serve(words[2], words[3]);
  if (count == 3 && strcmp(words[1], "held") == 0) return held(words[2]);
  return 2;
}
