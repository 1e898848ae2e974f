#include "cli/diff/diff.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "train/run/log_file.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step {
    long long number;
    double loss, grad_norm;
};

/* The steps of a log, each the successor of the one before. */
struct run {
    const char *path;
    int shift; /* of the numbers in the lines to come: sp_log_shift */
    int n;
    struct step *steps;
};

static int add_step(struct run *run, const struct step *step)
{
    struct step *more = realloc(run->steps, (size_t)(run->n + 1) * sizeof *more);

    if (!more)
        return sp_error(ENOMEM, "diff: no memory for the %d steps of %s", run->n + 1, run->path);
    run->steps = more;
    run->steps[run->n++] = *step;
    return 0;
}

/* Plans and evaluations have no "step" and are passed over. */
static int read_line(const char *text, long line, struct run *run)
{
    json_error_t error;
    json_t *root = json_loads(text, 0, &error);
    const json_t *step = json_object_get(root, "step");
    const json_t *loss = json_object_get(root, "loss");
    const json_t *norm = json_object_get(root, "grad_norm");
    int err = 0;

    run->shift = sp_log_shift(root, run->shift);
    if (!json_is_object(root)) {
        err = sp_error(EINVAL, "diff: %s, line %ld: not a JSON object", run->path, line);
    } else if (json_is_integer(step) && json_is_number(loss) && json_is_number(norm)) {
        struct step s = {json_integer_value(step) + run->shift, json_number_value(loss),
                         json_number_value(norm)};

        if (run->n && s.number != run->steps[run->n - 1].number + 1)
            err = sp_error(EINVAL, "diff: %s, line %ld: step %lld follows step %lld", run->path,
                           line, s.number, run->steps[run->n - 1].number);
        err = err ? err : add_step(run, &s);
    } else if (step) {
        err = sp_error(EINVAL, "diff: %s, line %ld: a step needs numbers loss and grad_norm",
                       run->path, line);
    }
    json_decref(root);
    return err;
}

static int read_run(const char *path, struct run *run)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    int err = 0;

    *run = (struct run){.path = path, .shift = SP_LOG_SHIFT_OLD};
    if (!f)
        return sp_error(errno, "diff: cannot open %s: %s", path, strerror(errno));
    for (long line = 1; !err && getline(&text, &size, f) >= 0; line++)
        err = read_line(text, line, run);
    if (!err && ferror(f))
        err = sp_error(EIO, "diff: cannot read %s", path);
    if (!err && !run->n)
        err = sp_error(EINVAL, "diff: %s holds no step", path);
    free(text);
    fclose(f);
    return err;
}

static double relative(double a, double b)
{
    return a == b ? 0 : fabs(a - b) / fabs(b);
}

/* The step of that number, NULL: the run has none. */
static const struct step *find_step(const struct run *run, long long number)
{
    long long i = number - run->steps[0].number;

    return i >= 0 && i < run->n ? &run->steps[i] : NULL;
}

/* Steps of `in` that `other` lacks, printed unless `quiet`: how many. */
static int print_only(const struct run *in, const struct run *other, bool quiet)
{
    int n = 0;

    for (int i = 0; i < in->n; i++)
        n += !find_step(other, in->steps[i].number);
    if (n && !quiet)
        printf("%d of the steps %lld to %lld of %s are not in %s\n", n, in->steps[0].number,
               in->steps[in->n - 1].number, in->path, other->path);
    return n;
}

static enum sp_diff compare_runs(const struct run *a, const struct run *b,
                                 const struct sp_diff_options *options)
{
    bool quiet = options->parts;
    int only_a = print_only(a, b, quiet), only_b = options->part ? 0 : print_only(b, a, quiet);
    int common = 0, beyond = 0;
    const struct step *first = NULL;
    double worst_loss = 0, worst_norm = 0;

    for (int i = 0; i < a->n; i++) {
        const struct step *x = &a->steps[i], *y = find_step(b, x->number);
        double loss = y ? relative(x->loss, y->loss) : 0;
        double norm = y ? relative(x->grad_norm, y->grad_norm) : 0;

        common += y != NULL;
        worst_loss = fmax(worst_loss, loss);
        worst_norm = fmax(worst_norm, norm);
        if (!y || (loss <= options->tolerance && norm <= options->tolerance))
            continue;
        first = beyond++ ? first : x;
        if (beyond == 1 && !quiet)
            printf(
                "first that differs: step %lld, loss %.12g and %.12g, grad_norm %.12g and %.12g\n",
                x->number, x->loss, y->loss, x->grad_norm, y->grad_norm);
    }
    if (quiet)
        json_array_append_new(
            options->parts,
            json_pack("{s:o,s:o,s:i,s:i,s:i,s:i,s:o,s:o,s:o}", "a", sp_utf8_json(a->path), "b",
                      sp_utf8_json(b->path), "only_in_a", only_a, "only_in_b", only_b, "compared",
                      common, "beyond", beyond, "first",
                      first ? json_integer(first->number) : json_null(), "worst_loss",
                      sp_diff_json(worst_loss), "worst_grad_norm", sp_diff_json(worst_norm)));
    else
        printf("%d of %d steps beyond %g; worst relative difference: loss %.3g, grad_norm %.3g\n",
               beyond, common, options->tolerance, worst_loss, worst_norm);
    return beyond || only_a + only_b || !common ? SP_DIFF_DIFFERENT : SP_DIFF_SAME;
}

enum sp_diff sp_diff_logs(const char *a, const char *b, const struct sp_diff_options *options)
{
    struct run x = {0}, y = {0};
    enum sp_diff result = SP_DIFF_UNREADABLE;

    if (!read_run(a, &x) && !read_run(b, &y))
        result = compare_runs(&x, &y, options);
    free(x.steps);
    free(y.steps);
    return result;
}
