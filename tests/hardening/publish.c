// Where a program publishes (LOAM_PUBLISH=FOLDER), and which images stay (issue 37, C16). No link
// on the way is followed. A folder is refused if another user may rename or replace it. An image
// without a living process is removed, however the process ended. The image of a living process
// stays, whatever its number.
//
// The parts with a second user need root, and are left out without it.
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../preload/check.h"

enum { kNobody = 65534 };

static char base[64];  // every user may write to it; all other folders are in it

static const char* in_base(const char* name) {
  static char paths[32][256];
  static unsigned next;
  char* const path = paths[next++ % 32];
  snprintf(path, sizeof paths[0], "%s/%s", base, name);
  return path;
}

static const char* make_folder(const char* name, mode_t mode) {
  const char* const path = in_base(name);
  CHECK(mkdir(path, 0700) == 0 && chmod(path, mode) == 0);
  return path;
}

static int images_in(const char* folder) {
  DIR* const open = opendir(folder);
  CHECK(open != NULL);
  int count = 0;
  for (struct dirent* entry; (entry = readdir(open)) != NULL;)
    count += strstr(entry->d_name, ".image") != NULL;
  closedir(open);
  return count;
}

// ---- programs that publish: this program again ----

static void wait_for_image(void) {
  char path[512];
  snprintf(path, sizeof path, "%s/%d.image", getenv("LOAM_PUBLISH"), (int)getpid());
  while (access(path, F_OK) != 0) usleep(1000);
}

// "quick": ends at once. "stay": prints a line when its image exists, and ends when its reader has
// ended.
static int act(const char* how) {
  alarm(120);
  free(opaque(malloc(100)));
  if (strcmp(how, "quick") == 0) return 0;
  wait_for_image();
  if (strcmp(how, "exec") == 0) execlp("cat", "cat", (char*)NULL);
  if (strcmp(how, "fork") == 0) {
    // The child of a program that will be killed. It continues, and holds nothing of its parent's.
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) CHECK(write(1, "p", 1) == 1 && write(1, &child, sizeof child) == sizeof child);
    for (;;) pause();
  }
  if (strcmp(how, "forks") == 0) {
    for (int i = 0; i < 200; ++i) {
      const pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0) {
        for (size_t size = 16; size < 40000; size += 16) free(opaque(malloc(size)));
        if (i % 50 == 0) wait_for_image();
        _exit(0);
      }
      CHECK(waitpid(child, NULL, 0) == child);
    }
  }
  CHECK(write(1, "1", 1) == 1);
  char c;
  while (read(0, &c, 1) > 0) {
  }
  return 0;
}

typedef struct {
  pid_t pid;
  int in, out, complaints;
} Program;

static Program start(const char* how, const char* folder) {
  int in[2], out[2], complaints[2];
  CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 &&
        pipe2(complaints, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(complaints[1], 2);
    setenv("LOAM_PUBLISH", folder, 1);
    execl("/proc/self/exe", "publish", "act", how, (char*)NULL);
    _exit(1);
  }
  close(in[0]);
  close(out[1]);
  close(complaints[1]);
  return (Program){pid, in[1], out[0], complaints[0]};
}

static Program start_and_wait(const char* how, const char* folder, size_t letters) {
  const Program program = start(how, folder);
  char text[2];
  for (size_t got = 0; got < letters; ++got) CHECK(read(program.out, text, 1) == 1);
  return program;
}

static int end(Program program) {
  close(program.in);
  int status = 0;
  CHECK(waitpid(program.pid, &status, 0) == program.pid);
  close(program.out);
  close(program.complaints);
  return status;
}

static void kill_now(Program program) {
  kill(program.pid, SIGKILL);
  CHECK(WIFSIGNALED(end(program)));
}

// Waits, because two programs that look at the same time leave the removal to each other. The next
// look is soon.
static void wait_until_gone(const char* path) {
  while (access(path, F_OK) == 0) usleep(10000);
}

static void run_quickly(const char* folder) { CHECK_EQUAL(end(start("quick", folder)), 0); }

// A program with this name must publish nothing, print a message, and run.
static void check_refused(const char* name) {
  const Program program = start("quick", name);
  char text[512];
  size_t used = 0;
  for (ssize_t got; (got = read(program.complaints, text + used, sizeof text - 1 - used)) > 0;)
    used += (size_t)got;
  text[used] = '\0';
  if (strstr(text, "loam: LOAM_PUBLISH: ") != text ||
      strstr(text, "nothing is published\n") == NULL) {
    dprintf(2, "%s: not refused: \"%s\"\n", name, text);
    _exit(1);
  }
  CHECK_EQUAL(end(program), 0);
}

// A program publishes by this name in that folder while it runs, and nothing is left afterwards.
static void check_published(const char* name, const char* folder) {
  const Program program = start_and_wait("stay", name, 1);
  CHECK_EQUAL(images_in(folder), 1);
  CHECK_EQUAL(end(program), 0);
  CHECK_EQUAL(images_in(folder), 0);
}

// ---- where ----

static void try_names(void) {
  const char* const folder = make_folder("own", 0700);
  check_published(folder, folder);
  check_published(in_base("own/"), folder);
  check_published(in_base("own/."), folder);
  check_published(in_base("own/../own//"), folder);
  check_published(in_base("made"), in_base("made") /* made by the program */);
}

static void try_links(const char* link) {
  static const char* const kNames[] = {"%s",       "%s/",        "%s/.",   "%s//./",
                                       "%s/below", "%s/below/.", "%s/new", "%s/../target"};
  for (size_t i = 0; i < sizeof kNames / sizeof kNames[0]; ++i) {
    char name[512];
    snprintf(name, sizeof name, kNames[i], link);
    check_refused(name);
  }
}

static void try_parents(void) {
  make_folder("for-all", 0777);
  check_refused(in_base("for-all/new"));
  make_folder("for-group", 0770);
  check_refused(in_base("for-group/new"));
  make_folder("for-group/below", 0700);
  check_refused(in_base("for-group/below/new"));
  make_folder("sticky", 01777);
  const char* const folder = make_folder("sticky/own", 0700);
  check_published(folder, folder);
  make_folder("open", 0755);
  check_refused(in_base("open"));
}

// A program of root must refuse folders that another user can change.
static void try_other_users(void) {
  make_folder("theirs", 0755);
  CHECK(chown(in_base("theirs"), kNobody, kNobody) == 0);
  check_refused(in_base("theirs/new"));
  make_folder("theirs/ours", 0700);
  check_refused(in_base("theirs/ours"));
  make_folder("closed", 0700);
  CHECK(chown(in_base("closed"), kNobody, kNobody) == 0);
  check_refused(in_base("closed"));
  make_folder("common", 01777);
  CHECK(symlink(in_base("target"), in_base("common/link")) == 0);
  CHECK(lchown(in_base("common/link"), kNobody, kNobody) == 0);
  try_links(in_base("common/link"));
  CHECK_EQUAL(images_in(in_base("target")), 0);
}

// The folder is renamed, and a link takes its place.
static void replace_the_folder(void) {
  const char* const folder = make_folder("moved", 0700);
  const Program program = start_and_wait("stay", folder, 1);
  CHECK(rename(folder, in_base("elsewhere")) == 0 && symlink(in_base("target"), folder) == 0);
  // Leaves time for a later image. The test waits for no event: it only proves that something does
  // not happen.
  usleep(600000);
  CHECK_EQUAL(end(program), 0);
  CHECK_EQUAL(images_in(in_base("target")), 0);
}

// ---- which images stay ----

static void kill_some(void) {
  const char* const folder = make_folder("left", 0700);
  const Program living = start_and_wait("stay", folder, 1);
  for (int i = 0; i < 3; ++i) kill_now(start_and_wait("stay", folder, 1));
  const Program parent = start_and_wait("fork", folder, 1);
  pid_t child;
  CHECK(read(parent.out, &child, sizeof child) == sizeof child);
  char parents[64];
  snprintf(parents, sizeof parents, "left/%d.image", (int)parent.pid);
  kill_now(parent);
  CHECK(access(in_base(parents), F_OK) == 0);
  run_quickly(folder);
  wait_until_gone(in_base(parents));
  while (images_in(folder) > 2) usleep(10000);  // the living one's, and the child's
  kill(child, SIGKILL);
  // The number does not matter. It is of another namespace, so no process here has it.
  const char* const held = in_base("left/999999999.image");
  const int file = open(held, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(file >= 0 && flock(file, LOCK_EX) == 0);
  const int dead = open(in_base("left/1.image"), O_RDWR | O_CREAT | O_CLOEXEC,
                        0600);  // the number of one that lives
  const int other = open(in_base("left/notes.image"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(dead >= 0 && other >= 0);
  run_quickly(folder);
  CHECK(access(held, F_OK) == 0);
  wait_until_gone(in_base("left/1.image"));
  CHECK(access(in_base("left/notes.image"), F_OK) == 0);
  close(file);
  close(dead);
  close(other);
  // A living program also looks from time to time.
  wait_until_gone(held);
  CHECK_EQUAL(end(living), 0);
}

static void exec_away(void) {
  const char* const folder = make_folder("exec", 0700);
  const Program program = start("exec", folder);
  // The answer shows that the program has become `cat`.
  CHECK(write(program.in, "1", 1) == 1);
  char answer;
  CHECK(read(program.out, &answer, 1) == 1);
  CHECK_EQUAL(images_in(folder), 1);
  run_quickly(folder);
  CHECK_EQUAL(images_in(folder), 0);
  CHECK_EQUAL(end(program), 0);
}

static void fork_often(void) {
  const char* const folder = make_folder("forks", 0700);
  const Program program = start_and_wait("forks", folder, 1);
  while (images_in(folder) != 1) usleep(10000);
  CHECK_EQUAL(end(program), 0);
  CHECK_EQUAL(images_in(folder), 0);
}

static void remove_base(void) {
  const pid_t pid = fork();
  if (pid == 0) {
    execlp("rm", "rm", "-rf", "--", base, (char*)NULL);
    _exit(1);
  }
  waitpid(pid, NULL, 0);
}

int main(int count, char** arguments) {
  if (count == 3 && strcmp(arguments[1], "act") == 0) return act(arguments[2]);
  alarm(280);
  snprintf(base, sizeof base, "/tmp/loam-publish-XXXXXX");
  CHECK(mkdtemp(base) != NULL && chmod(base, 0755) == 0);
  make_folder("target", 0700);
  make_folder("target/below", 0700);
  try_names();
  CHECK(symlink(in_base("target"), in_base("link")) == 0);
  try_links(in_base("link"));
  CHECK_EQUAL(images_in(in_base("target")), 0);
  CHECK_EQUAL(images_in(in_base("target/below")), 0);
  try_parents();
  if (geteuid() == 0) try_other_users();
  replace_the_folder();
  kill_some();
  exec_away();
  fork_often();
  remove_base();
  return 0;
}
