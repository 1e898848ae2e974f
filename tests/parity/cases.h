/*
 * The cases: one run each, in one process or in several, and what must hold of it. Every run must
 * have the losses, norms and first gradients of one stage within `bar`, the bits of every other run
 * of the same case, no activations after a step, and peaks and buffers within the plan.
 */
#ifndef SP_TESTS_PARITY_CASES_H
#define SP_TESTS_PARITY_CASES_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_CASES = 400, MOST_PROCESSES = 4 };

/* Bits of `processes`. */
#define ALONE (1u << 1)
#define PROCESSES(n) (1u << (n))

/* A formula for the bytes that every stage sends when each has a process of its own. */
enum wire { WIRE_ANY, WIRE_HELIX, WIRE_RING, WIRE_SHARDS };

struct parity_case {
    char options[256];  /* of `starpipe train` */
    unsigned processes; /* how many run it */
    double bar;         /* relative */
    double updated_bar; /* of losses and norms after an update; 0: bar */
    double weights_bar; /* of the weights after the last step; 0: not compared */
    enum wire wire;
    double kept;       /* micro-batches (16bshL) of which each stage holds the activations at its
                         * peak, within 0.1; 0: not checked */
    int flat_from;     /* step after which buffers stay as they are; 0: not checked */
    int undone[2];     /* with --post-validation: at least, at most so many steps */
    bool halves;       /* with --dtype bf16: about half the bytes of f32 are sent and held */
    bool twice;        /* runs once more, with the same bits */
    bool unreferenced; /* only memory and the wire are looked at: a long sequence */
    bool loose_norms;  /* squares are added up as blocks close: norms have other bits */
    bool own_bits;     /* sums come in another order in other processes */
};

struct cases {
    int n;
    struct parity_case at[MOST_CASES];
};

/* Adds `like` with options as printf formats them; bar 0: 1e-5. */
void add_case(struct cases *c, struct parity_case like, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* SP_LONG=1: runs all cases of the tables, not only those that find bugs soonest. */
bool is_long(void);

/* The groups. */
void schedule_cases(struct cases *c);
void helix_cases(struct cases *c);
void weight_cases(struct cases *c);
void slice_cases(struct cases *c);
void bf16_cases(struct cases *c);
void fp8_cases(struct cases *c);
void barrier_cases(struct cases *c);
void vocabulary_cases(struct cases *c);

#endif
