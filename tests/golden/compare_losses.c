/*
 * compare_losses [--part] LOG REFERENCE RTOL: do the loss and the grad_norm of every step agree,
 * |x - reference| <= RTOL |reference|?
 *
 * LOG is what `train --log` writes: one JSON object a line, the first without `step`. REFERENCE
 * is another such log, or a golden.json, whose first entry is the log's first step. Both must
 * have the same steps; with --part LOG may have fewer (a resumed run against a whole one), and
 * REFERENCE must be a log.
 *
 * Exit: 0 they agree, 1 they do not, 2 wrong usage or a file that cannot be read.
 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGREE, DIFFER, UNREADABLE };

struct step {
    long long number; /* -1: golden.json does not say */
    double loss, grad_norm;
};

struct run {
    int n;
    struct step *steps;
};

static int complain(const char *path, long line, const char *what)
{
    if (line > 0)
        fprintf(stderr, "compare_losses: %s, line %ld: %s\n", path, line, what);
    else
        fprintf(stderr, "compare_losses: %s: %s\n", path, what);
    return UNREADABLE;
}

static void run_add(struct run *run, struct step step)
{
    run->steps = realloc(run->steps, (size_t)(run->n + 1) * sizeof(*run->steps));
    if (!run->steps)
        abort();
    run->steps[run->n++] = step;
}

/* The arrays `losses` and `grad_norms` of a golden.json. */
static int run_from_golden(const char *path, const json_t *root, struct run *run)
{
    const json_t *losses = json_object_get(root, "losses");
    const json_t *norms = json_object_get(root, "grad_norms");

    if (!json_is_array(losses) || json_array_size(losses) == 0 ||
        json_array_size(norms) != json_array_size(losses))
        return complain(path, 0, "needs arrays losses and grad_norms of one length");
    for (size_t i = 0; i < json_array_size(losses); i++) {
        const json_t *loss = json_array_get(losses, i), *norm = json_array_get(norms, i);

        if (!json_is_number(loss) || !json_is_number(norm))
            return complain(path, 0, "losses and grad_norms must hold numbers");
        run_add(run, (struct step){-1, json_number_value(loss), json_number_value(norm)});
    }
    return 0;
}

static int run_from_line(const char *path, long line, const char *text, struct run *run)
{
    json_error_t error;
    json_t *root = json_loads(text, 0, &error);
    const json_t *step = json_object_get(root, "step");
    const json_t *loss = json_object_get(root, "loss");
    const json_t *norm = json_object_get(root, "grad_norm");
    int result = 0;

    if (!root)
        return complain(path, line, error.text);
    if (json_is_integer(step) && json_is_number(loss) && json_is_number(norm)) {
        struct step s = {json_integer_value(step), json_number_value(loss),
                         json_number_value(norm)};

        if (run->n > 0 && s.number != run->steps[run->n - 1].number + 1)
            result = complain(path, line, "its step does not follow the one before");
        run_add(run, s);
    } else if (step || (line != 1 && !json_object_get(root, "eval_step"))) {
        result = complain(path, line, "needs an integer step and numbers loss and grad_norm");
    }
    json_decref(root);
    return result;
}

static int run_from_log(const char *path, FILE *f, struct run *run)
{
    char *text = NULL;
    size_t size = 0;
    int result = 0;

    for (long line = 1; !result && getline(&text, &size, f) >= 0; line++)
        result = run_from_line(path, line, text, run);
    free(text);
    if (!result && ferror(f))
        result = complain(path, 0, "cannot be read");
    if (!result && run->n == 0)
        result = complain(path, 0, "holds no step");
    return result;
}

/* One JSON document with `losses` is a golden.json, anything else a log. */
static int run_read(const char *path, struct run *run)
{
    FILE *f = fopen(path, "r");
    json_t *root;
    int result;

    if (!f)
        return complain(path, 0, "cannot be opened");
    root = json_loadf(f, 0, NULL);
    if (json_object_get(root, "losses")) {
        result = run_from_golden(path, root, run);
    } else {
        rewind(f);
        result = run_from_log(path, f, run);
    }
    json_decref(root);
    fclose(f);
    return result;
}

/* |x - reference| / |reference|, 0 when they are equal. */
static double relative_error(double x, double reference)
{
    return x == reference ? 0 : fabs(x - reference) / fabs(reference);
}

/* Compares steps of `log` with those of `ref` from its index `skip` on. */
static int compare(const struct run *log, const struct run *ref, int skip, double rtol)
{
    double worst_loss = 0, worst_norm = 0;
    int beyond = 0;

    for (int i = 0; i < log->n; i++) {
        const struct step *x = &log->steps[i], *r = &ref->steps[skip + i];
        double loss = relative_error(x->loss, r->loss);
        double norm = relative_error(x->grad_norm, r->grad_norm);

        if (!(loss <= rtol && norm <= rtol)) {
            printf("step %lld: loss %.9g, expected %.9g; grad_norm %.9g, expected %.9g\n",
                   x->number, x->loss, r->loss, x->grad_norm, r->grad_norm);
            beyond++;
        }
        worst_loss = fmax(worst_loss, loss);
        worst_norm = fmax(worst_norm, norm);
    }
    printf("%d steps, %d beyond %g; worst relative error: loss %.3g, grad_norm %.3g\n", log->n,
           beyond, rtol, worst_loss, worst_norm);
    return beyond ? DIFFER : AGREE;
}

/* Finds where `log` lies in `ref`; AGREE, or what the exit status is. */
static int align(const struct run *log, const struct run *ref, bool part, int *skip)
{
    long long first = ref->steps[0].number;

    *skip = 0;
    if (part && first < 0) {
        fprintf(stderr, "compare_losses: --part needs a log as the reference\n");
        return UNREADABLE;
    }
    if (part && log->steps[0].number >= first && log->steps[0].number - first + log->n <= ref->n) {
        *skip = (int)(log->steps[0].number - first);
        return AGREE;
    }
    if (log->n == ref->n && (first < 0 || first == log->steps[0].number))
        return AGREE;
    printf("the log has %d steps from %lld, the reference %d", log->n, log->steps[0].number,
           ref->n);
    if (first >= 0)
        printf(" from %lld", first);
    printf("\n");
    return DIFFER;
}

int main(int argc, char **argv)
{
    bool part = argc > 1 && strcmp(argv[1], "--part") == 0;
    char **arg = argv + 1 + part, *end = NULL;
    bool usable = argc == 4 + part;
    double rtol = usable ? strtod(arg[2], &end) : -1;
    struct run log = {0}, ref = {0};
    int result = UNREADABLE, skip;

    if (!usable || end == arg[2] || *end || !(rtol >= 0)) {
        fprintf(stderr, "usage: compare_losses [--part] LOG REFERENCE RTOL\n");
        return UNREADABLE;
    }
    if (run_read(arg[0], &log) == 0 && run_read(arg[1], &ref) == 0) {
        if (log.steps[0].number < 0)
            complain(arg[0], 0, "is not a log");
        else
            result = align(&log, &ref, part, &skip);
        if (result == AGREE)
            result = compare(&log, &ref, skip, rtol);
    }
    free(log.steps);
    free(ref.steps);
    return result;
}
