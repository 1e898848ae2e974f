/*
 * WeiPipe: what the text says of its tables and figures, figures 6 and 7 on their grids, and what a
 * ring carries.
 */
#include "cli/reproduce/weipipe.h"
#include "plan/simulation/step_messages.h"
#include "policies/plan_create.h"
#include <math.h>
#include <string.h>

/* ---- figure 5: what is sent */

enum { LAYERS = 32, SEQ = 4096 };

/* A schedule on four workers and the messages of its step. */
struct sending {
    struct sp_plan plan;
    struct sp_step_messages messages;
};

/* In f32, as gradients are; `model` NULL: without sizes. 0 or -errno. */
static int create_sending(const char *schedule, int micro_batches, int layers,
                          const struct sp_model *model, struct sending *s)
{
    struct sp_layout lay = {
        .stages = 4, .micro_batches = micro_batches, .slices = 1, .layers = layers, .options = ""};
    struct sp_shape sh;
    int err = sp_plan_create(schedule, &lay, &s->plan);

    if (err)
        return err;
    if (model)
        sp_shape_init(&sh, model, 1, SEQ, micro_batches);
    err = sp_step_messages_create(&s->plan, model ? &sh : NULL, &s->messages);
    if (err)
        sp_plan_destroy(&s->plan);
    return err;
}

static void destroy_sending(struct sending *s)
{
    sp_step_messages_destroy(&s->messages);
    sp_plan_destroy(&s->plan);
}

/* Numbers that a worker of the ring passes on in a turn, weights twice and gradients, a layer, in
 * H^2. */
static int sent_in_a_turn(struct sp_cell *c)
{
    double numbers[SP_TENSOR_KINDS] = {0}, sum;
    struct sp_model model;
    struct sending s;
    int err = sp_model_load("llama-h4096", &model);

    err = err ? err : create_sending("weipipe", 12, LAYERS, &model, &s);
    if (err)
        return err;
    for (int i = 0; i < s.messages.n; i++) {
        const struct sp_step_message *m = &s.messages.message[i];

        if (m->reader >= 0)
            numbers[m->tensor.kind] = (double)m->bytes / sizeof(float);
    }
    sum = numbers[SP_TENSOR_W] + numbers[SP_TENSOR_WB] + numbers[SP_TENSOR_D];
    sp_cell_set(c, sum / (LAYERS / 4) / ((double)model.hidden * model.hidden));
    destroy_sending(&s);
    return 0;
}

/* Tells whether a message has weights of a chunk, or gradients of them. */
static bool is_chunk(const struct sp_step_message *m)
{
    return m->tensor.kind == SP_TENSOR_W || m->tensor.kind == SP_TENSOR_WB ||
           m->tensor.kind == SP_TENSOR_D;
}

/* Chunks that worker 1 passes on for each operation of its own, over a step so long that filling
 * and draining count for little. */
static int chunks_of(const char *schedule, double *sent)
{
    struct sending s;
    int n = 0, err = create_sending(schedule, 240, 4, NULL, &s);

    if (err)
        return err;
    for (int i = 0; i < s.messages.n; i++) {
        const struct sp_step_message *m = &s.messages.message[i];

        n += m->from == 1 && m->to == 2 && is_chunk(m);
    }
    *sent = (double)n / s.plan.programs[1].n;
    destroy_sending(&s);
    return 0;
}

/* Numbers of a layer's weights over those of an activation, times GS/(12H). */
static int crossing(struct sp_cell *c)
{
    static const char *const schedules[] = {"weipipe", "1f1b"};
    double numbers[2] = {0};
    struct sp_model model;
    int err = sp_model_load("llama-h4096", &model);

    for (int i = 0; !err && i < 2; i++) {
        struct sending s;

        err = create_sending(schedules[i], 8, LAYERS, &model, &s);
        if (err)
            return err;
        for (int k = 0; k < s.messages.n; k++) {
            const struct sp_step_message *m = &s.messages.message[k];
            bool weights = m->tensor.kind == SP_TENSOR_W;

            if (i ? !weights : weights && m->bytes)
                numbers[i] = (double)m->bytes / sizeof(float);
        }
        destroy_sending(&s);
    }
    if (!err)
        sp_cell_set(c, numbers[0] / (LAYERS / 4) / numbers[1] * SEQ / (12.0 * model.hidden));
    return err;
}

int sp_weipipe_figure_5_communication(struct sp_cell *c)
{
    double sent, naive;
    int err;

    if (!strncmp(c->row, "sent in", 7))
        return sent_in_a_turn(c);
    if (!strncmp(c->row, "GS/(12H)", 8))
        return crossing(c);
    err = chunks_of(sp_cell_text(c, "schedule", "weipipe"), &sent);
    if (err || strcmp(sp_cell_text(c, "over", ""), "weipipe-naive")) {
        if (!err)
            sp_cell_set(c, sent);
        if (!strcmp(sp_cell_text(c, "schedule", ""), "wzb2"))
            sp_cell_note(c, "here a chunk travels only to operations that read or add to it");
        return err;
    }
    err = chunks_of("weipipe-naive", &naive);
    if (!err)
        sp_cell_set(c, naive / sent);
    return err;
}

/* ---- figure 5: bubbles */

/* With forwards, backwards of inputs and of weights that take the same, on 4 workers with 12
 * micro-batches. */
static int bubble_of(const char *schedule, double *bubble)
{
    struct sp_theory t = {.schedule = schedule,
                          .stages = 4,
                          .micro_batches = 12,
                          .layers = 32,
                          .costs = "f=1,b=1,w=1"};
    struct sp_theory_result r;
    int err = sp_theory_run(&t, &r);

    *bubble = err ? NAN : r.bubble;
    return err;
}

static int same_bubble(struct sp_cell *c)
{
    double ours, theirs = 0;
    int err = bubble_of("weipipe", &ours);

    err = err ? err : bubble_of("1f1b", &theirs);
    sp_cell_holds(c, fabs(ours - theirs) < 0.005, "P=4, N=12: %.1f and %.1f %%", 100 * ours,
                  100 * theirs);
    return err;
}

static int smaller_bubbles(struct sp_cell *c)
{
    double plain, one = 0, two = 0;
    int err = bubble_of("weipipe", &plain);

    err = err ? err : bubble_of("wzb1", &one);
    err = err ? err : bubble_of("wzb2", &two);
    sp_cell_holds(c, one < plain && two < plain,
                  "P=4, N=12: WZB1 %.1f, WZB2 %.1f, Interleave %.1f %%", 100 * one, 100 * two,
                  100 * plain);
    return err;
}

/* "Almost no bubble" in a round as drawn, where the next step's forwards follow: not with a step
 * that ends. */
static int almost_no_bubble(struct sp_cell *c)
{
    double zb2, wzb2 = 0;
    int err = bubble_of("zb2p", &zb2);

    err = err ? err : bubble_of("wzb2", &wzb2);
    sp_cell_holds(c, zb2 < 0.1 && wzb2 < 0.1,
                  "P=4, N=12: ZB2 %.1f, WZB2 %.1f %% of a step that fills and drains", 100 * zb2,
                  100 * wzb2);
    return err;
}

/* ---- table 2: memory */

/* The systems of tables and figures, by their schedules. */
enum { ONE, SYSTEMS = 5, FSDP = 3, WEIPIPE = 4 };
static const char *const systems[SYSTEMS] = {"1f1b", "zb1p", "zb2p", "fsdp", "weipipe"};

/* Bytes of a GPU in a row of the table, by systems. */
static int memory_of_row(int row, double bytes[SYSTEMS])
{
    struct sp_weipipe_setting setting = sp_weipipe_row(row);
    int err = 0;

    setting.memory_only = true;
    for (int i = 0; !err && i < SYSTEMS; i++) {
        struct sp_run_result r;
        struct sp_run run;

        err = sp_weipipe_run(&setting, systems[i], &run, &r);
        bytes[i] = err ? 0 : r.memory_bytes;
    }
    return err;
}

static int least_is_1f1b(struct sp_cell *c)
{
    int n = 0;

    for (int i = 0; i < SP_WEIPIPE_ROWS; i++) {
        double bytes[SYSTEMS];
        int err = memory_of_row(i, bytes);

        if (err)
            return err;
        n += bytes[ONE] <= fmin(bytes[1], fmin(bytes[2], bytes[WEIPIPE]));
    }
    sp_cell_holds(c, n == SP_WEIPIPE_ROWS, "in %d of %d rows", n, SP_WEIPIPE_ROWS);
    return 0;
}

static int more_than_fsdp(struct sp_cell *c)
{
    double least = INFINITY, most = 0;
    int n = 0;

    for (int i = 0; i < SP_WEIPIPE_ROWS; i++) {
        double bytes[SYSTEMS], ratio;
        int err = memory_of_row(i, bytes);

        if (err)
            return err;
        ratio = bytes[WEIPIPE] / bytes[FSDP];
        n += ratio > 1;
        least = fmin(least, ratio);
        most = fmax(most, ratio);
    }
    sp_cell_holds(c, n == SP_WEIPIPE_ROWS, "in %d of %d rows; %.2f to %.2f times", n,
                  SP_WEIPIPE_ROWS, least, most);
    return 0;
}

/* ---- figures 6 and 7 */

enum { SIZES = 3 };

static const int sizes[SIZES] = {8, 16, 32};

/* Tokens a second and GPU by the arrays above, with `all` sequences a step, 0: 16 a GPU; 0 where it
 * does not fit. The paper does not say the hidden size: 2048 is the middle one of its tables. */
static int rates_by_size(int all, double rates[SIZES][SYSTEMS])
{
    struct sp_weipipe_setting setting = sp_weipipe_row(5); /* h = 2048, 16384 tokens */
    int err = 0;

    setting.machine = "a800-pcie-eth";
    for (int i = 0; i < SIZES; i++) {
        setting.devices = sizes[i];
        setting.sequences = all ? all / sizes[i] : 16;
        for (int k = 0; !err && k < SYSTEMS; k++)
            err = sp_weipipe_rate(&setting, systems[k], &rates[i][k]);
    }
    return err;
}

int sp_weipipe_figures_6_7(struct sp_unpublished *out)
{
    static const char *const columns[] = {"8 GPUs", "16 GPUs", "32 GPUs"};
    static const struct {
        const char *id;
        int all;
    } figures[] = {{"figure6", 0}, {"figure7", 128}};
    int n = 0;

    for (int f = 0; f < 2; f++) {
        double rates[SIZES][SYSTEMS];
        int err = rates_by_size(figures[f].all, rates);

        if (err)
            return err;
        for (int k = 0; k < SYSTEMS; k++)
            for (int i = 0; i < SIZES; i++)
                if (rates[i][k] > 0)
                    out[n++] = (struct sp_unpublished){figures[f].id, systems[k], columns[i],
                                                       "tokens/s/GPU with h = 2048", rates[i][k]};
    }
    return n;
}

/* "In proportion": a GPU of 32 has nine tenths of what one of 8 has. */
static int scales(struct sp_cell *c)
{
    double rates[SIZES][SYSTEMS], kept;
    int err = rates_by_size(0, rates);

    if (err)
        return err;
    kept = rates[SIZES - 1][WEIPIPE] / rates[0][WEIPIPE];
    sp_cell_holds(c, kept > 0.9, "a GPU of 32 has %.0f %% of what one of 8 has", 100 * kept);
    return 0;
}

static int slower_than_fsdp(struct sp_cell *c)
{
    double rates[SIZES][SYSTEMS];
    int err = rates_by_size(0, rates);

    if (err)
        return err;
    sp_cell_holds(c, rates[0][WEIPIPE] < rates[0][FSDP],
                  "on the 8 GPUs of a node WeiPipe has %.2f of FSDP's rate, on 32 GPUs %.2f",
                  rates[0][WEIPIPE] / rates[0][FSDP],
                  rates[SIZES - 1][WEIPIPE] / rates[SIZES - 1][FSDP]);
    return 0;
}

static int scales_best(struct sp_cell *c)
{
    double rates[SIZES][SYSTEMS], kept[SYSTEMS];
    bool best = true;
    int err = rates_by_size(128, rates);

    if (err)
        return err;
    for (int k = 0; k < SYSTEMS; k++) {
        kept[k] = rates[0][k] > 0 ? rates[SIZES - 1][k] / rates[0][k] : 0;
        best &= kept[k] <= kept[WEIPIPE] || k == WEIPIPE;
    }
    for (int k = 0; k < WEIPIPE; k++)
        best &= kept[k] < kept[WEIPIPE];
    sp_cell_holds(c, best, "of 8 GPUs' rate a GPU, 32 have: WeiPipe %.0f %%, FSDP %.0f, 1F1B %.0f",
                  100 * kept[WEIPIPE], 100 * kept[FSDP], 100 * kept[0]);
    return 0;
}

const struct sp_experiment sp_weipipe_claims[] = {
    {"same-bubble", same_bubble},
    {"smaller-bubbles", smaller_bubbles},
    {"almost-no-bubble", almost_no_bubble},
    {"least-is-1f1b", least_is_1f1b},
    {"more-than-fsdp", more_than_fsdp},
    {"scales", scales},
    {"slower-than-fsdp", slower_than_fsdp},
    {"scales-best", scales_best},
    {0},
};
