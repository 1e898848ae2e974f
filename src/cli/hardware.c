#include "cli/print.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tera = 1e12, giga = 1e9, micro = 1e-6;

/* Rates at a few sizes, of those that a line has room for. */
static void print_rates(const char *what, const char *of, const struct sp_curve *c)
{
    static const double sizes[] = {1e6, 1e8, 1e10, 1e12};

    printf("%-11s%-15s", what, of);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        printf("%11.4g", sp_curve_rate(c, sizes[i]) / tera);
    putchar('\n');
}

/* The time that attention takes for a pair beside its operations, at a few thousand tokens. */
static void print_pairs(const struct sp_rates *r)
{
    for (int t = 0; t < SP_ELEMENTS; t++)
        if (r->pairs[t][SP_ATTENTION_FORWARD].n && r->pairs[t][SP_ATTENTION_BACKWARD].n)
            printf("pairs      %s: %.4g G/s forward, %.4g backward, beside operations\n",
                   sp_dtype_name((enum sp_dtype)t),
                   sp_curve_rate(&r->pairs[t][SP_ATTENTION_FORWARD], 1e6) / giga,
                   sp_curve_rate(&r->pairs[t][SP_ATTENTION_BACKWARD], 1e6) / giga);
}

static void print_device(const struct sp_machine *m)
{
    static const char *const passes[] = {
        [SP_ATTENTION_FORWARD] = "forward", [SP_ATTENTION_BACKWARD] = "backward"};

    printf("\n%-26s%11s%11s%11s%11s\n", "TFLOP/s of calls of", "10^6", "10^8", "10^10",
           "10^12 FLOP");
    for (int t = 0; t < SP_DTYPES; t++)
        if (m->rates.matmul[t].n)
            print_rates(t ? "" : "products", sp_dtype_name((enum sp_dtype)t), &m->rates.matmul[t]);
    for (int i = 0; i < SP_ELEMENTS * SP_ATTENTION_PASSES; i++) {
        int t = i / SP_ATTENTION_PASSES, pass = i % SP_ATTENTION_PASSES;
        char of[32];

        snprintf(of, sizeof of, "%s %s", sp_dtype_name((enum sp_dtype)t), passes[pass]);
        print_rates(i ? "" : "attention", of, &m->rates.attention[t][pass]);
    }
    print_pairs(&m->rates);
    printf("\nmemory     %.4g GB; calls of 100 KB get %.4g GB/s, of 10 MB %.4g, of 1 GB %.4g\n",
           (double)m->memory_bytes / giga, sp_curve_rate(&m->rates.memory[SP_F32], 1e5) / giga,
           sp_curve_rate(&m->rates.memory[SP_F32], 1e7) / giga,
           sp_curve_rate(&m->rates.memory[SP_F32], 1e9) / giga);
    printf("task       %.3g us of the runtime\n", m->rates.launch_s / micro);
}

static void print_shared(int by)
{
    if (by > 1)
        printf(", shared by %d devices", by);
    putchar('\n');
}

static void print_link(const char *what, const struct sp_link *l)
{
    printf("%-11s%.4g GB/s %s, latency %.3g us", what, l->bandwidth / giga,
           l->half_duplex ? "one way at a time" : "each way", l->latency_s / micro);
    print_shared(l->shared_by);
}

static void print_node(const struct sp_machine *m)
{
    const struct sp_copy_rates *c = &m->copy;

    printf("\nhost       %.4g GB a node", (double)m->host_bytes / giga);
    if (m->host_rate > 0)
        printf(", which its cores read and write at %.4g GB/s", m->host_rate / giga);
    printf("\n");
    if (c->to_host > 0) {
        printf("copies     %.4g GB/s to the host, %.4g back, %.4g each way at once",
               c->to_host / giga, c->from_host / giga, c->both / giga);
        print_shared(c->shared_by);
    } else {
        printf("copies     none: devices compute in the host's memory\n");
    }
    if (m->disk.write > 0)
        printf("disk       %.4g GB/s written, %.4g read, %.4g each at once\n", m->disk.write / giga,
               m->disk.read / giga, m->disk.both / giga);
    else
        printf("disk       none\n");
    print_link("node", &m->node);
    print_link("network", &m->network);
}

static void print_one(const struct sp_machine *m)
{
    printf("%s: nodes of %d x %s\n", m->name, m->devices_per_node, m->device);
    print_device(m);
    print_node(m);
    putchar('\n');
    for (const char *line = m->source; *line; line += strspn(line, "\n")) {
        int n = (int)strcspn(line, "\n");

        printf("%.*s\n", n, line);
        line += n;
    }
}

int sp_hardware_print(const struct sp_machine *m, bool words)
{
    char *text = words ? NULL : sp_machine_text(m);

    if (text)
        fputs(text, stdout);
    free(text);
    if (!words)
        return text ? 0 : -ENOMEM;
    if (!m->kinds)
        print_one(m);
    for (int k = 0; k < m->kinds; k++) { /* in the order in which stages fill them */
        printf("%s%d of ", k ? "\n" : "", m->kind[k].count);
        print_one(m->kind[k].machine);
    }
    return 0;
}
