#ifndef SP_EMULATED_BF16_H
#define SP_EMULATED_BF16_H

#include "kernels/backend.h"

/* The CPU's bf16 table with products and the head on f32 copies of whole arrays: they compute with
 * the f32 kernel and round its results, which defines what bf16 kernels must give. */
const struct sp_backend *emulated_bf16(void);

#endif
