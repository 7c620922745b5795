// TITAN_KERNEL: the kernels of a unit and how their arguments arrive.
#pragma once

#include <titan_emulator/global_memory.h>

enum TitanKind : titan::i32 {
  TITAN_INT,
  TITAN_FLOAT,
  TITAN_POINTER,
  TITAN_INTS,
  TITAN_FLOATS,
  TITAN_POINTERS
};

// What Python passes for one parameter.
struct TitanArgument {
  titan::i32 kind;           // TitanKind
  titan::i32 count;          // of values; one unless it is an array
  const titan::u64* values;  // integers, bits of floats, addresses
  const titan::u64* bytes;   // pointers: extent of the tensor
  const titan::i32* item;    // pointers: size of the tensor's elements
};

namespace titan::emulator {

constexpr size_t PARAMETER_BYTES_LIMIT = 4096;

// Takes one argument after the other; tensors become allocations.
class Binder {
 public:
  Binder(const TitanArgument* arguments, std::vector<std::string> names)
      : arguments_(arguments), names_(std::move(names)) {}

  const TitanArgument& take(TitanKind kind, i32 count);
  // Of value `i` of the argument taken last.
  const Allocation* allocate(const TitanArgument& a, i32 i, i32 item) const;
  [[noreturn]] void does_not_fit(i64 x, int bits) const;

 private:
  const std::string& name() const { return names_[next_ - 1]; }

  const TitanArgument* arguments_;
  std::vector<std::string> names_;
  size_t next_ = 0;
};

// How arguments become parameters of a type.
template <class T>
struct Parameter;

template <class T>
struct IntegerParameter {
  static constexpr TitanKind KIND = TITAN_INT, ARRAY_KIND = TITAN_INTS;
  static constexpr size_t BYTES = sizeof(T);
  static T read(Binder& b, const TitanArgument& a, i32 i) {
    const i64 x = static_cast<i64>(a.values[i]);
    if (static_cast<i64>(static_cast<T>(x)) != x) b.does_not_fit(x, 8 * sizeof(T));
    return static_cast<T>(x);
  }
};
template <>
struct Parameter<int> : IntegerParameter<int> {};
template <>
struct Parameter<i64> : IntegerParameter<i64> {};

template <>
struct Parameter<float> {
  static constexpr TitanKind KIND = TITAN_FLOAT, ARRAY_KIND = TITAN_FLOATS;
  static constexpr size_t BYTES = 4;
  static float read(Binder&, const TitanArgument& a, i32 i) {
    return a.kind == TITAN_INT ? static_cast<float>(static_cast<i64>(a.values[i]))
                               : bits_float(static_cast<u32>(a.values[i]));
  }
};

template <class T>
struct Parameter<Global<T>> {
  static constexpr TitanKind KIND = TITAN_POINTER, ARRAY_KIND = TITAN_POINTERS;
  static constexpr size_t BYTES = 8;
  static Global<T> read(Binder& b, const TitanArgument& a, i32 i) {
    return Global<T>(a.values[i], b.allocate(a, i, sizeof(T)));
  }
};

// One parameter from one argument.
template <class T>
struct Reader {
  static constexpr size_t BYTES = Parameter<T>::BYTES;
  static T read(Binder& b) {
    const TitanArgument& a = b.take(Parameter<T>::KIND, 1);
    return Parameter<T>::read(b, a, 0);
  }
};

template <class T, int N>
struct Reader<Array<T, N>> {
  static constexpr size_t BYTES = N * Parameter<T>::BYTES;
  static Array<T, N> read(Binder& b) {
    const TitanArgument& a = b.take(Parameter<T>::ARRAY_KIND, N);
    Array<T, N> out;
    for (int i = 0; i < N; ++i) out.v[i] = Parameter<T>::read(b, a, i);
    return out;
  }
};

struct Kernel {
  const char* name;
  unsigned max_threads;
  const char* parameters;  // as written in the source
  size_t parameter_count;
  void* (*bind)(Binder&);
  void (*release)(void*);
  void (*invoke)(const void*);
};

template <auto FUNCTION>
struct Thunk;

template <class... P, void (*FUNCTION)(P...)>
struct Thunk<FUNCTION> {
  static_assert((0 + ... + Reader<P>::BYTES) <= PARAMETER_BYTES_LIMIT,
                "kernel parameters are limited to 4 KB");
  using Values = std::tuple<P...>;

  // Braces: arguments are read from left to right.
  static void* bind([[maybe_unused]] Binder& b) { return new Values{Reader<P>::read(b)...}; }
  static void release(void* values) { delete static_cast<Values*>(values); }
  static void invoke(const void* values) { std::apply(FUNCTION, *static_cast<const Values*>(values)); }
  static Kernel describe(const char* name, unsigned max_threads, const char* parameters) {
    return {name, max_threads, parameters, sizeof...(P), bind, release, invoke};
  }
};

inline std::vector<Kernel> kernels;

struct Registration {
  explicit Registration(const Kernel& kernel) { kernels.push_back(kernel); }
};

}  // namespace titan::emulator

#define TITAN_KERNEL(name, threads, params, ...)                    \
  static void name params { __VA_ARGS__; }                          \
  static const ::titan::emulator::Registration name##_registration( \
      ::titan::emulator::Thunk<&name>::describe(#name, threads, #params));
