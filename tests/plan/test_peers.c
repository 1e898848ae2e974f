/*
 * Tensors parked on other stages beside evicted ones: when they are out of memory and where they are
 * meanwhile, against a walk over the actions; limits; the bytes of each tier; and that both ways
 * together are faster than either alone.
 */
#include "offload/host.h"
#include "plan/offload/offload.h"
#include "plan/predict.h"
#include "plan/recompute.h"
#include "policies/common.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/parking_choice.h"
#include "policies/lowering/tensor.h"
#include "policies/plan_create.h"
#include <stdlib.h>

static struct sp_machine machine;

static int load(void **state)
{
    (void)state;
    return sp_machine_load("h100-ib", &machine);
}

static void make(const char *schedule, const char *name, int stages, int m, struct sp_plan *plan,
                 struct sp_shape *sh)
{
    struct sp_layout lay = layout(stages, m);
    struct sp_model model;

    assert_int_equal(sp_model_load(name, &model), 0);
    lay.layers = model.layers;
    lay.chunks = 0;
    assert_int_equal(sp_plan_create(schedule, &lay, plan), 0);
    sp_shape_init(sh, &model, 1, 2048, m);
    sh->dtype = SP_BF16;
    plan->processes = stages;
}

static struct sp_op_terms terms_of(enum sp_recompute mode)
{
    return (struct sp_op_terms){.machine = &machine, .devices = 1, .recompute = mode, .every = 1};
}

/* ---- against the actions ----------------------------------------------------------------------- */

enum { STAGES = 8, OPS = 256, WAITING = 64 };

/* Bytes of parked tensors at every op, as a run has them in memory or not. */
struct walk {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    int64_t guests[STAGES][OPS], away[STAGES][OPS]; /* from an op to the next one: differences */
    int runs[STAGES], at[STAGES][OPS + 2];          /* the op of each RUN */
    int64_t sent[STAGES];
};

static int64_t pages_of(const struct walk *w, const struct sp_tensor_id *t)
{
    int64_t sum = 0;

    for (int i = 0; i < sp_tensor_pieces(w->plan, w->sh, t); i++) {
        size_t elem, n = sp_tensor_piece(w->plan, w->sh, t, i, &elem);

        sum += (int64_t)sp_host_round(n * elem);
    }
    return sum;
}

static int op_of_run(const struct walk *w, int stage, int run)
{
    const struct sp_program *prog = &w->plan->programs[stage];
    int k = 0;

    for (int i = 0; i < run && k < prog->n; i++)
        k += prog->ops[k].overlap ? 2 : 1;
    return k;
}

/* runs[s] is the number of RUNs so far, so it is also the next one. */
static void note(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;
    int s = a->stage, next = op_of_run(w, s, w->runs[s]), later = op_of_run(w, s, w->runs[s] + 1);
    bool stash = a->tensor.kind == SP_TENSOR_STASH;

    if (a->kind == SP_ACTION_RUN && a->index >= 0)
        w->runs[s]++;
    if (stash && a->kind == SP_ACTION_SEND) { /* out of memory when one more op has ended */
        (a->index >= 0 ? w->away : w->guests)[s][later] +=
            (a->index >= 0 ? 1 : -1) * pages_of(w, &a->tensor);
        w->sent[s] += a->bytes;
    } else if (stash && a->kind == SP_ACTION_RECV) {
        (a->index >= 0 ? w->away : w->guests)[s][next] +=
            (a->index >= 0 ? -1 : 1) * pages_of(w, &a->tensor);
    }
}

static int64_t parked_away(const struct sp_eviction_plan *a, int slot)
{
    int64_t sum = 0;

    for (int i = 0; i < a->n_units; i++) {
        const struct sp_unit *u = &a->units[i];

        sum += slot >= u->peer_gone && slot < u->peer_back ? sp_unit_parked(u) : 0;
        assert_true(!(u->out & u->parked));
    }
    return sum;
}

static int parts, wholes;

/* Compares a choice with the actions of a step. */
static void check(struct sp_plan *plan, const struct sp_shape *sh, const struct sp_offload *o,
                  int64_t limit)
{
    static struct walk w;
    struct sp_lowering l;

    w = (struct walk){.plan = plan, .sh = sh};
    assert_int_equal(sp_lowering_create(plan, sh, plan->layout.stages, &l), 0);
    assert_int_equal(sp_lower_step(&l, note, &w), 0);
    for (int s = 0; s < plan->layout.stages; s++) {
        const struct sp_eviction_plan *a = &o->evictions[s];
        int64_t guests = 0, away = 0;

        assert_true(sp_memory_sum(&o->memory[s]) <= limit);
        for (int k = 0; k < plan->programs[s].n; k++) {
            guests += w.guests[s][k];
            away += w.away[s][k];
            for (int i = a->op_slots[k]; i < a->op_slots[k + 1]; i++) {
                assert_true(a->also[i] == guests);
                assert_true(parked_away(a, i) == away);
            }
        }
        for (int i = 0; plan->parking && i < plan->parking->stage[s].n; i++) {
            const struct sp_parked *p = &plan->parking->stage[s].unit[i];
            int first, count;

            sp_chunk_layers(plan, sh->model.layers, s, plan->programs[s].ops[p->leaves].chunk,
                            &first, &count);
            for (int j = 0; j < count; j++)
                (p->tensors[j] == 127 ? &wholes : &parts)[0] += p->tensors[j] != 0;
        }
    }
    sp_lowering_destroy(&l);
}

/* Limits between all that may leave and nothing, of schedules that differ in when what returns. */
TEST(walk)
{
    static const char *const schedules[] = {"1f1b",    "interleaved", "1f1b-v",  "zb1p",
                                            "chimera", "gpipe",       "dualpipe"};
    int parked = 0;

    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int k = 0; k < 8; k++) {
            enum sp_recompute mode = k % 2 ? SP_RECOMPUTE_SELECTIVE : SP_RECOMPUTE_NONE;
            const struct sp_op_terms terms = terms_of(mode);
            struct sp_offload_request want;
            struct sp_offload o = {0};
            struct sp_offload_lack lack;
            struct sp_memory most;
            struct sp_plan plan;
            struct sp_shape sh;
            int64_t none;

            make(schedules[i], "gpt3-1.3b", 4, 8, &plan, &sh);
            assert_int_equal(sp_memory_fullest(&plan, &sh, mode, 1, &most, NULL), 0);
            none = sp_memory_sum(&most);
            want = sp_offload_request(&terms, &sh, SP_OFFLOAD_ADAPTIVE,
                                      none - most.activations * (1 + k) / 10);
            want.peers = true;
            if (!sp_offload_try(&plan, &sh, &want, &o, &lack)) {
                assert_int_equal(sp_offload_apply(&o, &sh, &plan), 0);
                check(&plan, &sh, &o, want.limit);
                parked += plan.parking != NULL;
            }
            sp_offload_destroy(&o);
            sp_plan_destroy(&plan);
        }
    print_message("%d plans park; %d layers all that they keep, %d some tensors\n", parked, wholes,
                  parts);
    assert_true(parked >= 8 && parts > 0);
}

/* Stages of one process have one memory. */
TEST(processes)
{
    const struct sp_op_terms terms = terms_of(SP_RECOMPUTE_NONE);
    struct sp_offload_request want;
    struct sp_offload_lack lack;
    struct sp_offload o = {0};
    struct sp_plan plan;
    struct sp_shape sh;
    struct sp_memory most;

    make("1f1b", "gpt3-1.3b", 4, 8, &plan, &sh);
    assert_int_equal(sp_memory_fullest(&plan, &sh, SP_RECOMPUTE_NONE, 1, &most, NULL), 0);
    for (int processes = 1; processes <= 4; processes += processes) {
        plan.processes = processes;
        for (int mode = SP_OFFLOAD_FULL; mode <= SP_OFFLOAD_ADAPTIVE; mode++) {
            want = sp_offload_request(&terms, &sh, (enum sp_offload_mode)mode,
                                      sp_memory_sum(&most) - most.activations / 8);
            want.peers = true;
            assert_int_equal(sp_offload_try(&plan, &sh, &want, &o, &lack), 0);
            assert_true(!o.parking == (processes == 1));
        }
    }
    sp_offload_destroy(&o);
    sp_plan_destroy(&plan);
}

/* ---- what it is for ---------------------------------------------------------------------------- */

static double step_ms(const struct sp_plan *plan, const struct sp_shape *sh)
{
    const struct sp_predict_request request = {.plan = plan,
                                               .shape = sh,
                                               .terms = terms_of(SP_RECOMPUTE_NONE),
                                               .tier = sp_offload_tier(&machine, 1)};
    struct sp_prediction p;
    double ms;

    assert_int_equal(sp_predict(&request, &p), 0);
    ms = p.step_ms;
    sp_prediction_destroy(&p);
    return ms;
}

/* gpt3-7b on 8 stages. Parked activations alone do not keep to the limit; main memory alone does, but
 * its bus makes stage 0 wait; together they keep to it in the time of a step without a limit. */
TEST(faster)
{
    const struct sp_op_terms terms = terms_of(SP_RECOMPUTE_NONE);
    const int64_t limit = (int64_t)30000 << 20;
    double plain, ms[2];
    struct sp_memory most;
    struct sp_plan plan;
    struct sp_shape sh;
    static struct walk w;
    struct sp_lowering l;

    make("1f1b", "gpt3-7b", 8, 32, &plan, &sh);
    plain = step_ms(&plan, &sh);
    assert_int_equal(sp_parking_create(&plan, &sh, SP_RECOMPUTE_NONE, 1), 0);
    assert_int_equal(sp_memory_fullest(&plan, &sh, SP_RECOMPUTE_NONE, 1, &most, NULL), 0);
    assert_true(sp_memory_sum(&most) > limit);
    sp_offload_undo(&plan);
    for (int peers = 0; peers < 2; peers++) {
        struct sp_offload_request want =
            sp_offload_request(&terms, &sh, SP_OFFLOAD_ADAPTIVE, limit);
        struct sp_offload o = {0};

        want.peers = peers;
        assert_int_equal(sp_offload_create(&plan, &sh, &want, &o), 0);
        assert_int_equal(sp_offload_apply(&o, &sh, &plan), 0);
        ms[peers] = step_ms(&plan, &sh);
        for (int s = 0; s < 8; s++)
            assert_true(sp_memory_sum(&o.memory[s]) <= limit);
        w = (struct walk){.plan = &plan, .sh = &sh};
        assert_int_equal(sp_lowering_create(&plan, &sh, 8, &l), 0);
        assert_int_equal(sp_lower_step(&l, note, &w), 0);
        for (int s = 0; s < 8; s++) {
            struct sp_tier_bytes b = sp_offload_tiers(&plan, &sh, SP_RECOMPUTE_NONE, 1, s);
            int64_t all =
                32 * sp_stash_of_op(&plan, &sh, SP_RECOMPUTE_NONE, 1, s, &plan.programs[s].ops[0]);

            assert_true(b.recomputed == 0 && b.evicted == o.evictions[s].bytes);
            assert_true(b.kept + b.parked + b.evicted == all);
            assert_true(b.parked == 0 || b.parked == w.sent[s]);
        }
        assert_true(!peers == !w.sent[0]);
        sp_lowering_destroy(&l);
        sp_offload_destroy(&o);
        sp_offload_undo(&plan);
    }
    print_message("within %lld MiB: %.0f ms with main memory, %.0f ms with other stages too, %.0f "
                  "ms without a limit; other stages alone need %lld MiB\n",
                  (long long)limit >> 20, ms[0], ms[1], plain,
                  (long long)sp_memory_sum(&most) >> 20);
    assert_true(ms[1] < 1.005 * plain && ms[0] > 1.1 * ms[1]);
    sp_plan_destroy(&plan);
}

/* Computing again, other stages and main memory are weighed together: no slower than without other
 * stages, and within the limit. */
TEST(recompute)
{
    double gain = 0;

    for (int GiB = 16; GiB <= 24; GiB += 4) {
        struct sp_recompute_wish wish = {.offload = SP_OFFLOAD_ADAPTIVE,
                                         .limit = (int64_t)GiB << 30,
                                         .machine = &machine,
                                         .devices = 1};
        struct sp_recompute_chosen c[2];
        struct sp_plan plan;
        struct sp_shape sh, shorter;

        make("1f1b", "gpt3-1.3b", 4, 16, &plan, &shorter);
        sp_shape_init(&sh, &shorter.model, 1, 16384, 16);
        sh.dtype = SP_BF16;
        wish.plan = &plan;
        wish.shape = &sh;
        for (int peers = 0; peers < 2; peers++) {
            wish.peers = peers;
            assert_int_equal(sp_recompute_choose(&wish, &c[peers]), 0);
            assert_true(!plan.recompute && !plan.evictions && !plan.parking);
        }
        print_message("%d GiB: %.1f ms without other stages, %.1f ms with them\n", GiB,
                      c[0].step_ms, c[1].step_ms);
        assert_true(c[1].step_ms <= c[0].step_ms * (1 + 1e-9));
        gain = c[0].step_ms / c[1].step_ms - 1 > gain ? c[0].step_ms / c[1].step_ms - 1 : gain;
        if (c[1].leaves) {
            const struct sp_op_terms terms = terms_of(c[1].mode);
            struct sp_offload_request want =
                sp_offload_request(&terms, &sh, SP_OFFLOAD_ADAPTIVE, wish.limit);
            struct sp_offload o = {0};

            want.peers = true;
            plan.recompute = c[1].layer;
            assert_int_equal(sp_offload_create(&plan, &sh, &want, &o), 0);
            assert_int_equal(sp_offload_apply(&o, &sh, &plan), 0);
            check(&plan, &sh, &o, wish.limit);
            sp_offload_destroy(&o);
            plan.recompute = NULL;
        }
        sp_plan_destroy(&plan);
        free(c[0].layer);
        free(c[1].layer);
    }
    assert_true(gain > 0.002);
}

TEST_FIXTURE(load, NULL)
