/* Tables 1 and 2 of HelixPipe: operations, sizes and bubbles without a machine. */
#ifndef SP_REPRODUCE_HELIXPIPE_H
#define SP_REPRODUCE_HELIXPIPE_H

#include "cli/reproduce/paper.h"
#include "cli/reproduce/theory.h"

/* Of a layer's parts, in forwards of pre-attention: the figures of the paper. */
#define SP_HELIXPIPE_COSTS "pre=1,attn=3,post=2"

int sp_helixpipe_table_1(struct sp_cell *cell);
int sp_helixpipe_table_1_memory(struct sp_cell *cell);
int sp_helixpipe_table_2(struct sp_cell *cell);

#endif
