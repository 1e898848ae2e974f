/* The times of a layer's parts when devices share a stage. */
#include "../policies/common.h"
#include "model/model.h"
#include "plan/cost/op_times.h"
#include "plan/cost/part_times.h"
#include "plan/memory.h"
#include <math.h>
#include <stdio.h>

/* The times for one sequence, on devices that share layers or members that share tokens. */
static struct sp_part_times times(const struct sp_machine *machine, const char *name, int seq,
                                  int devices, int members, int ulysses)
{
    struct sp_part_times t;
    struct sp_model model;
    struct sp_shape sh;

    assert_int_equal(sp_model_load(name, &model), 0);
    sp_shape_init(&sh, &model, 1, seq, 1);
    sh.dtype = SP_BF16;
    sp_shape_context(&sh, members, ulysses);
    sp_part_times(machine, devices, &sh, &t);
    return t;
}

static double forward(const struct sp_machine *machine, int devices)
{
    struct sp_part_times t = times(machine, "gpt3-7b", 16384, devices, 1, 1);

    return t.pre + t.attention + t.post;
}

/* A layer's forward gathers or scatters its rows four times; between nodes they go through the
 * adapters. */
TEST(gathers_beyond_a_node_take_the_network)
{
    static struct sp_machine machine, fast;
    const double bytes = 2.0 * 16384 * 4096 * 15 / 16;
    double beyond, within, adapters, more;

    assert_int_equal(sp_machine_load("a100-sppo", &machine), 0);
    fast = machine;
    fast.network.bandwidth = 1e15;
    fast.network.latency_s = 0;
    beyond = forward(&machine, 16);
    within = forward(&fast, 16);
    adapters = machine.network.bandwidth * machine.devices_per_node / machine.network.shared_by;
    more = 4 * (bytes / adapters + machine.network.latency_s - bytes / machine.node.bandwidth -
                machine.node.latency_s);
    printf("  16 devices: %.2f ms, %.2f if the network were no slower than a node; %.2f more, not "
           "%.2f\n",
           1e3 * beyond, 1e3 * within, 1e3 * (beyond - within), 1e3 * more);
    assert_true(fabs((beyond - within) / more - 1) < 1e-6);
    assert_true(forward(&machine, 8) == forward(&fast, 8));
}

/* A block that keeps no inner tensors recomputes all of post, since its output is needed, and a
 * norm. The MLP in chunks of rows recomputes its first product once more, and attention q, k and v
 * if it has their weights. The last block's forward is left to the head. */
TEST(blocks_make_their_output_again)
{
    static struct sp_machine machine;
    static const char *const names[] = {"helix:qkv=weights", "helix:qkv=activations",
                                        "helix:ship=attention"};

    assert_int_equal(sp_machine_load("h20-ib", &machine), 0);
    for (int k = 0; k < 6; k++) {
        struct sp_op_terms terms = {.machine = &machine, .devices = 1, .every = 1};
        struct sp_layout lay = layout(2, 4);
        struct sp_part_times t;
        struct sp_model model;
        struct sp_shape sh;
        struct sp_plan plan;
        double *none, *again, block, attention;
        bool module = k % 3 == 2, chunks = k >= 3; /* MLPs without and with */
        int id;

        assert_int_equal(sp_model_load("gpt3-1.3b", &model), 0);
        lay.layers = model.layers;
        assert_int_equal(sp_plan_create(names[k % 3], &lay, &plan), 0);
        sp_shape_init(&sh, &model, 1, 16384, 4);
        sp_shape_cut(&sh, chunks ? 4096 : 0, 0);
        sh.dtype = SP_BF16;
        sp_part_times(&machine, 1, &sh, &t);
        none = sp_op_times(&plan, &sh, &terms);
        terms.recompute = SP_RECOMPUTE_NO_ATTENTION;
        again = sp_op_times(&plan, &sh, &terms);
        block = t.post + (chunks ? t.up : 0) - (module ? t.out : 0);
        attention = k % 3 == 1 ? 0 : module ? t.pre : t.qkv;
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < plan.programs[s].n; i++) {
                const struct sp_op *op = &plan.programs[s].ops[i];
                bool last = op->part != SP_ATTN && op->chunk == lay.layers;
                double norm =
                    op->chunk < lay.layers && !module ? t.pre_again[SP_RECOMPUTE_SELECTIVE] : 0;
                double mlp =
                    module && !last ? t.post_again[SP_RECOMPUTE_NO_ATTENTION] - t.out : block;
                double want;

                if (op->pass == SP_F) /* an output that only the head reads is computed in its
                                       * backward */
                    want = last ? machine.rates.launch_s - t.post + (module ? t.out : 0) : 0;
                else
                    want = op->part == SP_ATTN ? attention : norm + (op->chunk > 0 ? mlp : 0);
                id = plan.family->id(&plan.layout, s, op);
                if (fabs(again[id] - none[id] - 1e3 * want) > 1e-6 * none[id])
                    fail_msg("%s: an op takes %g ms more, not %g", names[k % 3],
                             again[id] - none[id], 1e3 * want);
            }
        free(none);
        free(again);
        sp_plan_destroy(&plan);
    }
}

/* Seconds of the forward and backward of a layer's attention when `members` share tokens. */
static void attention(const struct sp_machine *machine, int members, int ulysses, double seconds[2])
{
    struct sp_part_times t = times(machine, "llama3-405b", 65536, 1, members, ulysses);

    seconds[0] = t.attention;
    seconds[1] = t.attention_input;
}

/* The time beyond that over links that take none must follow from the bytes of graphs/context/:
 * heads send (1 + 1/r) (t-1)/t^2 T 2h e each way. A ring sends 2 (t-1)/t T h e/r forward, hidden
 * unless that takes longer; groups of u with a head each send (1 + 1/r) (u-1)/(u t) T 2h e, and around
 * the ring a u-th. */
TEST(members_exchange)
{
    static struct sp_machine machine, fast;
    const double T = 65536, h = 16384, r = 16, e = 2;
    double at[2], alone[2], ring[2];

    assert_int_equal(sp_machine_load("a800-ib", &machine), 0);
    fast = machine;
    fast.node.bandwidth = fast.network.bandwidth = 1e18;
    fast.node.latency_s = fast.network.latency_s = 0;
    attention(&machine, 8, 8, at);
    attention(&fast, 8, 8, alone);
    for (int pass = 0; pass < 2; pass++) {
        double bytes = 2 * (1 + 1 / r) * 7 / 64 * T * h * e;
        double more = bytes / machine.node.bandwidth + machine.node.latency_s;

        assert_true(fabs((at[pass] - alone[pass]) / more - 1) < 1e-6);
    }
    attention(&machine, 8, 1, ring);
    for (int pass = 0; pass < 2; pass++) /* long sequences hide the ring's messages */
        assert_true(fabs(ring[pass] / alone[pass] - 1) < 1e-6);
    machine.node.bandwidth /= 1e4;
    attention(&machine, 8, 1, ring);
    for (int pass = 0; pass < 2; pass++) {
        double turn = 2 * T / 8 * h / r * e / machine.node.bandwidth + machine.node.latency_s;

        assert_true(fabs((ring[pass] - machine.rates.launch_s) / ((pass ? 15 : 7) * turn) - 1) <
                    1e-6);
    }
    assert_int_equal(sp_machine_load("a800-ib", &machine), 0); /* 16 members on two nodes */
    machine.network.bandwidth /= 1e4;
    attention(&machine, 16, 8, at);
    for (int pass = 0; pass < 2; pass++) {
        double inside = 2 * (1 + 1 / r) * 7 / 128 * T * h * e / machine.node.bandwidth;
        double turn =
            2 * T / 16 * h / r * e * machine.network.shared_by / machine.network.bandwidth;
        double links = machine.node.latency_s + (pass ? 3 : 1) * machine.network.latency_s;
        double want = inside + (pass ? 3 : 1) * turn + links + machine.rates.launch_s;

        assert_true(machine.network.shared_by > 1 && fabs(at[pass] / want - 1) < 1e-6);
    }
}

/* Attention whose pairs are priced separately: a call takes the time of its heads, each that of its
 * operations and its pairs. Heads half as wide take less, but have as many pairs. */
TEST(pairs_count_beside_operations)
{
    static struct sp_machine machine;
    const double flops = 4.0 * 64 * 1000;
    struct sp_model model;
    struct sp_shape sh;

    assert_int_equal(sp_machine_load("laptop", &machine), 0);
    assert_int_equal(sp_model_load("gpt-tiny", &model), 0);
    sp_shape_init(&sh, &model, 1, 128, 1);
    sh.model.head_dim = 64;
    for (int pass = 0; pass < SP_ATTENTION_PASSES; pass++) {
        struct sp_attention_call call = {
            .pass = (enum sp_attention_pass)pass, .flops = 6 * flops, .heads = 6, .parts = 2};
        double times = pass == SP_ATTENTION_FORWARD ? 1 : 2.5, wide, narrow;

        /* rates that differ by size: the size is that of one head */
        machine.rates.attention[SP_F32][pass] =
            (struct sp_curve){2, {{times * flops, 1e9}, {6 * times * flops, 1e12}}};
        machine.rates.pairs[SP_F32][pass] = (struct sp_curve){2, {{1000, 1e7}, {6000, 1e10}}};
        wide = sp_attention_s(&machine, &sh, &call);
        assert_true(fabs(wide / (3 * (times * flops / 1e9 + 1000 / 1e7)) - 1) < 1e-9);
        sh.model.head_dim = 32;
        call.flops /= 2;
        narrow = sp_attention_s(&machine, &sh, &call);
        assert_true(fabs(narrow / (3 * (times * flops / 2 / 1e9 + 1000 / 1e7)) - 1) < 1e-9);
        sh.model.head_dim = 64;
        machine.rates.pairs[SP_F32][pass].n = 0;
        machine.rates.attention[SP_F32][pass] = (struct sp_curve){1, {{1, 1e9}}};
        assert_true(
            fabs(sp_attention_s(&machine, &sh, &call) / (times * call.flops / 2 / 1e9) - 1) < 1e-9);
    }
}

/* Passes in bf16 have their own rate if the machine gives one, else that of f32; the update is in
 * f32. */
TEST(passes_in_bf16_have_a_rate)
{
    static struct sp_machine machine;

    assert_int_equal(sp_machine_load("laptop", &machine), 0);
    machine.rates.memory[SP_F32] = (struct sp_curve){1, {{1, 1e9}}};
    assert_true(fabs(sp_memory_s(&machine, SP_BF16, 1e6) / 1e-3 - 1) < 1e-9);
    machine.rates.memory[SP_BF16] = (struct sp_curve){1, {{1, 5e8}}};
    assert_true(fabs(sp_memory_s(&machine, SP_BF16, 1e6) / 2e-3 - 1) < 1e-9);
    assert_true(fabs(sp_memory_s(&machine, SP_F32, 1e6) / 1e-3 - 1) < 1e-9);
    assert_true(sp_update_time(&machine, 1e6) < 33e-3);
}

/* Products of layers in fp8 have rates of their own, or those of bf16; all else is bf16's. */
TEST(products_in_fp8)
{
    static struct sp_machine machine;
    struct sp_part_times low, fp8, none;
    struct sp_head_times head, head_fp8;
    struct sp_model model;
    struct sp_shape sh;

    assert_int_equal(sp_model_load("gpt2-124m", &model), 0);
    assert_int_equal(sp_machine_load("h200", &machine), 0);
    machine.rates.matmul[SP_BF16] = (struct sp_curve){1, {{1, 1e14}}};
    machine.rates.matmul[SP_FP8] = (struct sp_curve){1, {{1, 4e14}}};
    sp_shape_init(&sh, &model, 1, 1024, 1);
    sh.dtype = SP_BF16;
    sp_part_times(&machine, 1, &sh, &low);
    sp_head_times(&machine, 1, &sh, 2, &head);
    sh.dtype = SP_FP8;
    sp_part_times(&machine, 1, &sh, &fp8);
    sp_head_times(&machine, 1, &sh, 2, &head_fp8);
    machine.rates.matmul[SP_FP8].n = 0;
    sp_part_times(&machine, 1, &sh, &none);
    assert_true(fabs(low.qkv / fp8.qkv - 4) < 1e-9 && fabs(low.up / fp8.up - 4) < 1e-9);
    assert_true(fabs((low.post - fp8.post) / (0.75 * sh.rows *
                                              (sp_product_flops(&model, SP_ROLE_OUT) +
                                               sp_product_flops(&model, SP_ROLE_UP) +
                                               sp_product_flops(&model, SP_ROLE_DOWN)) /
                                              1e14) -
                     1) < 1e-9);
    assert_true(low.attention == fp8.attention && low.head == fp8.head && low.embed == fp8.embed);
    assert_true(head.forward == head_fp8.forward && head.backward == head_fp8.backward);
    assert_true(none.post == low.post && none.qkv_weight == low.qkv_weight);
}

static void check_ways(const struct sp_plan *plan, struct sp_shape *sh,
                       const struct sp_op_terms *terms, enum sp_dtype dtype)
{
    /* bytes of a weight: state, gradients, weights, and through main memory */
    const double bytes[SP_ELEMENTS][4] = {
        [SP_F32] = {8, 4, 4, 28 + 8}, [SP_BF16] = {12, 4, 2, 30 + 6}};
    const struct sp_machine *m = terms->machine;
    double n = (double)sp_memory_updated(plan, sh, 1), bus = m->copy.both / m->copy.shared_by;
    struct sp_update_ways w;

    sh->dtype = dtype;
    w = sp_update_ways(plan, sh, terms, 1);
    assert_true(fabs(w.state / (bytes[dtype][0] * n / bus) - 1) < 1e-9);
    assert_true(fabs(w.gradients / (bytes[dtype][1] * n / bus) - 1) < 1e-9);
    assert_true(fabs(w.weights / (bytes[dtype][2] * n / bus) - 1) < 1e-9);
    assert_true(fabs(w.rate / (m->host_rate / 2) - 1) < 1e-9); /* of two devices */
    assert_true(fabs(w.adamw / (bytes[dtype][3] * n / w.rate) - 1) < 1e-9);
    assert_true(w.on_gpu >= w.state && w.on_gpu < 1.01 * w.state);
    assert_true(w.on_cores > w.adamw && w.on_cores < 1.01 * fmax(w.adamw, w.gradients));
    print_message("%s: cores %.4g ms, GPU %.4g ms; as fast at %.4g GB/s\n", sp_dtype_name(dtype),
                  1e3 * w.on_cores, 1e3 * w.on_gpu, 1e-9 * w.even);
}

/* Cores update evicted state of a GPU if that is faster, in the run and in prices. */
TEST(updates_go_where_they_are_faster)
{
    static struct sp_machine machine, cores;
    const struct sp_layout lay = {
        .stages = 2, .micro_batches = 4, .layers = 24, .slices = 1, .options = ""};
    const struct sp_op_terms terms = {.machine = &machine, .devices = 1};
    const struct sp_op_terms laptop = {.machine = &cores, .devices = 1};
    struct sp_model model;
    struct sp_shape sh;
    struct sp_plan plan;
    double most = 0;
    int64_t kept, held;

    assert_int_equal(sp_machine_load("h100-ib", &machine), 0);
    assert_int_equal(sp_machine_load("laptop", &cores), 0);
    assert_int_equal(sp_model_load("gpt3-1.3b", &model), 0);
    sp_shape_init(&sh, &model, 1, 128, 1);
    assert_int_equal(sp_plan_create("1f1b", &lay, &plan), 0);
    machine.copy.both = 1.6e10;
    machine.copy.shared_by = 2;
    machine.rates.memory[SP_F32] = (struct sp_curve){1, {{1, 1e13}}};
    machine.rates.launch_s = 1e-9;
    machine.host_rate = 4e10;
    plan.states_evicted = true;
    check_ways(&plan, &sh, &terms, SP_F32);
    check_ways(&plan, &sh, &terms, SP_BF16);

    /* the choice turns where both take as long, on the slowest stage */
    for (int s = 0; s < 2; s++)
        most = fmax(most, sp_update_ways(&plan, &sh, &terms, s).even);
    for (int k = -1; k <= 1; k += 2) {
        double on_gpu, on_cores;

        machine.host_rate = 2 * most * (1 + 1e-3 * k);
        assert_int_equal(sp_update_is_on_cores(&plan, &sh, &terms, SP_UPDATE_AUTO), k > 0);
        assert_true(sp_update_is_on_cores(&plan, &sh, &terms, SP_UPDATE_CPU));
        assert_false(sp_update_is_on_cores(&plan, &sh, &terms, SP_UPDATE_GPU));
        on_gpu = sp_update_times(&plan, &sh, &terms);
        plan.updates_on_cores = true;
        on_cores = sp_update_times(&plan, &sh, &terms);
        plan.updates_on_cores = false;
        assert_true(k > 0 ? on_cores < on_gpu : on_cores > on_gpu);
        assert_true(fabs(on_cores / on_gpu - 1) < 2e-3);
    }
    assert_false(sp_update_is_on_cores(&plan, &sh, &laptop, SP_UPDATE_CPU)); /* they do anyway */
    machine.host_rate = 0; /* unknown: what eight devices copy at once, for two */
    assert_true(fabs(sp_update_ways(&plan, &sh, &terms, 0).rate / (8 * 1.6e10 / 2) - 1) < 1e-9);
    machine.host_rate = 1e12;
    plan.states_evicted = false;
    assert_false(sp_update_is_on_cores(&plan, &sh, &terms, SP_UPDATE_CPU));

    /* main memory has the state, and copies of gradients and weights; the GPU has neither moments
     * nor f32 weights */
    plan.states_evicted = plan.updates_on_cores = true;
    held = sp_memory_updated(&plan, &sh, 0);
    kept = sp_memory_evicted_states(&plan, &sh, 0);
    assert_int_equal(kept, (12 + 4 + 2) * held);
    assert_int_equal(sp_memory_states(&plan, &sh, 0), (4 + 2) * held);
    assert_int_equal(sp_memory_optimizer(&plan, &sh, 0), 0);
    assert_true(sp_memory_updated(&plan, &sh, 1) <= held);
    machine.host_bytes = 2 * kept;
    assert_true(sp_update_is_on_cores(&plan, &sh, &terms, SP_UPDATE_AUTO));
    machine.host_bytes--;
    assert_false(sp_update_is_on_cores(&plan, &sh, &terms, SP_UPDATE_AUTO));
    sp_plan_destroy(&plan);
}
