/*
 * parity GROUP [starpu]: runs the cases of a group that use as many processes as mpirun started,
 * with messages through StarPU-MPI if asked. The current directory holds the text to train on. The
 * program runs in one process first: it stores there the results of one stage, with which all are
 * compared, and the bits of every case.
 *
 * StarPU is started once for each kind of session: strict, ready, with activations on disk.
 *
 * Exit: 0 all hold, 1 some do not, 2 wrong usage.
 */
#include "parity/cases.h"
#include "parity/compare.h"
#include "parity/run.h"
#include "transport/transport.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { STRICT, READY, OFFLOADED, KINDS };

static const struct group {
    const char *name;
    void (*fill)(struct cases *c);
} groups[] = {
    {"schedules", schedule_cases}, {"helix", helix_cases},
    {"weights", weight_cases},     {"slices", slice_cases},
    {"bf16", bf16_cases},          {"fp8", fp8_cases},
    {"barriers", barrier_cases},   {"vocabulary", vocabulary_cases},
};

/* Options that turn those of a case into those of its reference. */
static const char one_stage[] =
    "--schedule 1f1b --stages 1 --chunks 1 --slices 1 --recompute none "
    "--offload none --offload-keys auto --scheduler strict --partition even "
    "--window 0 --mlp-chunk 0";

void add_case(struct cases *c, struct parity_case like, const char *format, ...)
{
    va_list args;

    must(c->n == MOST_CASES ? ENOSPC : 0, "too many cases");
    c->at[c->n] = like;
    if (!(like.bar > 0))
        c->at[c->n].bar = 1e-5;
    va_start(args, format);
    vsnprintf(c->at[c->n].options, sizeof c->at[c->n].options, format, args);
    va_end(args);
    c->n++;
}

bool is_long(void)
{
    return getenv("SP_LONG");
}

static enum kind kind_of(const struct parity_case *c)
{
    if (strstr(c->options, "--offload "))
        return OFFLOADED;
    return strstr(c->options, "--scheduler ready") ? READY : STRICT;
}

static const char *dtype_of(const struct parity_case *c)
{
    return strstr(c->options, "--dtype fp8")    ? "fp8"
           : strstr(c->options, "--dtype bf16") ? "bf16"
                                                : "f32";
}

/* ---- references ------------------------------------------------------------------------ */

static void reference_options(const struct parity_case *c, const char *dtype, char text[512])
{
    static const char flag[] = "--vocabulary-parallel"; /* which one stage refuses */
    char *at;

    snprintf(text, 512, "%s %s --dtype %s", c->options, one_stage, dtype);
    at = strstr(text, flag);
    if (at)
        memset(at, ' ', sizeof flag - 1);
}

/* The file of a reference. */
static void reference_path(const struct setup *s, char path[256])
{
    const struct sp_train_config *a = &s->args;
    char key[256];

    snprintf(key, sizeof key, "%s %d %d %d %d %.17g %d", a->layout.model, a->layout.micro_batches,
             a->layout.micro_batch_size, a->layout.seq, a->steps, a->lr, a->dtype);
    snprintf(path, 256, "reference-%016llx", (unsigned long long)text_digest(key));
}

static void make_reference(struct session *session, const struct parity_case *c, const char *dtype)
{
    char options[512], path[256];
    struct setup s;
    struct result r;

    reference_options(c, dtype, options);
    setup_create(&s, options, 1);
    reference_path(&s, path);
    if (access(path, F_OK)) {
        run_setup(session, &s, &r);
        result_save(&r, path);
        result_free(&r);
    }
    setup_destroy(&s);
}

static struct distance compare_reference(const struct parity_case *c, const char *dtype,
                                         const struct result *r, struct bars bars)
{
    char options[512], path[256];
    struct distance d;
    struct setup s;
    struct result one;

    reference_options(c, dtype, options);
    setup_create(&s, options, 1);
    reference_path(&s, path);
    result_load(&one, path);
    d = compare_results(c->options, &s, r, &one, bars);
    result_free(&one);
    setup_destroy(&s);
    return d;
}

/* ---- cases ---------------------------------------------------------------------------- */

/* The name of a case does not include where and how it runs, since its bits must not depend on
 * that. */
static void bits_path(const struct setup *s, const struct parity_case *c, int processes,
                      char path[256])
{
    const struct sp_train_config *a = &s->args;
    const struct sp_layout_args *l = &a->layout;
    char key[512];

    snprintf(key, sizeof key, "%s %s %d %d %d %s %d %d %d %s %d %s %d %.17g %.17g %d", l->model,
             l->schedule, l->stages, s->plan.layout.chunks, l->slices,
             l->partition_slices ? l->partition_slices : "", l->micro_batches, l->micro_batch_size,
             l->seq, l->recompute, a->dtype, a->partition, a->steps, a->lr, a->clip,
             c->own_bits ? processes : 0);
    snprintf(path, 256, "bits-%016llx", (unsigned long long)text_digest(key));
}

static void run_options(struct session *session, const char *options, struct result *r)
{
    struct setup s;

    setup_create(&s, options, session->world.size);
    run_setup(session, &s, r);
    setup_destroy(&s);
}

/* On rank 0. */
static void check(const struct parity_case *c, const struct setup *s, const struct result *r,
                  int processes)
{
    char path[256];
    struct bars bars = {c->bar, c->updated_bar > 0 ? c->updated_bar : c->bar, c->weights_bar};
    struct distance d = {0};

    if (!c->unreferenced)
        d = compare_reference(c, dtype_of(c), r, bars);
    if (!strcmp(dtype_of(c), "bf16"))
        compare_reference(c, "f32", r, (struct bars){2e-2, 2e-2, c->weights_bar});
    check_memory(c, s, r);
    check_wire(c, s, r, processes);
    bits_path(s, c, processes, path);
    check_bits(c->options, path, result_bits(r, !c->loose_norms));
    printf("%d: %s: losses within %.2g, gradients %.2g, weights %.2g\n", processes, c->options,
           d.losses, d.gradients, d.weights);
    fflush(stdout);
}

static void run_case(struct session *session, const struct parity_case *c)
{
    bool root = session->world.rank == 0;
    char options[512];
    struct result r, again;
    struct setup s;

    setup_create(&s, c->options, session->world.size);
    run_setup(session, &s, &r);
    if (root)
        check(c, &s, &r, session->world.size);
    if (c->twice) {
        run_options(session, c->options, &again);
        if (root && result_bits(&again, true) != result_bits(&r, true))
            fail_case("%s: the second run has other bits", c->options);
        result_free(&again);
    }
    if (c->halves) {
        snprintf(options, sizeof options, "%s --dtype f32", c->options);
        run_options(session, options, &again);
        if (root)
            check_halves(c->options, &r, &again);
        result_free(&again);
    }
    result_free(&r);
    setup_destroy(&s);
}

static void run_kind(struct session *session, const struct cases *c, enum kind kind)
{
    bool wanted = false;

    for (int i = 0; i < c->n; i++)
        wanted |= kind_of(&c->at[i]) == kind && c->at[i].processes & PROCESSES(session->world.size);
    if (!wanted && (kind != STRICT || session->world.size > 1))
        return;
    session_start(session, kind == READY, kind == OFFLOADED);
    for (int i = 0; i < c->n && kind == STRICT && session->world.size == 1; i++) {
        if (c->at[i].unreferenced)
            continue;
        make_reference(session, &c->at[i], "f32");
        make_reference(session, &c->at[i], dtype_of(&c->at[i]));
    }
    for (int i = 0; i < c->n; i++)
        if (kind_of(&c->at[i]) == kind && c->at[i].processes & PROCESSES(session->world.size))
            run_case(session, &c->at[i]);
    session_stop(session);
}

int main(int argc, char **argv)
{
    static struct cases cases;
    struct session session = {0};

    must(sp_transport_join(&argc, &argv, &session.world), "joining");
    setenv("STARPU_SILENT", "1", 0);
    setenv("STARPU_WORKERS_NOBIND", "1", 0);
    if (argc == 3 && !strcmp(argv[2], "starpu")) /* messages through StarPU-MPI */
        must(sp_transport_use_starpu(true), "StarPU-MPI");
    for (size_t i = 0; argc > 1 && i < sizeof groups / sizeof *groups; i++)
        if (!strcmp(argv[1], groups[i].name))
            groups[i].fill(&cases);
    if (!cases.n) {
        fprintf(
            stderr,
            "usage: parity schedules|helix|weights|slices|bf16|fp8|barriers|vocabulary [starpu]\n");
        return 2;
    }
    for (int k = 0; k < KINDS; k++)
        run_kind(&session, &cases, (enum kind)k);
    if (session.world.rank == 0)
        printf("%d checks failed\n", failures);
    sp_transport_leave();
    return failures > 0;
}
