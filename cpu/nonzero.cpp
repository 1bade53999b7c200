#include "thinwire/nonzero.h"

#include "sparse.h"

namespace thinwire {
namespace {

// Flags of a row first, which vectorizes; then, of eight at a time that are not all clear, the values.
template <class T, class Index> TW_HD size_t keep_nonzero(const T* __restrict u, size_t n, Index* __restrict index, T* __restrict value) {
  constexpr size_t kRow = 64;
  size_t count = 0, at = 0;
  for (; at + kRow <= n; at += kRow) {
    uint8_t flag[kRow];
    for (size_t j = 0; j < kRow; ++j) flag[j] = uint8_t(bits_of(u[at + j]) != 0);
    for (size_t j = 0; j < kRow; j += 8) {
      uint64_t eight;
      memcpy(&eight, flag + j, 8);
      if (!eight) continue;
      for (size_t k = j; k < j + 8; ++k) {
        index[count] = Index(at + k);
        value[count] = u[at + k];
        count += flag[k];
      }
    }
  }
  for (; at < n; ++at) {
    index[count] = Index(at);
    value[count] = u[at];
    count += bits_of(u[at]) != 0;
  }
  return count;
}
TW_CLONES size_t keep(const float* u, size_t n, uint32_t* index, float* value) { return keep_nonzero(u, n, index, value); }
TW_CLONES size_t keep(const double* u, size_t n, uint32_t* index, double* value) { return keep_nonzero(u, n, index, value); }
TW_CLONES size_t keep(const float* u, size_t n, uint64_t* index, float* value) { return keep_nonzero(u, n, index, value); }
TW_CLONES size_t keep(const double* u, size_t n, uint64_t* index, double* value) { return keep_nonzero(u, n, index, value); }

struct Select : Nonzero {
  static LeftOut left_out(const Params&) { return LeftOut::kFinite; }
  static size_t capacity(const Params&, size_t n) { return n; }
  template <class T, class Index> static size_t select(const Params&, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    return keep(u, n, index, value);
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(nonzero, Select)
