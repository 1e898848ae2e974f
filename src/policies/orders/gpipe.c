/*
 * GPipe: all forwards, then all backwards (Huang et al. 2019, figure 2(c)). The backward runs
 * last in, first out, as there; `backward=fifo` is the variant of most code.
 *
 * p = 4, m = 8, a backward twice as long as a forward:
 *
 *   stage 0  01234567.........7766554433221100
 *   stage 1  .01234567......7766554433221100..
 *   stage 2  ..01234567...7766554433221100....
 *   stage 3  ...012345677766554433221100......
 *
 * Makespan (m + p - 1)(f + b + w): the forwards fill and drain the pipeline once, the backwards
 * once. Each stage holds the activations of all m micro-batches.
 */
#include "policies/check.h"
#include "policies/orders/onef1b.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    char backward[16];

    if (sp_layout_option(lay, "backward", backward, sizeof backward) && strcmp(backward, "lifo") &&
        strcmp(backward, "fifo")) {
        snprintf(why, n, "backward=%s is neither lifo nor fifo", backward);
        return -EINVAL;
    }
    return sp_check_whole(lay, why, n);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches;
    char backward[16] = "lifo";
    int fifo;

    (void)stage;
    sp_layout_option(lay, "backward", backward, sizeof backward);
    fifo = !strcmp(backward, "fifo");
    for (int i = 0; i < m; i++)
        sp_program_add(prog, SP_F, i, 0);
    for (int i = 0; i < m; i++)
        sp_program_add(prog, SP_B, fifo ? i : m - 1 - i, 0);
}

const struct sp_schedule_def sp_schedule_gpipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "gpipe",
    .summary = "all forwards, then all backwards, last in first out (backward=fifo: first out)",
    .source = "GPipe (Huang et al. 2019), figure 2(c)",
    .family = "layerwise",
    .options = "backward",
    .default_chunks = 1,
    .check = check,
    .emit = emit,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m+p-1)(f+b+w), from the bubble O((p-1)/(m+p-1)) of GPipe section 2.3",
};
