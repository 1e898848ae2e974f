/*
 * compare_safetensors A B RTOL: the same tensors, names and shapes alike, and in each of them
 * max|a - b| <= RTOL max|b|? Prints the worst tensor and its error.
 *
 * Exit: 0 they agree, 1 they do not, 2 wrong usage or a file that cannot be read.
 */
#include "model/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGREE, DIFFER, UNREADABLE };

static size_t entry_elements(const struct sp_st_entry *e)
{
    size_t n = 1;

    for (int i = 0; i < e->ndim; i++)
        n *= (size_t)e->shape[i];
    return n;
}

static int entry_same_shape(const struct sp_st_entry *a, const struct sp_st_entry *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

/* max|a - b| / max|b|: infinite when only b is zero everywhere, NaN when either holds a NaN. */
static double relative_error(size_t n, const float *a, const float *b)
{
    double diff = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        if (isnan(d))
            return NAN;
        diff = fmax(diff, d);
        size = fmax(size, fabs((double)b[i]));
    }
    return diff == 0 ? 0 : diff / size;
}

/* Names in one file only, and shapes; how many are wrong. */
static int compare_headers(const struct sp_st_file *a, const struct sp_st_file *b)
{
    int wrong = 0;

    for (int i = 0; i < a->n; i++) {
        const struct sp_st_entry *other = sp_st_find(b, a->entries[i].name);

        if (!other)
            printf("%s: only in %s\n", a->entries[i].name, a->path);
        else if (!entry_same_shape(&a->entries[i], other))
            printf("%s: the shapes differ\n", a->entries[i].name);
        else
            continue;
        wrong++;
    }
    for (int i = 0; i < b->n; i++) {
        if (!sp_st_find(a, b->entries[i].name)) {
            printf("%s: only in %s\n", b->entries[i].name, b->path);
            wrong++;
        }
    }
    return wrong;
}

/* Relative error of one tensor; 0, or UNREADABLE. */
static int compare_tensor(const struct sp_st_file *a, const struct sp_st_file *b,
                          const struct sp_st_entry *in_b, double *error)
{
    const struct sp_st_entry *in_a = sp_st_find(a, in_b->name);
    size_t n = entry_elements(in_b);
    float *values = malloc((2 * n + 1) * sizeof(*values));
    int result = UNREADABLE;

    if (!values) {
        fprintf(stderr, "compare_safetensors: no memory for %zu elements of %s\n", n, in_b->name);
        return UNREADABLE;
    }
    if (sp_st_read(a, in_a, values) == 0 && sp_st_read(b, in_b, values + n) == 0) {
        *error = relative_error(n, values, values + n);
        result = 0;
    }
    free(values);
    return result;
}

static int compare_data(const struct sp_st_file *a, const struct sp_st_file *b, double rtol)
{
    const char *worst_name = "none";
    double worst = 0;
    int beyond = 0;

    for (int i = 0; i < b->n; i++) {
        double error = 0;

        if (compare_tensor(a, b, &b->entries[i], &error))
            return UNREADABLE;
        if (!(error <= rtol)) {
            printf("%s: relative error %.3g\n", b->entries[i].name, error);
            beyond++;
        }
        /* The first NaN stays the worst: no error compares greater. */
        if (isnan(error) ? !isnan(worst) : error > worst) {
            worst = error;
            worst_name = b->entries[i].name;
        }
    }
    printf("%d tensors, %d beyond %g; worst %s, relative error %.3g\n", b->n, beyond, rtol,
           worst_name, worst);
    return beyond ? DIFFER : AGREE;
}

int main(int argc, char **argv)
{
    struct sp_st_file a, b;
    char *end = NULL;
    double rtol = argc == 4 ? strtod(argv[3], &end) : -1;
    int result = UNREADABLE;

    if (argc != 4 || end == argv[3] || *end || !(rtol >= 0)) {
        fprintf(stderr, "usage: compare_safetensors A B RTOL\n");
        return UNREADABLE;
    }
    if (sp_st_open(argv[1], &a))
        return UNREADABLE;
    if (sp_st_open(argv[2], &b))
        goto err_close_a;
    if (compare_headers(&a, &b))
        result = DIFFER;
    else
        result = compare_data(&a, &b, rtol);
    sp_st_close(&b);
err_close_a:
    sp_st_close(&a);
    return result;
}
