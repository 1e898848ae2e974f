/*
 * Notes between ranks that are threads of one process: struct sp_wire without MPI. Notes come late and in
 * bunches, in order between two ranks and in any order between others.
 */
#ifndef SP_TESTS_FAKE_WIRE_H
#define SP_TESTS_FAKE_WIRE_H

#include "transport/nccl/nccl_wire.h"

/* The wires of `size` ranks, to be freed after all were closed. */
struct sp_wire *fake_wires(int size, uint64_t seed);
struct sp_wire *fake_wire(struct sp_wire *wires, int rank);
void fake_wires_free(struct sp_wire *wires);

#endif
