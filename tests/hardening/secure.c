// In a privileged program (a setuid copy of this one, run by another user) no environment variable
// has an effect. A misuse ends it in spite of LOAM_ON_CORRUPTION=report. Nothing is published,
// although LOAM_PUBLISH names a folder. The other options are not read, so wrong values cause no
// message.
//
// The test needs root, and a file system that honours the setuid bit; otherwise it is skipped.
#include <grp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../preload/check.h"

enum { kNobody = 65534 };

// The body of the privileged copy. It never returns 0.
static int act(void) {
  if (getauxval(AT_SECURE) == 0) return 77;
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  char* const block = opaque(malloc(24));
  // LOAM_HARDEN=canary would find this.
  *(volatile char*)(block + 24) = 0;
  free(block);
  free(opaque(block));
  return 0;
}

static int run_as(const char* program, unsigned user, char* text, size_t size) {
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    dup2(pipes[1], 2);
    if (setgroups(0, NULL) != 0 || setgid(user) != 0 || setuid(user) != 0) _exit(77);
    execl(program, program, "act", (char*)NULL);
    _exit(77);
  }
  close(pipes[1]);
  read_all(pipes[0], text, size);
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  return status;
}

static void copy(const char* from, const char* to) {
  const int in = open(from, O_RDONLY | O_CLOEXEC),
            out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  CHECK(in >= 0 && out >= 0);
  static char buffer[1 << 16];
  ssize_t got;
  while ((got = read(in, buffer, sizeof buffer)) > 0) CHECK(write(out, buffer, (size_t)got) == got);
  // The bit is set after the writes, because they would remove it.
  CHECK(fchown(out, 0, 0) == 0 && fchmod(out, 04755) == 0);
  close(in);
  close(out);
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "act") == 0) return act();
  if (geteuid() != 0) SKIP("only root can make a setuid copy");
  char folder[] = "/tmp/loam-secure-XXXXXX", program[64], published[64];
  CHECK(mkdtemp(folder) != NULL && chmod(folder, 0755) == 0);
  snprintf(program, sizeof program, "%s/program", folder);
  snprintf(published, sizeof published, "%s/published", folder);
  copy("/proc/self/exe", program);
  // The folder is root's own, so a plain program of root could publish there.
  CHECK(mkdir(published, 0700) == 0);
  setenv("LOAM_ON_CORRUPTION", "report", 1);
  setenv("LOAM_HARDEN", "canary", 1);
  setenv("LOAM_CHECK_FREE", "nonsense", 1);
  setenv("LOAM_SAMPLE", "nonsense", 1);
  setenv("LOAM_BACKGROUND_PURGE", "nonsense", 1);
  setenv("LOAM_HUGE_PAGES", "nonsense", 1);
  setenv("LOAM_PUBLISH", published, 1);
  char text[4096];
  const int status = run_as(program, kNobody, text, sizeof text);
  const bool empty = rmdir(published) == 0;
  unlink(program);
  rmdir(folder);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("the setuid bit has no effect here");
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT ||
      strstr(text, "loam: double free") != text || strchr(text, '\n') != text + strlen(text) - 1) {
    dprintf(2, "wait status 0x%x, wanted SIGABRT and one line about a double free: %s\n",
            (unsigned)status, text);
    return 1;
  }
  CHECK(empty);
  return 0;
}
