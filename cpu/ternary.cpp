#include "thinwire/ternary.h"

#include "block_loop.h"

TW_BLOCK_CODEC(ternary, Ternary)
