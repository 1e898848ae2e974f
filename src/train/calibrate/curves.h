/* The curves of a machine: products, attention, what memory bounds. */
#ifndef SP_CALIBRATE_CURVES_H
#define SP_CALIBRATE_CURVES_H

#include "plan/machine/machine.h"
#include "train/calibrate/bench.h"

/* `most`: sizes up to this one, operations of products and bytes of the others; 0: any. */
void sp_measure_products(struct sp_bench *b, enum sp_dtype dtype, double most, struct sp_curve *c);
void sp_measure_attention(struct sp_bench *b, enum sp_dtype dtype, enum sp_attention_pass pass,
                          double most, struct sp_curve *c);
void sp_measure_memory(struct sp_bench *b, double most, struct sp_curve *c);

#endif
