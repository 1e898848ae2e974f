/*
 * Steps without a barrier between them: with no clipping, with some steps clipped and undone, and with
 * all of them, losses, weights and moments have the bits that steps with barriers give. The first step
 * ends at a barrier, for its gradients are looked at, and so does the last: of 7, 5 may be undone.
 */
#include "parity/cases.h"
#include <string.h>

enum { STEPS = 7, ALL = STEPS - 2 };

void barrier_cases(struct cases *c)
{
    static const struct {
        unsigned processes;
        int least, most; /* undone */
        const char *options;
    } runs[] = {
        {ALONE, 0, 0, "--schedule 1f1b --stages 4 --clip 1e9"},
        {ALONE, 0, 0, "--schedule 1f1b --stages 4 --clip 0"},
        {ALONE, 1, ALL - 1, "--schedule 1f1b --stages 4 --clip 2.5"},
        {ALONE | PROCESSES(2), ALL, ALL, "--schedule zb1p --stages 4 --clip 0.1"},
        {ALONE, ALL, ALL, "--schedule zb2p --stages 3 --clip 0.1 --scheduler ready"},
        {ALONE, ALL, ALL, "--schedule gpipe --stages 2 --clip 0.1 --recompute full"},
        {ALONE, ALL, ALL, "--schedule interleaved --stages 2 --clip 0.1"},
        {ALONE, ALL, ALL, "--schedule dualpipe --stages 2 --clip 0.1"},
        {ALONE | PROCESSES(2), ALL, ALL, "--schedule seq1f1b --stages 2 --slices 3 --clip 0.1"},
        {PROCESSES(2), ALL, ALL, "--schedule zbv --stages 4 --clip 0.1"},
        {PROCESSES(4), ALL, ALL, "--schedule dualpipe --stages 4 --micro-batches 8 --clip 0.1"},
        /* half of the processes have no norms to add up; their reports wait for the ops all the same */
        {PROCESSES(2), ALL, ALL, "--schedule chimera --stages 4 --micro-batches 8 --clip 0.1"},
        {ALONE, 0, 0, "--schedule wzb2 --stages 4 --micro-batches 8 --clip 0"},
        {ALONE | PROCESSES(4), 1, ALL - 1, "--schedule wzb2 --stages 4 --micro-batches 8 --clip 3"},
        {ALONE, ALL, ALL,
         "--schedule weipipe:flow=line --stages 4 --micro-batches 8 --clip 0.1 --recompute full"},
        {PROCESSES(3), ALL, ALL,
         "--schedule wzb2:owner=each --stages 4 --micro-batches 8 --clip 0.1"},
        {ALONE | PROCESSES(3), 1, ALL - 1,
         "--schedule wzb1 --stages 3 --micro-batches 7 --clip 2.5"},
        {PROCESSES(2), ALL, ALL,
         "--schedule weipipe:flow=line --stages 2 --chunks 3 --micro-batches 5 --clip 0.1"},
        /* forwards on stages that attention and its weights came to */
        {ALONE | PROCESSES(4), ALL, ALL,
         "--schedule helix:qkv=weights --stages 4 --micro-batches 8 --clip 0.1"},
        {PROCESSES(2), 1, ALL - 1,
         "--schedule helix:qkv=activations --stages 4 --clip 2.5 --recompute none"},
        {ALONE | PROCESSES(2), ALL, ALL,
         "--schedule helix:ship=attention --stages 2 --micro-batches 4 --clip 0.1"},
        {PROCESSES(2), ALL, ALL,
         "--schedule helix:bounded --stages 2 --micro-batches 8 --clip 0.1"},
        {ALONE | PROCESSES(3), ALL, ALL, "--schedule slimpipe --stages 3 --slices 6 --clip 0.1"},
        /* ops of the head, and statistics that nobody came for */
        {ALONE | PROCESSES(2), ALL, ALL,
         "--schedule zb1p --stages 2 --vocabulary-parallel --clip 0.1"},
        {PROCESSES(3), 1, ALL - 1, "--schedule gpipe --stages 3 --vocabulary-parallel --clip 2.5"},
        {ALONE, ALL, ALL,
         "--schedule helix --stages 2 --micro-batches 4 --vocabulary-parallel --clip 0.1"},
        /* norms that are taken ahead overtake ops where order is loose; reports are of whole ops */
        {PROCESSES(3), ALL, ALL,
         "--schedule wzb2:owner=each --stages 5 --micro-batches 15 --seq 8 --clip 0.1 "
         "--scheduler ready"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int ahead = 0; ahead < 2; ahead++)
            add_case(c,
                     (struct parity_case){
                         .processes = runs[i].processes,
                         .unreferenced = true,
                         .loose_norms =
                             strstr(runs[i].options, "wzb") || strstr(runs[i].options, "flow=line"),
                         .undone = {ahead ? runs[i].least : 0, ahead ? runs[i].most : 0}},
                     "--model gpt-tiny --seq 32 --micro-batches 6 --steps %d --lr 3e-3 --warmup 4 "
                     "--eps 1e-8 %s%s",
                     STEPS, runs[i].options, ahead ? " --post-validation" : "");
}
