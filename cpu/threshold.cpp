#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

struct Threshold {
  struct __attribute__((packed, aligned(4))) Params { double threshold; int32_t codec; uint8_t then[64]; };
  static LeftOut left_out(const Params&) { return LeftOut::kFinite; }
  static size_t capacity(const Params&, size_t n) { return n; }
  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    return filter<Order::magnitude>(u, 0, n, key_from<T>(p.threshold), index, value);
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(threshold, Threshold)
