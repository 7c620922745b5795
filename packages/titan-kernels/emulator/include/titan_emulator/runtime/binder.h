// Python's arguments for a kernel's parameters.
#pragma once

#include <titan_emulator/registry.h>
#include <titan_emulator/runtime/shared_checks.h>

namespace titan::emulator {

// Integers serve as floats, and an array that holds nothing is of any kind.
inline bool fits(const TitanArgument& a, TitanKind kind) {
  if (a.kind == kind) return true;
  if (kind == TITAN_FLOAT) return a.kind == TITAN_INT;
  return a.kind == TITAN_INTS && kind > TITAN_INTS &&
         std::all_of(a.values, a.values + a.count, [](u64 x) { return x == 0; });
}

const TitanArgument& Binder::take(TitanKind kind, i32 count) {
  static const char* const words[] = {"an integer",      "a float",       "a tensor",
                                      "packed integers", "packed floats", "packed tensors"};
  const TitanArgument& a = arguments_[next_++];
  if (!fits(a, kind))
    throw BadLaunch{"parameter `" + name() + "` takes " + words[kind] + ", but got " + words[a.kind]};
  if (a.count != count)
    throw BadLaunch{"parameter `" + name() + "` is an array of " + std::to_string(count) +
                    ", but the argument's capacity is " + std::to_string(a.count)};
  return a;
}

const Allocation* Binder::allocate(const TitanArgument& a, i32 i, i32 item) const {
  const std::string label = a.kind == TITAN_POINTER ? name() : name() + "[" + std::to_string(i) + "]";
  const bool null = a.values[i] == 0;
  if (!null && a.item[i] != item)
    throw BadLaunch{"parameter `" + label + "` points to elements of " + plural(item, "byte") +
                    ", but the tensor's elements have " + plural(a.item[i], "byte") +
                    " (view it as another dtype)"};
  return regions.add({a.values[i], null ? 0 : a.bytes[i], label});
}

void Binder::does_not_fit(i64 x, int bits) const {
  throw BadLaunch{"parameter `" + name() + "` (" + std::to_string(x) + ") does not fit in " +
                  std::to_string(bits) + " bits"};
}

// "(Global<const float> x, Array<i64, 4> sizes)" -> x, sizes
inline std::vector<std::string> parameter_names(const char* parameters) {
  std::vector<std::string> names;
  std::string word;
  int depth = 0;
  for (const char* p = parameters; *p; ++p) {
    const bool part_of_word = isalnum(static_cast<unsigned char>(*p)) || *p == '_';
    if (part_of_word && (p == parameters || !(isalnum(static_cast<unsigned char>(p[-1])) || p[-1] == '_')))
      word.clear();
    if (part_of_word) word += *p;
    if (depth == 1 && (*p == ',' || *p == ')') && !word.empty()) names.push_back(word);
    depth += *p == '(' || *p == '<';
    depth -= *p == ')' || *p == '>';
  }
  return names;
}

}  // namespace titan::emulator
