// The table of CPU rows. A row's place is its codec's number in a frame, so rows are only ever added at the end.
#include "thinwire/parallel.h"

#define TW_CODECS(X) X(raw) X(bf16) X(fp16) X(fp8_e4m3) X(fp8_e5m2) X(block_int) X(mx) X(sign) X(ternary) X(natural) X(hadamard) X(mean) X(nonzero) \
  X(topk) X(clt_k) X(randomk) X(threshold) X(sidco) X(redsync) X(sbc) X(adacomp) X(blocktopk) X(range_float) X(lossless)

namespace thinwire {
#define TW_DECLARE(name) extern const Codec name##_row;
TW_CODECS(TW_DECLARE)
#define TW_ENTRY(name) &name##_row,
const Codec* const kCodecs[] = {TW_CODECS(TW_ENTRY)};
const size_t kCodecCount = sizeof kCodecs / sizeof *kCodecs;
}  // namespace thinwire
