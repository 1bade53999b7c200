#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

struct TopK {
  struct __attribute__((packed, aligned(4))) Params { double ratio; int64_t k; int32_t codec; uint8_t then[64]; };
  static LeftOut left_out(const Params&) { return LeftOut::kSmaller; }
  static size_t capacity(const Params& p, size_t n) { return wanted(p.ratio, p.k, n); }
  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    return top_k<Order::magnitude>(u, n, wanted(p.ratio, p.k, n), index, value);
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(topk, TopK)
