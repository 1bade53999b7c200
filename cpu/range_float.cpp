#include "thinwire/range_float.h"

#include "block_loop.h"

TW_BLOCK_CODEC(range_float, RangeFloat)
