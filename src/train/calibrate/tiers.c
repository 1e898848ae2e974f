/* Measures the tiers that offloaded activations go to, the host and disks, in the way that a run
 * uses them. */
#include "sinks/starpu/cuda_memory.h"
#include "offload/disk.h"
#include "train/calibrate/rates.h"
#include <math.h>
#include <stdio.h>

/* Seconds a byte to the tier, from it, and with both ways busy; then neither way is faster than
 * alone. */
struct tier {
    const char *what;
    struct sp_steady write, read, both;
};

static bool goes_on(const struct sp_bench *b, const struct tier *t, double start)
{
    bool steady =
        sp_steady_reached(&t->write) && sp_steady_reached(&t->read) && sp_steady_reached(&t->both);

    return t->write.n < SP_STEADY_LEAST ||
           (t->write.n < SP_STEADY_MOST && !steady && sp_bench_now_s() - start < 100 * b->turn_s);
}

static void add(struct tier *t, double write, double read, double both)
{
    sp_steady_add(&t->write, 1 / write);
    sp_steady_add(&t->read, 1 / read);
    sp_steady_add(&t->both, 1 / both);
}

static void take(struct sp_bench *b, const struct tier *t, double *write, double *read,
                 double *both)
{
    const struct {
        const char *way;
        const struct sp_steady *s;
    } all[] = {{"to", &t->write}, {"from", &t->read}, {"both to and from", &t->both}};

    for (int i = 0; i < 3; i++) {
        char what[SP_QUALITY_TEXT];

        snprintf(what, sizeof what, "copies %s %s", all[i].way, t->what);
        sp_quality_add_shared(b->quality, what, all[i].s);
    }
    *write = sp_measured(1 / sp_steady_value(&t->write));
    *read = sp_measured(1 / sp_steady_value(&t->read));
    *both = fmin(fmin(*write, *read), sp_measured(1 / sp_steady_value(&t->both)));
}

int sp_measure_copies(struct sp_bench *b, struct sp_copy_rates *copy)
{
    const double start = sp_bench_now_s();
    struct tier t = {.what = "the host"};
    double write, read, both;

    *copy = (struct sp_copy_rates){.to_host = 0};
    if (!b->place.gpus)
        return 0;
    sp_bench_show(b, "copies between GPU and host");
    do {
        int err = sp_cuda_measure_copies(b->place.gpu[0], &write, &read, &both);

        if (err)
            return err;
        add(&t, write, read, both);
    } while (goes_on(b, &t, start));
    take(b, &t, &copy->to_host, &copy->from_host, &copy->both);
    copy->shared_by = 1;
    return 0;
}

int sp_measure_disk(struct sp_bench *b, struct sp_disk *file, struct sp_disk_rates *disk)
{
    const double start = sp_bench_now_s();
    struct sp_tier_rates rates;
    struct tier t = {.what = "the disk"};
    double both;
    int err;

    sp_bench_show(b, "the disk");
    do {
        err = sp_disk_measure(file, &rates);
        err = err ? err : sp_disk_measure_both(file, &both);
        if (!err)
            add(&t, rates.write, rates.read, both);
    } while (!err && goes_on(b, &t, start));
    if (!err)
        take(b, &t, &disk->write, &disk->read, &disk->both);
    return err;
}
