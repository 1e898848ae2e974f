#include "cli/diff/diff.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* elements read at a time: a table of a large model is many GiB */

/* One tensor that both sides have. */
struct pair {
    const struct sp_st_entry *a, *b;
    uint64_t elements, differing; /* in all; of other bits */
    uint64_t where;               /* the element that differs most */
    float was[2];                 /* its values */
    double max_abs, largest;      /* max|a - b|, infinite where either is NaN; max|b| */
    double relative;              /* max_abs / largest */
    bool other_shape;
};

static bool is_beyond(const struct pair *p, const struct sp_diff_options *options)
{
    if (p->other_shape)
        return true;
    return options->tolerance > 0 ? !(p->relative <= options->tolerance) : p->differing > 0;
}

static void compare_piece(struct pair *p, uint64_t first, size_t n, const float *a, const float *b)
{
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        if (fabs((double)b[i]) > p->largest)
            p->largest = fabs((double)b[i]);
        if (!memcmp(&a[i], &b[i], sizeof a[i]))
            continue;
        d = isnan(d) ? INFINITY : d;
        if (!p->differing++ || d > p->max_abs) {
            p->where = first + i;
            p->was[0] = a[i];
            p->was[1] = b[i];
            p->max_abs = d;
        }
    }
}

/* 0 or -errno. */
static int compare_data(const struct sp_st_file *a, const struct sp_st_file *b, struct pair *p)
{
    float *x = malloc(2 * PIECE * sizeof *x);
    int err = x ? 0 : sp_error(ENOMEM, "diff: no memory for two buffers of %d elements", PIECE);

    for (uint64_t at = 0; at < p->elements && !err; at += PIECE) {
        size_t n = p->elements - at < PIECE ? (size_t)(p->elements - at) : PIECE;

        err = sp_st_read_part(a, p->a, at, n, x);
        err = err ? err : sp_st_read_part(b, p->b, at, n, x + PIECE);
        if (!err)
            compare_piece(p, at, n, x, x + PIECE);
    }
    free(x);
    p->relative = p->max_abs == 0 ? 0 : isinf(p->max_abs) ? INFINITY : p->max_abs / p->largest;
    return err;
}

static int compare_pair(const struct sp_st_file *a, const struct sp_st_file *b, struct pair *p)
{
    p->other_shape = p->a->ndim != p->b->ndim ||
                     memcmp(p->a->shape, p->b->shape, (size_t)p->a->ndim * sizeof *p->a->shape);
    if (p->other_shape) {
        p->relative = p->max_abs = INFINITY;
        return 0;
    }
    p->elements = 1;
    for (int i = 0; i < p->a->ndim; i++)
        p->elements *= (uint64_t)p->a->shape[i];
    return compare_data(a, b, p);
}

/* "[12, 64]" of a shape, or of the place of an element of a tensor of that shape. */
static const char *brackets(const struct sp_st_entry *e, const uint64_t *where, char text[200])
{
    uint64_t place[8] = {0}, rest = where ? *where : 0;
    int used = snprintf(text, 200, "[");

    for (int i = e->ndim - 1; i >= 0; i--) {
        place[i] = where ? rest % (uint64_t)e->shape[i] : (uint64_t)e->shape[i];
        rest = where ? rest / (uint64_t)e->shape[i] : 0;
    }
    for (int i = 0; i < e->ndim; i++)
        used += snprintf(text + used, 200 - (size_t)used, "%s%llu", i ? ", " : "",
                         (unsigned long long)place[i]);
    snprintf(text + used, 200 - (size_t)used, "]");
    return text;
}

/* With gradients the last tensor points to the error: a backward carries it on to all earlier
 * layers. */
static void print_end(const char *which, const struct pair *p)
{
    char place[200], other[200];

    printf("%s that differs: %s", which, p->a->name);
    if (p->other_shape)
        printf(", of shape %s and %s\n", brackets(p->a, NULL, place), brackets(p->b, NULL, other));
    else
        printf(", most at %s: %.9g and %.9g\n", brackets(p->a, &p->where, place), p->was[0],
               p->was[1]);
}

static int by_relative(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return (x->relative < y->relative) - (x->relative > y->relative);
}

/* Sorts the pairs, the worst first. */
static void print_worst(struct pair *pairs, int n, const struct sp_diff_options *options)
{
    char shape[200];
    int width = 6;

    qsort(pairs, (size_t)n, sizeof *pairs, by_relative);
    for (int i = 0; i < n && i < options->worst; i++)
        width = (int)strlen(pairs[i].a->name) > width ? (int)strlen(pairs[i].a->name) : width;
    printf("%-*s  %-14s %11s %11s %11s\n", width, "tensor", "shape", "differing", "max abs",
           "relative");
    for (int i = 0; i < n && i < options->worst; i++)
        if (is_beyond(&pairs[i], options))
            printf("%-*s  %-14s %11llu %11.3g %11.3g\n", width, pairs[i].a->name,
                   brackets(pairs[i].a, NULL, shape), (unsigned long long)pairs[i].differing,
                   pairs[i].max_abs, pairs[i].relative);
}

/* Counts the tensors of `in` that `other` lacks. Adds their names to `list`, or prints them if
 * it is NULL. */
static int find_only(const struct sp_st_file *in, const struct sp_st_file *other, json_t *list)
{
    int n = 0;

    for (int i = 0; i < in->n; i++) {
        if (sp_st_find(other, in->entries[i].name))
            continue;
        if (list)
            json_array_append_new(list, sp_utf8_json(in->entries[i].name));
        else
            printf("only in %s: %s\n", in->path, in->entries[i].name);
        n++;
    }
    return n;
}

json_t *sp_diff_json(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *pair_json(const struct pair *p)
{
    json_t *shape = json_array();

    for (int i = 0; i < p->a->ndim; i++)
        json_array_append_new(shape, json_integer((json_int_t)p->a->shape[i]));
    return json_pack("{s:o,s:o,s:I,s:o,s:o}", "name", sp_utf8_json(p->a->name), "shape", shape,
                     "differing", (json_int_t)p->differing, "max_abs", sp_diff_json(p->max_abs),
                     "relative", sp_diff_json(p->relative));
}

/* JSON: {compared, beyond, first, last: names; worst[]: tensors}; first and last are null if
 * none is beyond. */
static enum sp_diff pairs_json(struct pair *pairs, int n, int only,
                               const struct sp_diff_options *options, json_t *part)
{
    json_t *worst = json_array();
    const char *first = NULL, *last = NULL;
    int beyond = 0;

    for (int i = 0; i < n; i++) {
        if (!is_beyond(&pairs[i], options))
            continue;
        last = pairs[i].a->name;
        first = beyond++ ? first : last;
    }
    json_object_update_new(part, json_pack("{s:i,s:i,s:o,s:o,s:o}", "compared", n, "beyond", beyond,
                                           "first", sp_utf8_json(first), "last", sp_utf8_json(last),
                                           "worst", worst));
    qsort(pairs, (size_t)n, sizeof *pairs, by_relative);
    for (int i = 0; i < n && i < options->worst; i++)
        if (is_beyond(&pairs[i], options))
            json_array_append_new(worst, pair_json(&pairs[i]));
    return beyond || only || !n ? SP_DIFF_DIFFERENT : SP_DIFF_SAME;
}

static enum sp_diff print_pairs(struct pair *pairs, int n, int only,
                                const struct sp_diff_options *options)
{
    const struct pair *worst = pairs, *last = NULL;
    int beyond = 0;

    for (int i = 0; i < n; i++) {
        worst = pairs[i].relative > worst->relative ? &pairs[i] : worst;
        if (!is_beyond(&pairs[i], options))
            continue;
        last = &pairs[i];
        if (!beyond++)
            print_end("first", last);
    }
    if (beyond > 1)
        print_end("last", last);
    if (beyond) {
        print_worst(pairs, n, options);
        worst = pairs;
    }
    if (only)
        printf("%d only in one; ", only);
    if (!n)
        printf("no tensor in both\n");
    else if (options->tolerance > 0)
        printf("%d of %d tensors beyond %g; worst %s, relative difference %.3g\n", beyond, n,
               options->tolerance, worst->a->name, worst->relative);
    else if (beyond)
        printf("%d of %d tensors differ\n", beyond, n);
    else
        printf("%d tensors, all of the same bits\n", n);
    return beyond || only || !n ? SP_DIFF_DIFFERENT : SP_DIFF_SAME;
}

enum sp_diff sp_diff_tensors(const struct sp_st_file *a, const struct sp_st_file *b,
                             const struct sp_diff_options *options)
{
    struct pair *pairs = calloc((size_t)a->n + 1, sizeof *pairs);
    enum sp_diff result = SP_DIFF_UNREADABLE;
    json_t *only_in[2] = {NULL, NULL}, *part = NULL;
    int n = 0, only;

    if (options->parts) {
        only_in[0] = json_array();
        only_in[1] = json_array();
        part = json_pack("{s:o,s:o,s:o,s:o}", "a", sp_utf8_json(a->path), "b",
                         sp_utf8_json(b->path), "only_in_a", only_in[0], "only_in_b", only_in[1]);
        json_array_append_new(options->parts, part);
    }
    only = find_only(a, b, only_in[0]);
    if (!options->part)
        only += find_only(b, a, only_in[1]);
    if (!pairs) {
        sp_error(ENOMEM, "diff: no memory for %d tensors", a->n);
        return SP_DIFF_UNREADABLE;
    }
    for (int i = 0; i < a->n; i++) {
        struct pair p = {.a = &a->entries[i], .b = sp_st_find(b, a->entries[i].name)};

        if (!p.b)
            continue;
        if (compare_pair(a, b, &p))
            goto out;
        pairs[n++] = p;
    }
    result =
        part ? pairs_json(pairs, n, only, options, part) : print_pairs(pairs, n, only, options);
out:
    free(pairs);
    return result;
}
