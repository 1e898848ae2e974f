/*
 * HelixPipe (Zhang et al. 2025): all forwards, then all backwards in reverse, of a model wound
 * around the stages like a helix (figures 2(b) and 7). Parameter block j is on stage j mod p;
 * attention of a layer runs on all stages at once, on each for another micro-batch. A loop takes p
 * slots through all layers; `fold` micro-batches share a slot (2: two-fold, section 4.3.2), so that
 * the messages of one travel while the other computes. A last loop of fewer micro-batches puts
 * every p-th one in the same slot, so that slots are about equal and attention still uses all
 * stages.
 *
 * If sequences are cut, the slices of a slot's micro-batches take turns in the same way. With one
 * micro-batch a slot, messages travel while other slices compute, and the bubble is less than half
 * of two-fold's.
 *
 * p = 4, m = 8, L = 4, fold = 2; blocks of micro-batches 0..7 as figures, their attention as letters
 * a..h, all of one length, a backward twice a forward:
 *
 *   stage 0  0123456g7hefcda0b123456777665544332211bb00aaddccffeehh77gg66554433220011
 *   stage 1  .a0b123456g7hefcd.................ddccffeehh77gg665544332211bb00aa......
 *   stage 2  ...cda0b123456g7hef...........ffeehh77gg665544332211bb00aaddcc..........
 *   stage 3  .....efcda0b123456g7h.....hh77gg665544332211bb00aaddccffee..............
 *
 * In the published code the last `fold` backwards of stage 0 run in ascending order. This order is
 * kept with one layer a stage, as in the published reference orders and above, and with
 * tail=published. Otherwise they run in reverse like all others, which is no slower and in most
 * cases a little faster.
 *
 * Attention fills its own part of the bubble, so only blocks leave one: (p-1)(pre + post) a forward
 * and twice that a backward, fold times (section 4.5). With ship=attention all of a layer except
 * its MLP counts as attention, and only MLPs leave a bubble.
 */
#include "policies/families/attention_parallel/attention_parallel.h"
#include "policies/orders/helix.h"
#include "policies/refuse.h"
#include "policies/simulation/costs.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The delay of a loop by messages, with `fold` micro-batches a slot. A loop runs 2L parts each way
 * one after the other. Before each, the stage works on the other micro-batches or slices of the
 * slot while the message travels; the rest of the message's time is delay. */
static double delay(const struct sp_layout *lay, double comm, double part, double fold)
{
    return 4 * lay->layers * fmax(0, comm - (fold * lay->slices - 1) * part / lay->slices);
}

/*
 * fold=auto: the micro-batches a slot for which bubble and messages cost least, at the known costs.
 */
static int best_fold(const struct sp_layout *lay)
{
    const struct sp_costs *costs = lay->costs ? lay->costs : &sp_costs_unit;
    const struct sp_part_costs *c = costs->parts.post > 0 ? &costs->parts : &sp_costs_unit.parts;
    double block = c->pre + c->post, part = fmin(block, c->attn), least = HUGE_VAL;
    int best = 1;

    for (int fold = 1; fold <= 4 && (fold == 1 || lay->stages * fold <= lay->micro_batches);
         fold++) {
        int loop = lay->stages * fold, left = lay->micro_batches % loop;
        double lost = fold * (lay->stages - 1) * block * (1 + c->backward + c->again) +
                      lay->micro_batches / loop * delay(lay, costs->comm, part, fold);

        if (left)
            lost += delay(lay, costs->comm, part, fmax(1, (double)left / lay->stages));
        if (lost < least - 1e-9 * block) {
            least = lost;
            best = fold;
        }
    }
    return best;
}

/* The default is two micro-batches, or one if its slices take turns. */
static int fold_of(const struct sp_layout *lay)
{
    int ok = 1;

    if (!sp_option_is(lay, "fold", "auto"))
        return sp_layout_option_int(lay, "fold", lay->slices > 1 ? 1 : 2, &ok);
    return lay->map ? sp_attention_fold(lay) : best_fold(lay);
}

/* Refuses a value of an option that is not in the list, which blanks separate. */
static int check_word(const struct sp_layout *lay, const char *key, const char *words, char *why,
                      size_t n)
{
    char value[32] = "", list[64];

    if (!sp_layout_option(lay, key, value, sizeof value))
        return 0;
    snprintf(list, sizeof list, "%s", words);
    for (char *save = NULL, *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save))
        if (!strcmp(w, value))
            return 0;
    snprintf(why, n, "has no %s=%s; it is one of: %s", key, value, words);
    return -EINVAL;
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    bool choose = sp_option_is(lay, "fold", "auto");
    int ok = 1, fold = choose ? 1 : sp_layout_option_int(lay, "fold", 1, &ok);
    char word[32] = "";

    if (!ok || fold < 1 || fold > SP_MAX_SIZE) {
        snprintf(why, n, "has a fold of 1, 2, ... %d micro-batches, or fold=auto", SP_MAX_SIZE);
        return -EINVAL;
    }
    if (check_word(lay, "qkv", "weights activations auto published", why, n) ||
        check_word(lay, "ship", "qkv attention", why, n) ||
        check_word(lay, "tail", "published reverse", why, n))
        return -EINVAL;
    if (sp_layout_flag(lay, "bounded") && sp_layout_option(lay, "tail", word, sizeof word)) {
        snprintf(why, n, "has no loop that ends alone with `bounded`; leave out tail=%s", word);
        return -EINVAL;
    }
    if (sp_option_is(lay, "ship", "attention") && sp_layout_option(lay, "qkv", word, sizeof word)) {
        snprintf(why, n, "ships all of attention with ship=attention; leave out qkv=%s", word);
        return -EINVAL;
    }
    if ((long long)lay->stages * fold > SP_MAX_SIZE) {
        snprintf(why, n, "takes %d x %d micro-batches a loop, at most %d; use a smaller fold",
                 lay->stages, fold, SP_MAX_SIZE);
        return -EINVAL;
    }
    return 0;
}

/* The sizes of a loop. */
struct loop {
    struct sp_program *prog;
    int p, L, m, fold, slices, stage;
    int first;  /* micro-batch of slot 0 */
    bool after; /* another loop precedes this one, and its last blocks are still to run */
};

/* Slices of all micro-batches of a slot. */
static int turns(const struct loop *lo)
{
    return lo->fold * lo->slices;
}

/* Appends a forward of the k-th slice of slot d in the loop that begins with micro-batch `first`,
 * if the loop has that micro-batch. */
static void add_of(const struct loop *lo, int first, int d, int k, enum sp_part part, int at)
{
    bool whole = first + lo->p * lo->fold <= lo->m;
    int i = k / lo->slices, mb = first + (whole ? d * lo->fold + i : i * lo->p + d);

    if (mb < lo->m)
        sp_program_add_op(lo->prog, (struct sp_op){.pass = SP_F,
                                                   .part = (unsigned char)part,
                                                   .slice = (unsigned short)(k % lo->slices),
                                                   .mb = mb,
                                                   .chunk = at});
}

/* Before block j, this stage runs the attention of slot d for layer j-1-d. */
static void attention(const struct loop *lo, int d, int k, int j)
{
    int layer = j - 1 - d;

    if (layer >= 0 && layer < lo->L)
        add_of(lo, lo->first, d, k, SP_ATTN, layer);
}

/* Appends the attention of slots p-2 .. 1 before block j; that of slot 0 runs with the block. */
static void attentions(const struct loop *lo, int j)
{
    for (int d = lo->p - 2; d > 0; d--)
        for (int k = 0; k < turns(lo); k++)
            attention(lo, d, k, j);
}

/* Appends block j of all slots; block 0 runs together with block L of the loop before. */
static void blocks(const struct loop *lo, int j, bool last_of_before)
{
    int before = lo->first - lo->p * lo->fold;

    for (int d = 0; d < lo->p; d++)
        for (int k = 0; k < turns(lo); k++) {
            if (d == 0 && lo->p > 1 && j > 0 && j < lo->L)
                attention(lo, 0, k, j);
            if (last_of_before) {
                if (d == 0 && lo->p > 1 && lo->L % lo->p == 0)
                    add_of(lo, before, d, k, SP_ATTN, lo->L - 1);
                add_of(lo, before, d, k, SP_BLOCK, lo->L);
            }
            if (j >= lo->L)
                continue; /* no loop follows */
            add_of(lo, lo->first, d, k, SP_BLOCK, j);
            if (d == lo->p - 1)
                add_of(lo, lo->first, d, k, SP_ATTN, j);
        }
}

/* Appends the forwards of a loop on a stage, without block L, which stage 0 runs with the next
 * loop. */
static void forward(struct loop *lo)
{
    int j = lo->stage;

    for (; j < lo->L; j += lo->p) {
        attentions(lo, j);
        blocks(lo, j, j == 0 && lo->after);
    }
    attentions(lo, j);
    /* slot 0's last attention here runs with block L, if that follows directly */
    for (int k = 0; k < turns(lo) && lo->p > 1 && !(lo->stage == 0 && lo->L % lo->p == 0); k++)
        attention(lo, 0, k, j);
}

/* Returns true if the last slot of stage 0 runs its backwards in ascending order. */
static bool ends_upwards(const struct sp_layout *lay)
{
    char tail[16];

    if (sp_layout_option(lay, "tail", tail, sizeof tail))
        return sp_option_is(lay, "tail", "published");
    return lay->layers == lay->stages && lay->slices == 1;
}

static struct loop loop_of(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    return (struct loop){.prog = prog,
                         .p = lay->stages,
                         .L = lay->layers,
                         .m = lay->micro_batches,
                         .fold = fold_of(lay),
                         .slices = lay->slices,
                         .stage = stage};
}

/* Appends the forwards of the loop that begins with micro-batch `first`, with block L at their
 * end. */
static void loop_alone(const struct sp_layout *lay, int stage, int first, struct sp_program *prog)
{
    struct loop lo = loop_of(lay, stage, prog);

    lo.first = first;
    forward(&lo);
    lo.first += lo.p * lo.fold;
    if (stage == 0)
        blocks(&lo, lo.L, true);
}

/* All forwards, then all backwards. */
static void filo(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    struct loop lo = loop_of(lay, stage, prog);
    int n, tail;

    for (lo.first = 0; lo.first < lay->micro_batches; lo.first += lo.p * lo.fold) {
        lo.after = lo.first > 0;
        forward(&lo);
    }
    if (stage == 0)
        blocks(&lo, lo.L, true);
    n = prog->n;
    for (int i = n - 1; i >= 0; i--) {
        struct sp_op op = prog->ops[i];

        op.pass = SP_B;
        sp_program_add_op(prog, op);
    }
    /* the blocks 0 of slot 0, the only ones with nothing in between */
    tail = stage == 0 && lo.p > 1 && lo.m >= lo.p * lo.fold && ends_upwards(lay) ? turns(&lo) : 0;
    for (int k = 0; k < tail; k++)
        prog->ops[2 * n - tail + k].mb = k / lo.slices;
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    (void)why;
    (void)n;
    if (sp_layout_flag(lay, "bounded"))
        return sp_helix_bounded(lay, fold_of(lay), loop_alone, programs);
    for (int s = 0; s < lay->stages; s++)
        filo(lay, s, &programs[s]);
    return 0;
}

/* With ship=attention a block is an MLP alone, eight ninths of post. */
static double makespan(const struct sp_layout *lay, const struct sp_part_costs *c)
{
    bool module = sp_option_is(lay, "ship", "attention");
    double layer = (c->pre + c->post) * (1 + c->backward + c->again) + c->attn * (1 + c->backward);
    double block = module ? c->post * 8 / 9 : c->pre + c->post;

    if (sp_layout_flag(lay, "bounded") || lay->layers % lay->stages ||
        lay->micro_batches % (lay->stages * fold_of(lay)))
        return -1;
    if (module)
        layer -= c->again * c->post / 9; /* kept, not recomputed */
    return (double)lay->micro_batches * lay->layers / lay->stages * layer +
           fold_of(lay) * (lay->stages - 1) * block * (1 + c->backward + c->again);
}

const struct sp_schedule_def sp_schedule_helix = {
    .abi = SP_SCHEDULE_ABI,
    .name = "helix",
    .summary = "attention of different micro-batches in parallel on all stages, blocks in a helix",
    .source = "HelixPipe (Zhang et al. 2025), sections 4.2 and 4.3; code-tunnel/Megatron-LM",
    .family = "attention-parallel",
    .options = "fold,qkv,ship,tail",
    .flags = "bounded",
    .variants = "fold=1 ship=attention fold=1,ship=attention bounded ship=attention,bounded",
    .default_chunks = 1,
    .attention_parallel.fold = fold_of,
    .recompute = "no-attention",
    .check = check,
    .emit_all = emit_all,
    .makespan_of_parts = makespan,
    .makespan_source =
        "work + fold (p-1) block (1+backward), block = pre+post, HelixPipe section 4.5",
    .makespan_is = SP_UPPER_BOUND,
};
