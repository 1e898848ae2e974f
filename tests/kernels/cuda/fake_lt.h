/*
 * A cuBLASLt on host memory: what call_cuda.c says to it, in column-major loops. It refuses what
 * the real one's documentation forbids, and notes the first breach of a promise: an address less
 * aligned than the heuristics were told, an algorithm of another product, sums in bf16.
 */
#ifndef SP_TESTS_FAKE_LT_H
#define SP_TESTS_FAKE_LT_H

#include <cublasLt.h>
#include <stdbool.h>

enum { SP_FAKE_ALGOS = 10 };

struct sp_fake_lt {
    cublasStatus_t create_status;
    /* ---- what the heuristics answer ---- */
    int algos;            /* this many, each with a sum of its own order */
    int first;            /* the first of them, the others follow */
    unsigned no_epilogue; /* none for an epilogue with one of these bits */
    bool no_fp8;
    /* ---- how algorithms run ---- */
    unsigned refuse;          /* bit i: algorithm i is named but refuses to run */
    double us[SP_FAKE_ALGOS]; /* microseconds of each */
    double epilogue_us;       /* more for one other than the bias */
    double cold_us;           /* all take three times as long until the clock shows so much */
    int slow_from, slow_to;   /* these runs take ten times as long, as something else ran */
    unsigned fails_again;     /* bit i: algorithm i runs once, and then not any more */
    /* ---- what happened ---- */
    int asked, runs, live;   /* heuristics, products, descriptors alive */
    int fp8_runs, fast_runs; /* products in fp8, those of them that may add up less exactly */
    int last_algo;
    unsigned last_epilogue;
    int last_first_type, last_compute;
    char breach[160];
};

extern struct sp_fake_lt sp_fake_lt;

/* Eight algorithms, the first the fastest; every epilogue. */
void sp_fake_lt_reset(void);

#endif
