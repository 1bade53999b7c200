#include "thinwire/mx.h"

#include "block_loop.h"

TW_BLOCK_CODEC_OF(mx, Mx<float>, Mx<double>)
