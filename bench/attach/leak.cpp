// The same in C++: lose_session() fills a map that nobody empties; serve() makes and drops vectors
// and strings.
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

struct Session {
  std::string name;
  std::vector<char> room;
};

static std::map<unsigned long, Session> sessions;
static std::vector<std::string> kept(1000);

__attribute__((noinline)) void lose_session(std::size_t block) {
  const unsigned long number = sessions.size();
  sessions[number] = Session{std::string(40, 'x'), std::vector<char>(block, 'y')};
}

__attribute__((noinline)) void serve(unsigned& seed) {
  seed = seed * 1103515245u + 12345u;
  kept[(seed >> 8) % kept.size()] = std::string(16 + (seed >> 12) % 2000, 'z');
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const double rate = std::atof(arguments[1]), calls = std::atof(arguments[3]);
  const std::size_t block = std::strtoul(arguments[2], nullptr, 10);
  unsigned seed = 1;
  const auto begun = std::chrono::steady_clock::now();
  double leaked = 0, served = 0;
  for (;;) {
    const double passed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    for (; leaked + block <= passed * rate; leaked += block) lose_session(block);
    if (served < passed * calls - 100000) served = passed * calls - 100000;
    for (int i = 0; i < 10000 && served < passed * calls; i++, served++) serve(seed);
    if (served >= passed * calls) std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}
