// A translation unit that is heavy on headers and templates: a JSON library in a header, regular
// expressions, ranges, variants. What the compiled program prints is compared as well.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <ranges>
#include <regex>
#include <sstream>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

template <int N>
struct Fibonacci {
  static constexpr unsigned long value = Fibonacci<N - 1>::value + Fibonacci<N - 2>::value;
};
template <>
struct Fibonacci<1> {
  static constexpr unsigned long value = 1;
};
template <>
struct Fibonacci<0> {
  static constexpr unsigned long value = 0;
};

using Shape = std::variant<int, double, std::string, std::vector<int>, std::map<std::string, int>>;

std::string describe(const Shape& shape) {
  return std::visit(
      [](const auto& value) {
        std::ostringstream out;
        if constexpr (requires { value.size(); }) {
          out << "a container of " << value.size();
        } else {
          out << "the number " << value;
        }
        return out.str();
      },
      shape);
}

}  // namespace

int main() {
  nlohmann::json document = {{"fibonacci", Fibonacci<80>::value},
                             {"shapes", nlohmann::json::array()}};
  for (const Shape& shape : {Shape{1}, Shape{2.5}, Shape{std::string("three")},
                             Shape{std::vector<int>{4, 5}}, Shape{std::map<std::string, int>{}}}) {
    document["shapes"].push_back(describe(shape));
  }
  std::mt19937 generator(1);
  std::unordered_map<int, std::vector<double>> table;
  for (int i = 0; i < 1000; ++i) table[i % 17].push_back(static_cast<double>(generator() % 1000));
  for (auto& [key, values] : table) std::ranges::sort(values, std::greater<>{});
  for (const int key : std::views::iota(0, 17)) {
    document["table"][std::to_string(key)] =
        std::accumulate(table[key].begin(), table[key].end(), 0.0);
  }
  const std::regex word("[a-z]+([0-9]+)");
  document["replaced"] = std::regex_replace("alpha1 beta22 gamma333", word, "<$1>");
  const nlohmann::json again = nlohmann::json::parse(document.dump(2));
  std::cout << again.dump(2) << '\n';
  return again == document ? 0 : 1;
}
