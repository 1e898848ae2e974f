/*
 * HelixPipe (Zhang et al. 2025): table 2, the bubble and the activation memory of 1F1B, ZB1P and
 * HelixPipe by formula and as the list simulation and the memory plan have them; figure 6, what
 * communication costs the naive and the two-fold schedule.
 */
#include "cli/options.h"
#include "cli/reproduce/reproduce.h"
#include "policies/families/activations.h"
#include "model/model.h"
#include "policies/plan.h"
#include "sp_error.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/times.h"
#include <math.h>
#include <stdio.h>

struct args {
    int stages, layers, micro_batches;
    const char *cost;
};

/* A line of the table; formulas of p, L, m and the costs of the parts, in units of a layer. */
struct line {
    const char *name, *schedule;
    enum sp_recompute recompute;
    double bubble; /* (p-1) x this: blocks, blocks and attention apart */
    const char *bubble_formula, *memory_formula;
    double memory; /* bsh numbers, of the first stage */
};

static int parse(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        {"stages", SP_OPT_INT, &a->stages, "P", "pipeline stages", 2, 256, 0, 0},
        {"layers", SP_OPT_INT, &a->layers, "L", "layers of the model", 1, 1024, 0, 0},
        {"micro-batches", SP_OPT_INT, &a->micro_batches, "M", "micro-batches (0: twice the stages)",
         0, 1024, 0, 0},
        {"cost", SP_OPT_STRING, &a->cost, "pre=..,attn=..,post=..",
         "forwards of the parts of a layer; a backward takes twice that", 0, 0, 0, 0},
        {0},
    };
    int ret = sp_options_parse(
        options, "Table 2 and figure 6 of HelixPipe, formula and simulated side by side.", argc,
        argv);

    if (ret)
        return ret;
    if (a->micro_batches == 0)
        a->micro_batches = 2 * a->stages;
    if (a->layers % a->stages)
        return sp_error(EINVAL, "reproduce: the formulas want a multiple of %d layers, not %d",
                        a->stages, a->layers);
    return 0;
}

static int plan_of(const struct args *a, const char *schedule, struct sp_plan *plan)
{
    struct sp_layout lay = {.stages = a->stages,
                            .micro_batches = a->micro_batches,
                            .slices = 1,
                            .layers = a->layers,
                            .options = ""};

    return sp_plan_create(schedule, &lay, plan);
}

/* Makespan, and its excess over the work of the busiest stage. */
static int simulate(const struct sp_plan *plan, const struct sp_costs *costs, double *makespan,
                    double *bubble)
{
    struct sp_times t;
    char why[256] = "";
    double most = 0;

    if (sp_listsim(plan, costs, SP_PAIRED, &t, why, sizeof why))
        return sp_error(EINVAL, "reproduce: %s", why);
    for (int s = 0; s < plan->layout.stages; s++)
        most = fmax(most, t.busy[s]);
    *makespan = t.makespan;
    *bubble = t.makespan - most;
    sp_times_destroy(&t);
    return 0;
}

/* Activations of the fullest and the emptiest stage, in bsh numbers: those of a wide model, whose
 * statistics are nothing beside them. */
static int memory_of(const struct sp_plan *plan, enum sp_recompute recompute, double *least,
                     double *most)
{
    struct sp_model m;
    struct sp_shape sh;

    *least = INFINITY;
    *most = 0;
    if (sp_model_load("preset:gpt3-7b", &m))
        return -EINVAL;
    m.layers = plan->layout.layers;
    sp_shape_init(&sh, &m, 1, 16384, plan->layout.micro_batches, 0, 0);
    for (int s = 0; s < plan->layout.stages; s++) {
        double bsh = (double)sp_stash_peak(plan, &sh, recompute, 1, s) / sizeof(float) /
                     ((double)sh.rows * m.hidden);

        *least = fmin(*least, bsh);
        *most = fmax(*most, bsh);
    }
    return 0;
}

static int print_line(const struct args *a, const struct line *line)
{
    struct sp_plan plan;
    struct sp_costs costs;
    double makespan, bubble, least, most;
    int ret = plan_of(a, line->schedule, &plan);

    if (ret)
        return ret;
    ret = sp_costs_parse(a->cost, &plan, &costs);
    if (!ret && line->recompute == SP_RECOMPUTE_NO_ATTENTION)
        sp_costs_add_recompute(&plan, false, &costs);
    ret = ret ? ret : simulate(&plan, &costs, &makespan, &bubble);
    ret = ret ? ret : memory_of(&plan, line->recompute, &least, &most);
    if (!ret)
        printf("%-22s %-30s %8.6g %9.6g   %-12s %7.6g  %8.5g %8.5g\n", line->name,
               line->bubble_formula, (a->stages - 1) * line->bubble, bubble, line->memory_formula,
               line->memory, most, least);
    sp_plan_destroy(&plan);
    return ret;
}

static int table_2(const struct args *a, const struct sp_part_costs *c)
{
    double L = a->layers, p = a->stages, m = a->micro_batches, blocks = c->pre + c->post;
    const struct line lines[] = {
        {"1F1B", "1f1b", SP_RECOMPUTE_NONE, 3 * (blocks + c->attn) * L / p,
         "3(p-1)(pre+attn+post)L/p", "16(p-i)L/p", 16 * L},
        {"ZB1P", "zb1p", SP_RECOMPUTE_NONE, (blocks + 3 * c->attn) * L / p,
         "(p-1)(pre+3attn+post)L/p", "16L", 16 * L},
        {"HelixPipe, naive FILO", "helix:fold=1,tail=published", SP_RECOMPUTE_NONE, 3 * blocks,
         "3(p-1)(pre+post)", "16mL/p", 16 * m * L / p},
        {"HelixPipe, two-fold", "helix:tail=published", SP_RECOMPUTE_NONE, 6 * blocks,
         "at most 6(p-1)(pre+post)", "16mL/p", 16 * m * L / p},
        {"HelixPipe", "helix:tail=published", SP_RECOMPUTE_NO_ATTENTION, 8 * blocks,
         "at most 8(p-1)(pre+post)", "4mL/p", 4 * m * L / p},
    };
    int ret = 0;

    printf("Table 2: %d stages, %d layers, %d micro-batches, pre %g, attn %g, post %g, a backward "
           "two forwards\n\n",
           a->stages, a->layers, a->micro_batches, c->pre, c->attn, c->post);
    printf("%-22s %-30s %8s %9s   %-12s %7s  %8s %8s\n", "", "bubble: formula", "", "simulated",
           "memory / bsh", "stage 0", "fullest", "emptiest");
    for (size_t i = 0; !ret && i < sizeof lines / sizeof *lines; i++)
        ret = print_line(a, &lines[i]);
    printf(
        "\nThe bubble is the makespan less the work of the busiest stage. Memory as planned, "
        "which is what runs\nmeasure: with attention's output held where it is written and where "
        "it is read.\n");
    return ret;
}

static int figure_6(const struct args *a)
{
    static const char *const schedules[] = {"helix:fold=1,tail=published",
                                            "helix:fold=2,tail=published"};
    static const double comm[] = {0, 0.25, 0.5, 0.75, 1};
    int ret = 0;

    printf("\nFigure 6: makespan with messages that take so long\n\n%-22s", "");
    for (size_t k = 0; k < 5; k++)
        printf(" %8g", comm[k]);
    putchar('\n');
    for (int i = 0; !ret && i < 2; i++) {
        struct sp_plan plan;
        struct sp_costs costs;
        double makespan = 0, bubble;

        ret = plan_of(a, schedules[i], &plan);
        if (ret)
            return ret;
        ret = sp_costs_parse(a->cost, &plan, &costs);
        printf("%-22s", i ? "two-fold" : "naive FILO");
        for (size_t k = 0; !ret && k < 5; k++) {
            costs.comm = comm[k];
            ret = simulate(&plan, &costs, &makespan, &bubble);
            printf(" %8.6g", makespan);
        }
        putchar('\n');
        sp_plan_destroy(&plan);
    }
    return ret;
}

int sp_reproduce_helixpipe(int argc, char **argv)
{
    struct args a = {.stages = 8, .layers = 32, .cost = "pre=1,attn=3,post=2"};
    struct sp_costs costs;
    struct sp_plan plan;
    int ret = parse(argc, argv, &a);

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (plan_of(&a, "helix", &plan))
        return 2;
    ret = sp_costs_parse(a.cost, &plan, &costs);
    if (!ret && costs.parts.backward != 2)
        ret = sp_error(EINVAL, "reproduce: the formulas have a backward of two forwards, not %g",
                       costs.parts.backward);
    if (!ret && costs.comm > 0)
        ret = sp_error(EINVAL, "reproduce: table 2 is without communication; leave comm out");
    sp_plan_destroy(&plan);
    if (ret)
        return 2;
    ret = table_2(&a, &costs.parts);
    ret = ret ? ret : figure_6(&a);
    return ret ? 1 : 0;
}
