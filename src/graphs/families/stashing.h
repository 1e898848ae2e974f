/* The weights of an op where every micro-batch updates them (stashing.c). */
#ifndef SP_STASHING_H
#define SP_STASHING_H

#include "graphs/op.h"

/* The op computes with the newest weights of its stage, or, a backward, with those of its forward. */
void sp_stashing_use(struct sp_op_ctx *c);

#endif
