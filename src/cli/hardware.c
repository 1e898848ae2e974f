#include "cli/hardware.h"
#include <string.h>

static const double tera = 1e12, giga = 1e9, micro = 1e-6;

/* Rates at a few sizes, of those that a line has room for. */
static void print_rates(FILE *f, const char *what, const char *of, const struct sp_curve *c)
{
    static const double sizes[] = {1e6, 1e8, 1e10, 1e12};

    fprintf(f, "%-11s%-15s", what, of);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fprintf(f, "%11.4g", sp_curve_rate(c, sizes[i]) / tera);
    fputc('\n', f);
}

/* The time that attention takes for a pair beside its operations, at a few thousand tokens. */
static void print_pairs(FILE *f, const struct sp_rates *r)
{
    for (int t = 0; t < SP_DTYPES; t++)
        if (r->pairs[t][SP_ATTENTION_FORWARD].n && r->pairs[t][SP_ATTENTION_BACKWARD].n)
            fprintf(f, "pairs      %s: %.4g G/s forward, %.4g backward, beside operations\n",
                    sp_dtype_name((enum sp_dtype)t),
                    sp_curve_rate(&r->pairs[t][SP_ATTENTION_FORWARD], 1e6) / giga,
                    sp_curve_rate(&r->pairs[t][SP_ATTENTION_BACKWARD], 1e6) / giga);
}

static void print_device(FILE *f, const struct sp_machine *m)
{
    static const char *const passes[] = {
        [SP_ATTENTION_FORWARD] = "forward", [SP_ATTENTION_BACKWARD] = "backward"};

    fprintf(f, "\n%-26s%11s%11s%11s%11s\n", "TFLOP/s of calls of", "10^6", "10^8", "10^10",
            "10^12 FLOP");
    for (int t = 0; t < SP_DTYPES; t++)
        print_rates(f, t ? "" : "products", sp_dtype_name((enum sp_dtype)t), &m->rates.matmul[t]);
    for (int i = 0; i < SP_DTYPES * SP_ATTENTION_PASSES; i++) {
        int t = i / SP_ATTENTION_PASSES, pass = i % SP_ATTENTION_PASSES;
        char of[32];

        snprintf(of, sizeof of, "%s %s", sp_dtype_name((enum sp_dtype)t), passes[pass]);
        print_rates(f, i ? "" : "attention", of, &m->rates.attention[t][pass]);
    }
    print_pairs(f, &m->rates);
    fprintf(f, "\nmemory     %.4g GB; calls of 100 KB get %.4g GB/s, of 10 MB %.4g, of 1 GB %.4g\n",
            (double)m->memory_bytes / giga, sp_curve_rate(&m->rates.memory[SP_F32], 1e5) / giga,
            sp_curve_rate(&m->rates.memory[SP_F32], 1e7) / giga,
            sp_curve_rate(&m->rates.memory[SP_F32], 1e9) / giga);
    fprintf(f, "task       %.3g us of the runtime\n", m->rates.launch_s / micro);
}

static void print_shared(FILE *f, int by)
{
    if (by > 1)
        fprintf(f, ", shared by %d devices", by);
    fputc('\n', f);
}

static void print_link(FILE *f, const char *what, const struct sp_link *l)
{
    fprintf(f, "%-11s%.4g GB/s %s, latency %.3g us", what, l->bandwidth / giga,
            l->half_duplex ? "one way at a time" : "each way", l->latency_s / micro);
    print_shared(f, l->shared_by);
}

static void print_node(FILE *f, const struct sp_machine *m)
{
    const struct sp_copy_rates *c = &m->copy;

    fprintf(f, "\nhost       %.4g GB a node\n", (double)m->host_bytes / giga);
    if (c->to_host > 0) {
        fprintf(f, "copies     %.4g GB/s to the host, %.4g back, %.4g each way at once",
                c->to_host / giga, c->from_host / giga, c->both / giga);
        print_shared(f, c->shared_by);
    } else {
        fprintf(f, "copies     none: devices compute in the host's memory\n");
    }
    if (m->disk.write > 0)
        fprintf(f, "disk       %.4g GB/s written, %.4g read, %.4g each at once\n",
                m->disk.write / giga, m->disk.read / giga, m->disk.both / giga);
    else
        fprintf(f, "disk       none\n");
    print_link(f, "node", &m->node);
    print_link(f, "network", &m->network);
}

static void print_one(FILE *f, const struct sp_machine *m);

/* One kind of nodes after the other, in the order in which stages fill them. */
void sp_hardware_print(FILE *f, const struct sp_machine *m)
{
    if (!m->kinds)
        print_one(f, m);
    for (int k = 0; k < m->kinds; k++) {
        fprintf(f, "%s%d of ", k ? "\n" : "", m->kind[k].count);
        print_one(f, m->kind[k].machine);
    }
}

static void print_one(FILE *f, const struct sp_machine *m)
{
    fprintf(f, "%s: nodes of %d x %s\n", m->name, m->devices_per_node, m->device);
    print_device(f, m);
    print_node(f, m);
    fputc('\n', f);
    for (const char *line = m->source; *line; line += strspn(line, "\n")) {
        int n = (int)strcspn(line, "\n");

        fprintf(f, "%.*s\n", n, line);
        line += n;
    }
}
