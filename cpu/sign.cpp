#include "thinwire/sign.h"

#include "block_loop.h"

TW_BLOCK_CODEC(sign, Sign)
