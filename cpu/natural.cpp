#include "thinwire/natural.h"

#include "block_loop.h"

TW_BLOCK_CODEC(natural, Natural)
