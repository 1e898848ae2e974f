#include "policies/refuse.h"
#include "policies/check.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void name_size(const char *option, int was, int fit, int *named, char *why, size_t n)
{
    size_t used = strlen(why);

    if (was == fit || n == 0)
        return;
    snprintf(why + used, n - used, "%s %s %d", (*named)++ ? "" : "; use", option, fit);
}

int sp_refuse(const struct sp_layout *lay, const struct sp_layout *fit, char *why, size_t n,
              const char *fmt, ...)
{
    int named = 0;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, n, fmt, ap);
    va_end(ap);
    name_size("--stages", lay->stages, fit->stages, &named, why, n);
    name_size("--micro-batches", lay->micro_batches, fit->micro_batches, &named, why, n);
    name_size("--chunks", lay->chunks, fit->chunks, &named, why, n);
    name_size("--slices", lay->slices, fit->slices, &named, why, n);
    return -EINVAL;
}

int sp_refuse_chunks(const struct sp_layout *lay, const struct sp_layout *fit, char *why, size_t n)
{
    if (lay->chunks != fit->chunks)
        return sp_refuse(lay, fit, why, n, "has %d chunk%s per stage, not %d", fit->chunks,
                         fit->chunks > 1 ? "s" : "", lay->chunks);
    if (lay->slices != fit->slices)
        return sp_refuse(lay, fit, why, n, "runs whole sequences, not %d slices", lay->slices);
    return 0;
}

int sp_refuse_slices(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.slices = 1;
    return sp_refuse_chunks(lay, &fit, why, n);
}

int sp_check_sliced(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 1;
    return sp_refuse_chunks(lay, &fit, why, n);
}

int sp_check_whole(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_check_sliced(lay, why, n);

    return err ? err : sp_refuse_slices(lay, why, n);
}

int sp_option_is(const struct sp_layout *lay, const char *key, const char *word)
{
    char value[32];

    return sp_layout_option(lay, key, value, sizeof value) && !strcmp(value, word);
}

int sp_refuse_word(const struct sp_layout *lay, const char *key, const char *one, const char *other,
                   char *why, size_t n)
{
    char value[16];

    if (!sp_layout_option(lay, key, value, sizeof value) || !strcmp(value, one) ||
        !strcmp(value, other))
        return 0;
    snprintf(why, n, "has no %s '%s'; use %s=%s or %s=%s", key, value, key, one, key, other);
    return -EINVAL;
}
