// What the race detector knows about memory: who wrote each word last and who has read it since.
//
// Two accesses by different threads are ordered when a barrier lies between them or, within a warp, a
// __syncwarp().  Unordered accesses to one byte, one of them a write, are a race.
#pragma once

#include <titan_emulator/counters.h>
#include <titan_emulator/runtime/failures.h>

namespace titan::emulator {

struct Access {
  u32 stamp = 0;  // launch.clock; 0 for none
  u16 thread = 0;
  u16 site = 0;
};

constexpr u16 ATOMIC = 0x8000;  // in Access::thread

// Two readers are enough to find every race: of different warps if any two are, else the latest of one
// warp.
struct History {
  Access write, reads[2];
};

struct Clash {
  enum Kind : unsigned char { NONE, WRITE, READ } with = NONE;
  Access other;
  explicit operator bool() const { return with != NONE; }
};

inline const BlockRecord& block_of(const Access& a) {
  return *(std::upper_bound(launch.blocks.begin(), launch.blocks.end(), a.stamp,
                            [](u32 stamp, const BlockRecord& b) { return stamp < b.begin; }) -
           1);
}

inline u16 thread_of(const Access& a) { return a.thread & ~ATOMIC; }
inline Warp* warp_of(const Access& a) { return launch.threads[thread_of(a)].warp; }
inline bool in_this_block(const Access& a) { return a.stamp >= launch.blocks.back().begin; }

// Whether `a` happens before what thread `t` does now.  Blocks are ordered only by a __threadfence() in
// the first and an atomic operation in the second.
inline bool ordered(const Access& a, const Thread& t) {
  if (a.stamp == 0) return true;
  if (!in_this_block(a)) return launch.acquired && block_of(a).fenced;
  return thread_of(a) == t.number || a.stamp < (warp_of(a) == t.warp ? t.warp->stamp : launch.barrier_stamp);
}

inline Clash find_write(const History& h, const Thread& t) {
  return ordered(h.write, t) ? Clash{} : Clash{Clash::WRITE, h.write};
}

inline void note_read(History& h, const Access& now, const Thread& t) {
  Access &a = h.reads[0], &b = h.reads[1];
  if (a.stamp == 0 || (in_this_block(a) && (thread_of(a) == t.number || a.stamp < launch.barrier_stamp))) {
    if (a.stamp < launch.barrier_stamp) b = {};
    a = now;
  } else if (in_this_block(a) && warp_of(a) == t.warp && a.stamp < t.warp->stamp) {
    a = now;
  } else if (b.stamp == 0 || !in_this_block(b) || warp_of(b) == warp_of(a)) {
    b = now;
  }
}

inline Clash on_read(History& h, const Access& now, const Thread& t) {
  const Clash clash = find_write(h, t);
  note_read(h, now, t);
  return clash;
}

// Atomic operations do not race with each other.
inline Clash on_write(History& h, const Access& now, const Thread& t) {
  const bool both_atomic = (now.thread & ATOMIC) != 0 && (h.write.thread & ATOMIC) != 0;
  Clash clash = both_atomic ? Clash{} : find_write(h, t);
  for (const Access& read : h.reads)
    if (!clash && !ordered(read, t)) clash = {Clash::READ, read};
  h.write = now;
  h.reads[0] = h.reads[1] = {};
  return clash;
}

// The histories of a stretch of memory, by word; a word that is accessed in parts gets one per byte.
class Shadow {
 public:
  Shadow(u64 base, u64 bytes) : base_(base / 4 * 4), words_((base + bytes - base_ + 3) / 4) {
    // Untouched pages cost nothing.
    void* p =
        mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw BadLaunch{"out of memory for the race detector (check=False needs none)"};
    word_ = static_cast<Word*>(p);
  }
  Shadow(Shadow&& other) noexcept { *this = std::move(other); }
  Shadow& operator=(Shadow&& other) noexcept {
    std::swap(base_, other.base_), std::swap(words_, other.words_);
    std::swap(word_, other.word_), std::swap(parts_, other.parts_);
    return *this;
  }
  ~Shadow() {
    if (word_ != nullptr) munmap(word_, size());
  }

  // Forgets everything; `bytes` says how much of it was ever used.
  void reset(u64 bytes) {
    memset(static_cast<void*>(word_), 0, (bytes + 3) / 4 * sizeof(Word));
    parts_.clear();
  }

  bool initialised(u64 address, int bytes) const {
    bool all = true;
    each_word(address, bytes, [&](u64 i, u32 mask) { all = all && (word_[i].initialised & mask) == mask; });
    return all;
  }

  Clash read(u64 address, int bytes, const Access& now, const Thread& t) {
    return each(address, bytes, 0, [&](History& h) { return on_read(h, now, t); });
  }

  Clash write(u64 address, int bytes, const Access& now, const Thread& t) {
    return each(address, bytes, 0xf, [&](History& h) { return on_write(h, now, t); });
  }

 private:
  struct Word {
    History history;
    u32 parts;        // 1 + index in parts_; 0 while the word is accessed as a whole
    u32 initialised;  // a bit per byte
  };
  struct Parts {
    History of[4];
  };

  template <class F>
  void each_word(u64 address, int bytes, F visit) const {
    u64 offset = address - base_;
    while (bytes > 0) {
      const int first = static_cast<int>(offset % 4), n = std::min(bytes, 4 - first);
      visit(offset / 4, ((1u << n) - 1) << first);
      offset += n;
      bytes -= n;
    }
  }

  template <class F>
  Clash each(u64 address, int bytes, u32 initialise, F visit) {
    Clash clash;
    each_word(address, bytes, [&](u64 i, u32 mask) {
      Word& w = word_[i];
      w.initialised |= mask & initialise;
      if (mask == 0xf && w.parts == 0) {
        if (const Clash c = visit(w.history); c && !clash) clash = c;
        return;
      }
      Parts& parts = split(w);
      for (int byte = 0; byte < 4; ++byte)
        if (mask >> byte & 1)
          if (const Clash c = visit(parts.of[byte]); c && !clash) clash = c;
    });
    return clash;
  }

  Parts& split(Word& w) {
    if (w.parts == 0) {
      parts_.push_back({{w.history, w.history, w.history, w.history}});
      w.parts = static_cast<u32>(parts_.size());
    }
    return parts_[w.parts - 1];
  }

  size_t size() const { return std::max<size_t>(words_, 1) * sizeof(Word); }

  u64 base_ = 0, words_ = 0;
  Word* word_ = nullptr;
  std::vector<Parts> parts_;
};

inline Access this_access(Site at, u16 flags = 0) {
  const Thread& t = *launch.current;
  return {t.warp->stamp, static_cast<u16>(t.number | flags), sites.number(at)};
}

inline std::string thread_name(u16 number) { return "thread " + triple(launch.threads[number].index); }

}  // namespace titan::emulator
