// The input of a compiler: little code of its own, and the heaviest headers of the standard
// library.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

int main(int count, char** words) {
  std::map<std::string, std::vector<int>> places;
  for (int i = 0; i < count; ++i) places[words[i]].push_back(i);
  const std::regex pattern("a*b");
  std::cout << std::regex_match(words[0], pattern);
  std::unordered_map<int, std::string> names;
  names[1] = "x";
  std::vector<std::function<int(int)>> steps;
  steps.push_back([&](int value) { return value + count; });
  std::sort(words, words + count);
  return steps[0](3) + static_cast<int>(names.size() + places.size());
}
