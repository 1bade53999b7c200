// Memory that kernels work in: a stack a thread, which grows to what its thread needs and stays, so that repeating a call allocates nothing.
#pragma once
#include <cstddef>
#include <cstdlib>

namespace thinwire {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  ~Arena() { release(); }
  static Arena& of_thread() {
    static thread_local Arena arena;
    return arena;
  }

 private:
  friend class Scratch;
  static constexpr size_t kAlign = 64, kLeast = size_t(1) << 20;
  static constexpr int kBlocks = 48;                 // each is at least as large as all before it together
  struct Block { unsigned char* memory; size_t size; };
  struct Mark { int blocks; size_t used; };          // the block in use and how much of it; those before it are full
  Block blocks_[kBlocks] = {};
  int made_ = 0, depth_ = 0;
  Mark top_ = {0, 0};

  void* take(size_t bytes) {
    if (bytes > (size_t(1) << 60)) return nullptr;
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    while (top_.blocks < made_ && bytes > blocks_[top_.blocks].size - top_.used) top_ = {top_.blocks + 1, 0};
    if (top_.blocks == made_ && !grow(bytes)) return nullptr;
    void* const p = blocks_[top_.blocks].memory + top_.used;
    top_.used += bytes;
    return p;
  }
  bool grow(size_t bytes) {
    if (made_ == kBlocks) return false;
    size_t size = kLeast;
    for (int i = 0; i < made_; ++i) size += blocks_[i].size;
    if (size < bytes) size = bytes;
    auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(kAlign, size / kAlign * kAlign));
    if (!memory) return false;
    blocks_[made_++] = {memory, size / kAlign * kAlign};
    return true;
  }
  void release() {
    while (made_) std::free(blocks_[--made_].memory);
    top_ = {0, 0};
  }
  // One block for all that the call took in several, so that the next one finds its memory in one place. If there is no such block, there are none.
  void settle() {
    if (made_ < 2) return;
    size_t size = 0;
    for (int i = 0; i < made_; ++i) size += blocks_[i].size;
    release();
    grow(size);
  }
};

// What a scope takes; given back at its end. Scopes nest.
class Scratch {
 public:
  Scratch() : arena_(Arena::of_thread()), mark_(arena_.top_) { ++arena_.depth_; }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    arena_.top_ = mark_;
    if (--arena_.depth_ == 0) arena_.settle();
  }
  // Room for n of T, aligned to 64 bytes and not initialized; null if there is no memory.
  template <class T> T* take(size_t n) {
    return n > (size_t(1) << 60) / sizeof(T) ? nullptr : static_cast<T*>(arena_.take(n * sizeof(T)));
  }

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace thinwire
