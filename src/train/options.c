#include "train/options.h"
#include "sp_error.h"
#include "sp_suggest.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sp_choice(const char *choices, int i, int *length)
{
    for (; i > 0 && choices; i--) {
        choices = strchr(choices, '|');
        choices += choices != NULL;
    }
    if (choices)
        *length = (int)strcspn(choices, "|");
    return choices;
}

int sp_choice_of(const char *choices, const char *text)
{
    const char *word;
    int length;

    for (int i = 0; (word = sp_choice(choices, i, &length)); i++)
        if ((int)strlen(text) == length && !strncmp(text, word, (size_t)length))
            return i;
    return -1;
}

/* ", did you mean full?" for a word that is none of the choices, "" if none is near, in text[n]. */
static const char *nearest(const char *choices, const char *typed, char *text, int n)
{
    struct sp_suggestion suggestion = {.typed = typed};
    const char *word;
    int length;

    for (int i = 0; (word = sp_choice(choices, i, &length)); i++)
        sp_suggest(&suggestion, word, length);
    return sp_suggest_text(&suggestion, "", text, n);
}

int sp_parse_offload(const char *command, const struct sp_layout_args *a,
                     enum sp_offload_mode *mode)
{
    int choice = sp_choice_of(SP_OFFLOAD_MODES, a->offload);
    char meant[128];

    if (choice < 0)
        return sp_error(EINVAL, "%s: --offload %s: want none, full or adaptive%s", command,
                        a->offload, nearest(SP_OFFLOAD_MODES, a->offload, meant, sizeof meant));
    *mode = (enum sp_offload_mode)choice;
    return 0;
}

int sp_parse_context_method(const char *command, const struct sp_group_args *a, int *ulysses)
{
    const char *method = a->context_method;
    int C = a->context_parallel, U = 0, end = 0, which;
    char meant[128];

    if (sscanf(method, "ulysses=%9d,ring%n", &U, &end) == 1 && end && !method[end]) {
        if (U < 1 || C % U)
            return sp_error(EINVAL,
                            "%s: --context-method %s: %d processes of --context-parallel make no "
                            "groups of %d; give a divisor, or leave =%d out",
                            command, method, C, U, U);
        *ulysses = U;
        return 0;
    }
    which = sp_choice_of(SP_CONTEXT_METHODS, method);
    if (which < 0)
        return sp_error(EINVAL,
                        "%s: --context-method %s: want ulysses, ring, or ulysses,ring or "
                        "ulysses=U,ring for both%s",
                        command, method, nearest(SP_CONTEXT_METHODS, method, meant, sizeof meant));
    *ulysses = which == 0 ? C : which == 1;
    return 0;
}

bool sp_recompute_is_auto(const char *text)
{
    return text && !strcmp(text, "auto");
}

/* Reads sub-operations, "norms,activation", as bits. 0: some word is none. */
static unsigned sub_operations(const char *text)
{
    unsigned set = 0;

    for (const char *word = text;; word += strcspn(word, ",") + 1) {
        size_t n = strcspn(word, ",");
        const char *name;
        int i = 0;

        while ((name = sp_sub_operation_name(i)) && (strlen(name) != n || strncmp(name, word, n)))
            i++;
        if (!name)
            return 0;
        set |= 1U << i;
        if (!word[n])
            return set;
    }
}

/* Takes the mode that computes just these again; refuses others with the next one that does. */
static int take_sub_operations(const char *command, const char *text, unsigned set,
                               struct sp_recompute_option *option)
{
    enum sp_recompute mode = SP_RECOMPUTE_NONE;
    char again[128] = "";
    const char *name;

    while (set & ~sp_recompute_again(mode))
        mode++;
    if (set == sp_recompute_again(mode)) {
        *option = (struct sp_recompute_option){mode, 1};
        return 0;
    }
    for (int i = 0; (name = sp_sub_operation_name(i)); i++)
        if (sp_recompute_again(mode) & 1U << i)
            snprintf(again + strlen(again), sizeof again - strlen(again), "%s%s",
                     again[0] ? "," : "", name);
    return sp_error(EINVAL,
                    "%s: --recompute %s: these are not computed again without others; the nearest "
                    "is %s, that is %s",
                    command, text, sp_recompute_name(mode), again);
}

int sp_parse_recompute(const char *command, const char *text, struct sp_recompute_option *option)
{
    unsigned set = sub_operations(text);
    char meant[128];

    if (set)
        return take_sub_operations(command, text, set, option);

    for (int i = SP_RECOMPUTE_NONE; i <= SP_RECOMPUTE_FULL; i++)
        if (strcmp(text, sp_recompute_name((enum sp_recompute)i)) == 0) {
            *option = (struct sp_recompute_option){(enum sp_recompute)i, 1};
            return 0;
        }
    if (strncmp(text, "every=", 6) == 0) {
        char *end;
        long k = strtol(text + 6, &end, 10);

        if (end != text + 6 && !*end && k >= 1 && k <= 1000000) {
            *option = (struct sp_recompute_option){SP_RECOMPUTE_FULL, (int)k};
            return 0;
        }
    }
    if (sp_recompute_is_auto(text))
        return sp_error(EINVAL,
                        "%s: --recompute auto is for train and show, which print what they choose",
                        command);
    return sp_error(
        EINVAL,
        "%s: --recompute %s: want none, full, selective, no-attention, a list of norms, "
        "activation, qkv, attention and mlp, or every=K with K >= 1%s",
        command, text, nearest("none|full|selective|no-attention", text, meant, sizeof meant));
}

/* The number that the word of an INT stands for. */
static int word_value(const struct sp_option *o)
{
    return o->min < 0 ? (int)o->min : 0;
}

const char *sp_option_word(const struct sp_option *o)
{
    return o->choices && *(int *)o->value == word_value(o) ? strchr(o->choices, '|') + 1 : NULL;
}

const char *sp_option_string(const struct sp_option *o)
{
    switch (o->kind) {
    case SP_OPT_STRING:
    case SP_OPT_TEXT:
    case SP_OPT_PLUGIN:
    case SP_OPT_OUTPUT:
    case SP_OPT_OPERAND:
        return *(const char **)o->value;
    default:
        return NULL;
    }
}

void sp_option_text(const struct sp_option *o, char *text, size_t n)
{
    const char *word;
    int length = 0;

    switch (o->kind) {
    case SP_OPT_INT:
        word = sp_option_word(o);
        if (word)
            snprintf(text, n, "%s", word);
        else
            snprintf(text, n, "%d", *(int *)o->value);
        break;
    case SP_OPT_DOUBLE:
        /* the fewest digits that give the number back */
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, n, "%.*g", digits, *(double *)o->value);
            if (strtod(text, NULL) == *(double *)o->value)
                break;
        }
        break;
    case SP_OPT_SIZE:
        snprintf(text, n, "%llu", (unsigned long long)*(uint64_t *)o->value);
        break;
    case SP_OPT_CHOICE:
        word = sp_choice(o->choices, *(int *)o->value, &length);
        snprintf(text, n, "%.*s", length, word ? word : "");
        break;
    case SP_OPT_FLAG:
        snprintf(text, n, "%s", *(bool *)o->value ? "on" : "off");
        break;
    default:
        snprintf(text, n, "%s", sp_option_string(o) ? sp_option_string(o) : "");
        break;
    }
}

int sp_parse_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},
                 {"K", 1024},
                 {"KiB", 1024},
                 {"M", 1048576},
                 {"MiB", 1048576},
                 {"G", 1073741824},
                 {"GiB", 1073741824},
                 {"T", 1099511627776},
                 {"TiB", 1099511627776},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12}}; /* as dd and sort of GNU read them */
    char *end, suffix[5];       /* longer by one than any valid suffix */
    double v;

    /* strtod's signs, blanks, hexadecimal and "inf" are refused */
    if (*text < '0' || *text > '9' || strspn(text, "0123456789.") != strcspn(text, "kKMGT"))
        return -EINVAL;
    v = strtod(text, &end);
    snprintf(suffix, sizeof suffix, "%s", end);
    if (suffix[0] == 'k')
        suffix[0] = 'K';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(suffix, units[i].suffix))
            continue;
        v *= units[i].factor;
        if (!(v < 9e18) || (i == 0 && v != floor(v)))
            return -EINVAL;
        *bytes = (uint64_t)v;
        return 0;
    }
    return -EINVAL;
}

/* The numbers that may be given; a DOUBLE without bounds may be any. */
struct range {
    double min, max;
};

static struct range range_of(const struct sp_option *o)
{
    if (o->min == 0 && o->max == 0)
        return o->kind == SP_OPT_INT ? (struct range){INT_MIN, INT_MAX}
                                     : (struct range){-INFINITY, INFINITY};
    return (struct range){o->choices && o->min < 0 ? 0 : o->min, o->max};
}

static bool is_in_range(const struct sp_option *o, double v)
{
    struct range r = range_of(o);

    return v >= r.min && v <= r.max;
}

/* Prints the line for a number out of range. -EINVAL. */
static int beyond(const struct sp_option *o, const char *command, const char *text)
{
    struct range r = range_of(o);

    return sp_error(EINVAL,
                    o->kind == SP_OPT_INT ? "%s: --%s: %s is not in %.0f .. %.0f"
                                          : "%s: --%s: %s is not in %g .. %g",
                    command, o->name, text, r.min, r.max);
}

static int parse_int(const struct sp_option *o, const char *command, const char *text)
{
    struct range r = range_of(o);
    char *end;
    long v;

    if (o->choices && !strcmp(text, strchr(o->choices, '|') + 1)) {
        *(int *)o->value = word_value(o);
        return 0;
    }
    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end)
        return sp_error(EINVAL, "%s: --%s: '%s' is not an integer (%.0f .. %.0f)%s%s", command,
                        o->name, text, r.min, r.max, o->choices ? " or " : "",
                        o->choices ? strchr(o->choices, '|') + 1 : "");
    if (errno || !is_in_range(o, (double)v))
        return beyond(o, command, text);
    *(int *)o->value = (int)v;
    return 0;
}

static int parse_double(const struct sp_option *o, const char *command, const char *text)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !isfinite(v))
        return sp_error(EINVAL, "%s: --%s: '%s' is not a number", command, o->name, text);
    if (!is_in_range(o, v))
        return beyond(o, command, text);
    *(double *)o->value = v;
    return 0;
}

static int parse_choice(const struct sp_option *o, const char *command, const char *text)
{
    int choice = sp_choice_of(o->choices, text);
    char meant[128];

    if (choice < 0)
        return sp_error(EINVAL, "%s: --%s: '%s' is none of %s%s", command, o->name, text,
                        o->choices, nearest(o->choices, text, meant, sizeof meant));
    *(int *)o->value = choice;
    return 0;
}

static int parse_flag(const struct sp_option *o, const char *command, const char *text)
{
    int choice = sp_choice_of("off|on", text);

    if (choice < 0)
        return sp_error(EINVAL,
                        "%s: --%s takes no value, not '%s'; --%s=off takes back what a resumed run "
                        "was told",
                        command, o->name, text, o->name);
    *(bool *)o->value = choice;
    return 0;
}

/* Adds the value of an operand: its only word, or one more of several. */
static int add_word(const struct sp_option *o, const char *command, const char *text)
{
    const char **word = o->value;
    int n = 0;

    while (o->kind == SP_OPT_OPERAND && o->max > 1 && word[n])
        n++;
    if (n && n >= (int)o->max)
        return sp_error(EINVAL, "%s: more than %d of %s", command, (int)o->max, o->name);
    word[n] = text;
    return 0;
}

int sp_option_set(const struct sp_option *o, const char *command, const char *text)
{
    switch (o->kind) {
    case SP_OPT_INT:
        return parse_int(o, command, text);
    case SP_OPT_SIZE:
        if (sp_parse_size(text, o->value))
            return sp_error(EINVAL,
                            "%s: --%s: '%s' is not a size: want bytes, or 512MiB, 10M, 80G, 10MB",
                            command, o->name, text);
        return 0;
    case SP_OPT_DOUBLE:
        return parse_double(o, command, text);
    case SP_OPT_CHOICE:
        return parse_choice(o, command, text);
    case SP_OPT_FLAG:
        return parse_flag(o, command, text);
    default:
        if (!*text && o->kind != SP_OPT_TEXT)
            return sp_error(EINVAL, "%s: %s%s: the value is empty", command,
                            o->kind == SP_OPT_OPERAND ? "" : "--", o->name);
        return add_word(o, command, text);
    }
}

void sp_option_copy(const struct sp_option *o, const struct sp_option *from)
{
    static const size_t sizes[] = {
        [SP_OPT_STRING] = sizeof(char *), [SP_OPT_TEXT] = sizeof(char *),
        [SP_OPT_INT] = sizeof(int),       [SP_OPT_SIZE] = sizeof(uint64_t),
        [SP_OPT_DOUBLE] = sizeof(double), [SP_OPT_CHOICE] = sizeof(int),
        [SP_OPT_PLUGIN] = sizeof(char *), [SP_OPT_FLAG] = sizeof(bool),
        [SP_OPT_OUTPUT] = sizeof(char *), [SP_OPT_OPERAND] = sizeof(char *)};

    memcpy(o->value, from->value, sizes[o->kind]);
    if (o->given)
        *o->given = *from->given;
}

int sp_option_check(const struct sp_option *o, const char *command)
{
    bool ok = true;
    char text[32];
    int length;

    if (o->kind == SP_OPT_INT) {
        ok = is_in_range(o, *(int *)o->value) || sp_option_word(o);
    } else if (o->kind == SP_OPT_DOUBLE) {
        ok = isfinite(*(double *)o->value) && is_in_range(o, *(double *)o->value);
    } else if (o->kind == SP_OPT_CHOICE) {
        int choice = *(int *)o->value;

        if (choice < 0 || !sp_choice(o->choices, choice, &length))
            return sp_error(EINVAL, "%s: --%s: %d is the number of none of %s", command, o->name,
                            choice, o->choices);
    }
    sp_option_text(o, text, sizeof text);
    return ok ? 0 : beyond(o, command, text);
}

/* True if the option has an effect as it is set; for a count, if it is above the minimum. */
static bool is_on(const struct sp_option *o)
{
    switch (o->kind) {
    case SP_OPT_INT:
        return *(int *)o->value > o->min;
    case SP_OPT_CHOICE:
        return *(int *)o->value != 0;
    case SP_OPT_SIZE:
        return *(uint64_t *)o->value != 0;
    case SP_OPT_DOUBLE:
        return *(double *)o->value != 0;
    case SP_OPT_FLAG:
        return *(bool *)o->value;
    default:
        return sp_option_string(o) && strcmp(sp_option_string(o), "none");
    }
}

int sp_option_check_wants(const struct sp_option *options, const struct sp_option *o,
                          const char *command, const char *typed)
{
    char wanted[128] = "";
    const char *word;
    int length;

    for (int i = 0; (word = sp_choice(o->wants, i, &length)); i++) {
        const struct sp_option *w = options;
        size_t used = strlen(wanted);

        while (w->name &&
               ((int)strlen(w->name) != length || strncmp(w->name, word, (size_t)length)))
            w++;
        if (!w->name)
            continue;
        if (is_on(w))
            return 0;
        snprintf(wanted + used, sizeof wanted - used, "%s--%s%s%s", used ? " or " : "", w->name,
                 w->arg ? " " : "", w->arg ? w->arg : "");
    }
    if (!*wanted)
        return 0;
    return sp_error(EINVAL, "%s: --%s without %s has no effect", command, typed, wanted);
}

struct sp_layout sp_layout_of_args(const struct sp_layout_args *a, int layers)
{
    bool csv = !strncmp(a->schedule, "csv:", 4);

    return (struct sp_layout){.stages = csv && !a->stages_set ? 0 : a->stages,
                              .micro_batches = csv && !a->micro_batches_set ? 0 : a->micro_batches,
                              .chunks = a->chunks,
                              .slices = a->slices,
                              .layers = layers,
                              .options = "",
                              .vocabulary_parallel = a->vocabulary_parallel};
}
