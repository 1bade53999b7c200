// nonzero: keeps every value whose bits are not all zero (so -0 is kept). What it leaves out is +0, which is what a decoder puts there.
#pragma once
#include "thinwire/sparse.h"

namespace thinwire {

struct Nonzero {
  struct Params { int32_t codec; uint8_t then[64]; };
  static_assert(sizeof(Params) == 68);
};

}  // namespace thinwire
