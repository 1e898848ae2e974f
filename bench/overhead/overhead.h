#ifndef SP_BENCH_OVERHEAD_H
#define SP_BENCH_OVERHEAD_H

/* How long every task spins in place of its mathematics. */
extern double bench_spin_us;

#endif
