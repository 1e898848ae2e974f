/*
 * Measures the time that StarPU's traces (FxT) add to a step: one run traces every second step, so
 * other load on the machine affects neighbours alike. The median of their ratios is the cost of
 * tracing.
 *
 * usage: fxt [seq [pairs [stages]]]      (1024 tokens, 40 pairs of steps, 2 stages in one process; llama-tiny)
 */
#include "starpipe/trainer.h"
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WARM = 4, MOST = 1000 };

static char dir[] = "/tmp/starpipe-fxt-XXXXXX";

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static const char *write_text(void)
{
    static char path[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/text", dir);
    f = fopen(path, "w");
    for (int i = 0; f && i < 10000; i++)
        fprintf(f, "a line of text, number %d, which nobody reads\n", i);
    if (!f || fclose(f))
        exit(1);
    return path;
}

/* Milliseconds of a step; `traced`: StarPU records it. */
static double step_ms(struct sp_trainer *t, int traced)
{
    struct sp_meters m;

    if (traced)
        starpu_fxt_start_profiling();
    else
        starpu_fxt_stop_profiling();
    if (sp_trainer_step(t, false, &m))
        exit(1);
    return m.step_ms;
}

int main(int argc, char **argv)
{
    static double added[MOST], with[MOST], without[MOST];
    int seq = argc > 1 ? atoi(argv[1]) : 1024, pairs = argc > 2 ? atoi(argv[2]) : 40;
    int stages = argc > 3 ? atoi(argv[3]) : 2;
    struct sp_train_config cfg;
    struct sp_trainer *t;

    if (pairs < 1 || pairs > MOST || !mkdtemp(dir) || sp_train_config_init(&cfg))
        return 2;
    setenv("STARPU_FXT_TRACE", "1", 1);
    setenv("STARPU_FXT_PREFIX", dir, 1);
    setenv("STARPU_TRACE_BUFFER_SIZE", "1024", 0); /* MiB: nothing is written meanwhile */
    cfg.layout.model = "llama-tiny";
    cfg.layout.stages = stages;
    cfg.layout.seq = seq;
    cfg.data = write_text();
    cfg.steps = WARM + 2 * pairs;
    if (sp_trainer_open(&cfg, &t))
        return 2;
    for (int i = 0; i < WARM; i++)
        step_ms(t, i % 2);
    for (int i = 0; i < pairs; i++) {
        int first = i % 2; /* each is first in every second pair */
        double a = step_ms(t, first), b = step_ms(t, !first);

        with[i] = first ? a : b;
        without[i] = first ? b : a;
        added[i] = 100 * (with[i] / without[i] - 1);
    }
    qsort(added, (size_t)pairs, sizeof *added, by_size);
    qsort(with, (size_t)pairs, sizeof *with, by_size);
    qsort(without, (size_t)pairs, sizeof *without, by_size);
    printf("%d tokens: step %.2f ms, traced %.2f; fastest %.2f, %.2f; added %.2f %% (quartiles "
           "%.2f, %.2f; "
           "%d pairs)\n",
           seq, without[pairs / 2], with[pairs / 2], without[0], with[0], added[pairs / 2],
           added[pairs / 4], added[3 * pairs / 4], pairs);
    if (sp_trainer_close(t))
        return 1;
    fflush(stdout);
    return execlp("rm", "rm", "-r", dir, (char *)NULL) != 0;
}
