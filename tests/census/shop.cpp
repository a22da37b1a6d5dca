// Knows its own objects and what it lost on purpose, for the census. With an argument it allocates
// on for ever.
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
namespace shop {
struct Session {
  virtual ~Session() {}
  std::string name;
  std::vector<double> values;
  long n = 0;
};
struct Shape {
  virtual ~Shape() {}
  virtual int area() const { return 0; }
};
struct Circle : Shape {
  int r = 3;
  char pad[120] = {};
};
struct Poly : Shape {
  std::vector<int> points;
};
struct Left {
  virtual ~Left() {}
  long a = 1;
  char room[40] = {};
};
struct Node {
  Node* next = nullptr;
  char text[56] = "a node of a lost list";
};
/// Two tags share each list of numbers.
struct Tag {
  virtual ~Tag() {}
  long* shared = nullptr;
};
/// In a list's nodes, so that the table of virtual functions is not the first word of a block.
struct Visit {
  virtual ~Visit() {}
  long when = 7;
};
/// A variable that is an object.
struct Stock {
  virtual ~Stock() {}
  std::vector<long> items;
};
/// Its numbers begin with element 1, and it points to where element 0 would be.
struct Grid {
  virtual ~Grid() {}
  double* numbers = new double[1000] - 1;
};
Grid* grid;
Stock stock;
std::vector<Tag*> tags;
std::list<Visit> visits;
std::unordered_map<long, std::unique_ptr<Session>> sessions;
std::list<Poly*> polys;
static std::vector<Shape*> shapes;
}  // namespace shop
using namespace shop;
struct Ops {
  void (*open)(void*);
  void (*close)(void*);
};
static void nothing(void*) {}
extern "C" const Ops file_ops = {nothing, nothing};
struct File {
  const Ops* ops;
  char data[72];
};
File* files[1000];
extern "C" void __lsan_do_leak_check() __attribute__((weak));
/// The compiler must not leave out what nobody reads.
static void keep(void* block) { asm volatile("" : : "r"(block) : "memory"); }
__attribute__((noinline)) static void lose() {
  for (int i = 0; i < 3000; i++) {
    keep(new Left);
  }
  for (int i = 0; i < 100; i++) {
    Node* head = nullptr;
    for (int j = 0; j < 20; j++) {
      auto* n = new Node;
      n->next = head;
      head = n;
    }
    keep(head);
  }
  for (int i = 0; i < 50; i++) {
    Node* a = new Node;
    Node* b = new Node;
    a->next = b;
    b->next = a;
    keep(a);
  }
}
__attribute__((noinline)) static void scrub() {
  volatile char room[65536];
  for (unsigned i = 0; i < sizeof room; i++) room[i] = 0;
}
int main(int argc, char**) {
  for (long i = 0; i < 6000; i++) {
    auto s = std::make_unique<Session>();
    s->name = "a session of a customer whose name is long " + std::to_string(i);
    s->values.assign(200, i * 1.5);
    sessions[i] = std::move(s);
  }
  for (int i = 0; i < 20000; i++) {
    auto* p = new Poly;
    p->points.assign(20, i);
    polys.push_back(p);
  }
  for (int i = 0; i < 20000; i++) shapes.push_back(new Circle);
  for (int i = 0; i < 1000; i++) {
    files[i] = (File*)calloc(1, sizeof(File));
    files[i]->ops = &file_ops;
  }
  for (int i = 0; i < 100; i++) {
    auto* shared = new long[1000];
    std::fill(shared, shared + 1000, 1L << 50);
    for (int j = 0; j < 2; j++) {
      tags.push_back(new Tag);
      tags.back()->shared = shared;
    }
  }
  for (int i = 0; i < 300; i++) visits.emplace_back();
  stock.items.assign(10000, 3);
  grid = new Grid;
  std::thread other([] {
    std::vector<Shape*> own;
    for (int i = 0; i < 500; i++) own.push_back(new Circle);
    for (;;) {
      pause();
      if (own.empty()) break;
    }
  });
  std::thread loser(lose);
  loser.join();
  lose();
  scrub();
  puts("ready");
  fflush(stdout);
  if (argc > 1 && __lsan_do_leak_check != nullptr) __lsan_do_leak_check();
  if (argc > 1) {
    for (;;) {
      usleep(1000);
      sessions[random()] = std::make_unique<Session>();
      keep(new Left);
    }
  }
  for (;;) pause();
}
