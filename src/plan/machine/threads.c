/* Derives a machine's figures for devices of so many threads from the measured ones. */
#include "plan/machine/fields.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Interpolates between two rates, in logarithms. */
static double between(double a, double b, double part)
{
    return a * pow(b / a, part);
}

/* Interpolates at the sizes of the curve with more points. */
static void mix_curves(const struct sp_curve *a, const struct sp_curve *b, double part,
                       struct sp_curve *c)
{
    const struct sp_curve *sizes = a->n >= b->n ? a : b;

    c->n = a->n && b->n ? sizes->n : 0;
    for (int i = 0; i < c->n; i++) {
        double size = sizes->at[i].size;

        c->at[i].size = size;
        c->at[i].rate = between(sp_curve_rate(a, size), sp_curve_rate(b, size), part);
    }
}

static void mix(const struct sp_rates *a, const struct sp_rates *b, int threads, struct sp_rates *r)
{
    double part = log((double)threads / a->threads) / log((double)b->threads / a->threads);

    *r = (struct sp_rates){.threads = threads, .launch_s = between(a->launch_s, b->launch_s, part)};
    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++) {
        size_t at = f->at - offsetof(struct sp_machine, rates);

        if (f->kind == SP_FIELD_CURVE) /* all of them are rates */
            mix_curves((const struct sp_curve *)((const char *)a + at),
                       (const struct sp_curve *)((const char *)b + at), part,
                       (struct sp_curve *)((char *)r + at));
    }
}

/* Finds the figures with the most threads up to `threads`, and those with the fewest from there on;
 * NULL: there are none. */
static void find(const struct sp_machine *m, int threads, const struct sp_rates **below,
                 const struct sp_rates **above)
{
    *below = *above = NULL;
    for (int i = -1; i < m->teams; i++) {
        const struct sp_rates *r = i < 0 ? &m->rates : &m->team[i];

        if (r->threads <= threads && (!*below || r->threads > (*below)->threads))
            *below = r;
        if (r->threads >= threads && (!*above || r->threads < (*above)->threads))
            *above = r;
    }
}

static void share_node(struct sp_machine *m, int devices)
{
    struct sp_link *links[] = {&m->node, &m->network};

    devices = devices > 0 ? devices : 1;
    for (int i = 0; i < 2; i++) /* an interface that all devices share stays shared by all */
        if (links[i]->shared_by == m->devices_per_node || links[i]->shared_by > devices)
            links[i]->shared_by = devices;
    m->memory_bytes = m->host_bytes / devices;
    m->devices_per_node = devices;
}

/* Takes the threads for every kind; `why` is that of the last kind that lacks figures. */
static void take_threads_of_kinds(struct sp_machine *m, int threads, char why[SP_THREADS_WHY])
{
    struct sp_nodes kind[SP_MACHINE_KINDS];
    struct sp_machine *of = malloc(sizeof *of);
    bool kept = of != NULL, quiet = sp_error_quiet(true);

    for (int k = 0; k < m->kinds && kept; k++) {
        char its[SP_THREADS_WHY];

        kind[k] = m->kind[k];
        *of = *kind[k].machine;
        sp_machine_take_threads(of, threads, its);
        if (*its)
            memcpy(why, its, sizeof its);
        kept = !sp_machine_keep(of, kind[k].named, kind[k].named ? strlen(kind[k].named) : 0,
                                &kind[k]);
    }
    if (!kept || sp_machine_join(m->name, kind, m->kinds, m))
        snprintf(why, SP_THREADS_WHY,
                 "machine %s: its nodes do not make as many devices of %d threads each", m->name,
                 threads);
    sp_error_quiet(quiet);
    free(of);
}

void sp_machine_take_threads(struct sp_machine *m, int threads, char why[SP_THREADS_WHY])
{
    const struct sp_rates *below, *above;
    struct sp_rates rates;
    int cores = m->rates.threads * m->devices_per_node;

    *why = 0;
    if (m->kinds && sp_machine_is_cpu(m) && threads > 0) {
        take_threads_of_kinds(m, threads, why);
        return;
    }
    if (!sp_machine_is_cpu(m) || threads == m->rates.threads || threads <= 0)
        return;
    if (!m->rates.threads) {
        snprintf(why, SP_THREADS_WHY,
                 "machine %s: it does not say how many threads its figures are of; they are taken "
                 "for those of %d; 'starpipe calibrate' writes a file that does",
                 m->name, threads);
        return;
    }
    find(m, threads, &below, &above);
    if (!below || !above) {
        rates = below ? *below : *above;
        snprintf(why, SP_THREADS_WHY,
                 "machine %s: it has no figures of devices of %d threads, those of %d are taken",
                 m->name, threads, rates.threads);
    } else if (below == above) {
        rates = *below;
    } else {
        mix(below, above, threads, &rates);
    }
    rates.threads = threads;
    m->rates = rates;
    m->teams = 0;
    share_node(m, cores / threads);
}
