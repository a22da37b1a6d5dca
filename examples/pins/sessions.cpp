// A server that remembers a little of each request: a case for `loam pins` (docs/pins.md).
//
//   c++ -std=c++17 -O2 -g examples/pins/sessions.cpp -o sessions
//   ./sessions          each session's blocks lie among those of its request, which go
//   ./sessions apart    sessions have a pool of their own
//
// It prints what is resident after the rush, and waits for the end of its input.
#include <malloc.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

using Text = std::pmr::string;

struct Session {
  using allocator_type = std::pmr::polymorphic_allocator<char>;

  explicit Session(allocator_type memory) : user(memory), token(memory) {}
  Session(Session&& other, allocator_type memory)
      : user(std::move(other.user), memory), token(std::move(other.token), memory) {}

  Text user;
  Text token;
};

class Sessions {
 public:
  explicit Sessions(std::pmr::memory_resource* memory) : sessions_(memory) {}

  void remember(unsigned long number) {
    Session& session = sessions_[number];
    session.user.assign("user number ");
    session.user.append(std::to_string(number).c_str());
    session.user.append(" of the morning");
    session.token.assign(64, static_cast<char>('a' + number % 26));
  }

 private:
  std::pmr::unordered_map<unsigned long, Session> sessions_;
};

// A request in flight: rows of an answer, each a string of its own.
struct Request {
  std::vector<std::string> rows;
};

static Request serve(unsigned long number, Sessions& sessions) {
  Request request;
  for (unsigned long row = 0; row < 100; ++row) {
    request.rows.emplace_back(100 + (number * 7 + row * 13) % 150, 'r');
    if (row == 50) sessions.remember(number);
  }
  return request;
}

static double resident_mib() {
  long size = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

int main(int count, char** arguments) {
  bool apart = count > 1 && std::strcmp(arguments[1], "apart") == 0;
  std::pmr::unsynchronized_pool_resource pool(std::pmr::pool_options{4096, 512});
  Sessions sessions(apart ? &pool : std::pmr::new_delete_resource());
  {
    // The rush: all of these requests are in flight at once.
    std::vector<Request> rush;
    for (unsigned long number = 0; number < 16000; ++number)
      rush.push_back(serve(number, sessions));
    std::printf("in the rush     %6.1f MiB\n", resident_mib());
  }
  std::printf("after the rush  %6.1f MiB\n", resident_mib());
  malloc_trim(0);
  std::printf("after a trim    %6.1f MiB\n", resident_mib());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}
