#include "thinwire/block_int.h"

#include "block_loop.h"

TW_BLOCK_CODEC(block_int, BlockInt)
