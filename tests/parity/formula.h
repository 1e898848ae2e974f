/* Bytes on the wire in a step where every stage is a process, from sizes alone. */
#ifndef SP_TESTS_PARITY_FORMULA_H
#define SP_TESTS_PARITY_FORMULA_H

#include "parity/cases.h"
#include "parity/run.h"

/* Into sent[stages]. f32 only. */
void wire_bytes(enum wire wire, const struct setup *s, int64_t *sent);

/* Messages of weight rings likewise: of the weights of each block of a layer, or their gradients, one. */
void ring_messages(const struct setup *s, int64_t *sent);

#endif
