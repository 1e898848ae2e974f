#include "offload/eviction.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *sp_offload_name(enum sp_offload_mode mode)
{
    static const char *const names[] = {
        [SP_OFFLOAD_NONE] = "none", [SP_OFFLOAD_FULL] = "full", [SP_OFFLOAD_ADAPTIVE] = "adaptive"};

    return names[mode];
}

static int64_t sum_of(const struct sp_unit *u, unsigned tensors)
{
    int64_t sum = 0;

    for (int k = 0; k < SP_UNIT_TENSORS; k++)
        if (tensors >> k & 1)
            sum += u->bytes[k];
    return sum;
}

int64_t sp_unit_leaving(const struct sp_unit *u)
{
    return sum_of(u, u->out);
}

int64_t sp_unit_parked(const struct sp_unit *u)
{
    return sum_of(u, u->parked);
}

static unsigned all_of(const struct sp_unit *u)
{
    unsigned all = 0;

    for (int k = 0; k < SP_UNIT_TENSORS; k++)
        if (u->bytes[k] > 0)
            all |= 1u << k;
    return u->gone < 0 || u->gone >= u->used ? 0 : all & ~u->parked;
}

int64_t sp_unit_may_leave(const struct sp_unit *u)
{
    return sum_of(u, all_of(u));
}

/* ---- memory --------------------------------------------------------------------------- */

/* most[s] += bytes for s in first .. last, as differences that add_up sums at the end. */
static void over(int64_t *most, int n, int first, int last, int64_t bytes)
{
    most[first] += bytes;
    if (last + 1 < n)
        most[last + 1] -= bytes;
}

static void add_up(const struct sp_eviction_plan *a, int64_t *most)
{
    for (int s = 1; s < a->n_slots; s++)
        most[s] += most[s - 1];
    for (int s = 0; s < a->n_slots; s++)
        most[s] += a->also[s];
}

void sp_eviction_plan_memory(const struct sp_eviction_plan *a, int64_t *most)
{
    for (int s = 0; s < a->n_slots; s++)
        most[s] = 0;
    for (int i = 0; i < a->n_units; i++) {
        const struct sp_unit *u = &a->units[i];
        int64_t late = sum_of(u, u->late);

        over(most, a->n_slots, u->made, u->freed, u->stays + sum_of(u, ~0u) - late);
        over(most, a->n_slots, u->made + 1, u->freed, late);
        over(most, a->n_slots, u->made + 1, u->used, u->head);
        if (u->freed > u->used)
            over(most, a->n_slots, u->used + 1, u->freed, -u->bytes[SP_UNIT_HEAD]);
        over(most, a->n_slots, u->made, u->freed, u->keys);
        if (u->keys_back > u->keys_gone)
            over(most, a->n_slots, u->keys_gone, u->keys_back - 1, -u->keys);
        if (u->out && u->back > u->gone)
            over(most, a->n_slots, u->gone, u->back - 1, -sp_unit_leaving(u));
        if (u->parked && u->peer_back > u->peer_gone)
            over(most, a->n_slots, u->peer_gone, u->peer_back - 1, -sum_of(u, u->parked));
    }
    add_up(a, most);
}

static int64_t highest(const struct sp_eviction_plan *a, const int64_t *most)
{
    int64_t peak = 0;

    for (int s = 0; s < a->n_slots; s++)
        peak = most[s] > peak ? most[s] : peak;
    return peak;
}

/* ---- tensors to evict ----------------------------------------------------------------- */

/* All subsets of the evictable tensors of a unit, sorted by bytes. Units with equal tensors share
 * it. */
struct sp_unit_choices {
    int64_t of[SP_UNIT_TENSORS]; /* bytes of the tensors */
    unsigned all;
    int n;
    struct choice {
        int64_t bytes;
        unsigned set;
    } choice[1 << SP_UNIT_TENSORS];
};

/* Most kinds of units remembered. A plan has few, unless its slices differ in length. */
enum { KINDS = 8 };

static int compare_choices(const void *x, const void *y)
{
    const struct choice *a = x, *b = y;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->set < b->set ? -1 : a->set > b->set;
}

static void list_choices(struct sp_unit_choices *c, const struct sp_unit *u, unsigned all)
{
    unsigned set = 0;

    memcpy(c->of, u->bytes, sizeof c->of);
    c->all = all;
    c->choice[0] = (struct choice){.set = 0};
    c->n = 1;
    while (set != all) {
        set = (set - all) & all; /* the next larger one of `all` */
        c->choice[c->n++] = (struct choice){sum_of(u, set), set};
    }
    qsort(c->choice, (size_t)c->n, sizeof *c->choice, compare_choices);
}

/* Returns NULL if the unit's kind is not among those remembered, and there is no room for it. */
static const struct sp_unit_choices *choices_of(struct sp_eviction_plan *a, const struct sp_unit *u,
                                                unsigned all)
{
    struct sp_unit_choices *c = a->choices;

    for (int k = 0; k < a->n_choices; k++, c++)
        if (c->all == all && !memcmp(c->of, u->bytes, sizeof c->of))
            return c;
    if (a->n_choices == KINDS)
        return NULL;
    a->n_choices++;
    list_choices(c, u, all);
    return c;
}

static unsigned find_closest(const struct sp_unit_choices *c, double want)
{
    int low = 0, high = c->n;

    while (high - low > 1) {
        int middle = (low + high) / 2;

        if ((double)c->choice[middle].bytes <= want)
            low = middle;
        else
            high = middle;
    }
    return c->choice[low].set;
}

/* Returns the subset of `all` whose bytes come closest to `want` without exceeding it. */
static unsigned closest(struct sp_eviction_plan *a, const struct sp_unit *u, unsigned all,
                        double want)
{
    const struct sp_unit_choices *known = choices_of(a, u, all);
    unsigned best = 0, set = 0;
    int64_t most = 0, sum[1 << SP_UNIT_TENSORS];

    if (known)
        return find_closest(known, want);
    sum[0] = 0;
    while (set != all) {
        set = (set - all) & all; /* the next larger one of `all` */
        sum[set] = sum[set & (set - 1)] + u->bytes[__builtin_ctz(set)];
        if (sum[set] >= most && (double)sum[set] <= want) {
            best = set;
            most = sum[set];
        }
    }
    return best;
}

/* Tensors of a unit that another stage may take. The head's input stays. */
static unsigned all_to_park(const struct sp_unit *u)
{
    unsigned all = 0;

    for (int k = 0; k < SP_UNIT_HEAD; k++)
        if (u->bytes[k] > 0)
            all |= 1u << k;
    return u->peer_back > u->peer_gone ? all : 0;
}

/* Bytes that the other stage can take of group g, given what earlier groups park. They count until
 * the end of the op after the one that they go back before. */
static int64_t room_for(const struct sp_eviction_plan *a, int g)
{
    int64_t room = a->peer.room;

    for (int i = 0; i < g; i++)
        if (a->groups[i].goes + SP_PEER_OPS > a->groups[g].arrives)
            room -= a->groups[i].parked;
    return room > 0 ? room : 0;
}

/* Chooses the tensors of a group to park: `part` of their bytes, as far as there is room. */
static void select_parked(struct sp_eviction_plan *a, int g, double part)
{
    struct sp_unit_group *group = &a->groups[g];
    double want = 0, room = (double)room_for(a, g);

    group->parked = 0;
    for (int i = group->first; i < group->first + group->n; i++) {
        struct sp_unit *u = &a->units[i];
        unsigned all = all_to_park(u);

        want += part * (double)sum_of(u, all);
        u->parked = closest(a, u, all, fmin(want, room) - (double)group->parked);
        group->parked += sum_of(u, u->parked);
    }
}

/* Chooses the tensors to evict if every op writes `rate` bytes for each second of the forward that
 * hides it, and those to park at the rate that goes with it. Every layer of an op gives the same
 * fraction, as far as whole tensors allow. */
static void select_at(struct sp_eviction_plan *a, double rate)
{
    for (int g = 0; g < a->n_groups; g++) {
        struct sp_unit_group *group = &a->groups[g];
        double part = group->bytes ? rate * group->hides_s / (double)group->bytes : 0;
        double want = 0, to_peer = a->peer.share * part;
        bool parks = a->peer.share > 0;

        part = part < 1 ? part : 1;
        if (parks)
            select_parked(a, g, fmin(to_peer, 1 - part));
        group->leaving = 0;
        for (int i = group->first; i < group->first + group->n; i++) {
            struct sp_unit *u = &a->units[i];
            unsigned all = all_of(u);

            want += part * (double)(sum_of(u, all) + (parks ? sum_of(u, u->parked) : 0));
            u->out = part >= 1 ? all : closest(a, u, all, want - (double)group->leaving);
            u->back = u->used;
            group->leaving += sp_unit_leaving(u);
        }
    }
}

/* Moves each fetch to the earliest slot allowed that has room, in the order of use. `most` is given
 * with every unit fetched at its use, and updated. */
static void bring_forward(struct sp_eviction_plan *a, int64_t limit, int64_t *most)
{
    for (int slot = 0; slot < a->n_slots; slot++)
        for (int i = a->uses[slot]; i >= 0; i = a->next_use[i]) {
            struct sp_unit *u = &a->units[i];
            int64_t bytes = sp_unit_leaving(u);
            int first = u->ahead > u->gone ? u->ahead : u->gone + 1;

            for (int s = slot - 1; bytes && s >= first && most[s] + bytes <= limit; s--)
                if (a->returns_allowed[s])
                    u->back = s;
            for (int s = u->back; s < slot; s++)
                most[s] += bytes;
        }
}

/* ---- lists by slot --------------------------------------------------------------------- */

static void link_slots(struct sp_eviction_plan *a)
{
    for (int s = 0; s < a->n_slots; s++)
        a->gates[s] = a->returns[s] = -1;
    for (int i = a->n_units - 1; i >= 0; i--) {
        const struct sp_unit *u = &a->units[i];

        if (!u->out)
            continue;
        a->next_gate[i] = a->gates[u->gone];
        a->gates[u->gone] = i;
        a->next_return[i] = a->returns[u->back];
        a->returns[u->back] = i;
    }
}

/* Computes the fields that follow from the given ones: bytes of groups, lists of uses and frees. */
static void take_in(struct sp_eviction_plan *a)
{
    a->n_choices = 0;
    for (int g = 0; g < a->n_groups; g++) {
        struct sp_unit_group *group = &a->groups[g];

        group->bytes = 0;
        for (int i = group->first; i < group->first + group->n; i++) {
            a->units[i].parked = a->peer.share > 0 ? 0 : a->units[i].parked;
            group->bytes += sp_unit_may_leave(&a->units[i]);
        }
    }
    for (int s = 0; s < a->n_slots; s++)
        a->uses[s] = a->frees[s] = -1;
    for (int i = a->n_units - 1; i >= 0; i--) {
        a->next_use[i] = a->uses[a->units[i].used];
        a->uses[a->units[i].used] = i;
        a->next_free[i] = a->frees[a->units[i].freed];
        a->frees[a->units[i].freed] = i;
    }
}

static int64_t evicted(const struct sp_unit *u)
{
    return sp_unit_leaving(u) + (u->keys_back > u->keys_gone ? u->keys : 0);
}

/* The most bytes that are evicted at once: the size that the tier needs. */
static int64_t most_evicted(const struct sp_eviction_plan *a)
{
    int64_t now = 0, most = 0;

    for (int s = 0, next = 0; s < a->n_slots; s++) {
        for (; next < a->n_units && a->units[next].made <= s; next++)
            now += evicted(&a->units[next]);
        most = now > most ? now : most;
        /* a copy stays where it was written until the tensor dies */
        for (int i = a->frees[s]; i >= 0; i = a->next_free[i])
            now -= evicted(&a->units[i]);
    }
    return most;
}

/* ---- the choice ----------------------------------------------------------------------- */

/* Returns true if every slot fits at a rate. Sets `out` and `back` of the units, every fetch at its
 * use, and *peak to the bytes of the highest slot. */
static bool fits(struct sp_eviction_plan *a, double rate, int64_t limit, int64_t *most,
                 int64_t *peak)
{
    select_at(a, rate);
    sp_eviction_plan_memory(a, most);
    *peak = highest(a, most);
    return *peak <= limit;
}

/* A rate at which every tensor that may be evicted is. */
static double full_rate(const struct sp_eviction_plan *a)
{
    double rate = 0;

    for (int g = 0; g < a->n_groups; g++)
        if (a->groups[g].bytes && a->groups[g].hides_s > 0)
            rate = fmax(rate, (double)a->groups[g].bytes / a->groups[g].hides_s);
    return 2 * rate;
}

/* The lowest rate that fits, given that the rate of `full` does. It bisects, which ends at a rate
 * that fits even where fitting is not monotone in the rate. */
static double least_rate(struct sp_eviction_plan *a, int64_t limit, int64_t *most)
{
    double low = 0, high = full_rate(a);
    int64_t peak;

    if (fits(a, 0, limit, most, &peak))
        return 0;
    for (int i = 0; i < 40 && high - low > 1e-6 * high; i++) {
        double middle = (low + high) / 2;

        if (fits(a, middle, limit, most, &peak))
            high = middle;
        else
            low = middle;
    }
    return high;
}

int64_t sp_eviction_plan_least(struct sp_eviction_plan *a)
{
    int64_t peak;

    take_in(a);
    fits(a, full_rate(a), INT64_MAX, a->most, &peak);
    return peak;
}

bool sp_eviction_plan_choose(struct sp_eviction_plan *a, enum sp_offload_mode mode, int64_t limit,
                             struct sp_tier_rates rates, int64_t *least)
{
    int64_t *most = a->most, bound = limit ? limit : INT64_MAX, peak;
    bool enough;

    take_in(a);
    a->rate = mode == SP_OFFLOAD_NONE ? 0 : full_rate(a);
    enough = fits(a, a->rate, bound, most, least);
    if (enough && mode == SP_OFFLOAD_ADAPTIVE)
        /* a backward takes twice as long, so it may read at half the rate at which forwards
         * write */
        a->rate =
            limit ? least_rate(a, bound, most) : fmin(a->rate, fmin(rates.write, 2 * rates.read));
    fits(a, a->rate, bound, most, &peak);
    bring_forward(a, bound, most);
    link_slots(a);
    a->peak = highest(a, most);
    for (int s = 0; s < a->n_slots; s++)
        most[s] -= a->also[s];
    a->peak_kept = highest(a, most);
    a->bytes = 0;
    for (int g = 0; g < a->n_groups; g++)
        a->bytes += a->groups[g].leaving;
    a->most_evicted = most_evicted(a) + a->gradients_out;
    return enough;
}

/* ---- room ----------------------------------------------------------------------------- */

int sp_eviction_plan_alloc(struct sp_eviction_plan *a, int slots, int units, int groups, int ops,
                           int activations)
{
    size_t s = (size_t)slots + 1, u = (size_t)units + 1;

    *a = (struct sp_eviction_plan){.n_slots = slots, .n_units = units, .n_groups = groups};
    a->units = calloc(u, sizeof *a->units);
    a->groups = calloc((size_t)groups + 1, sizeof *a->groups);
    a->seconds = calloc(s, sizeof *a->seconds);
    a->also = calloc(4 * s, sizeof *a->also);
    a->returns_allowed = calloc(s, sizeof *a->returns_allowed);
    a->choices = calloc(KINDS, sizeof *a->choices);
    a->gates = calloc(4 * s + 4 * u + (size_t)ops + 1 + (size_t)slots + (size_t)activations,
                      sizeof *a->gates);
    if (!a->units || !a->groups || !a->seconds || !a->also || !a->returns_allowed || !a->gates ||
        !a->choices) {
        sp_eviction_plan_free(a);
        return -ENOMEM;
    }
    a->most = a->also + s;
    a->slot_streamed_in = a->most + s;
    a->slot_streamed_out = a->slot_streamed_in + s;
    a->returns = a->gates + s;
    a->uses = a->returns + s;
    a->frees = a->uses + s;
    a->next_gate = a->frees + s;
    a->next_return = a->next_gate + u;
    a->next_use = a->next_return + u;
    a->next_free = a->next_use + u;
    a->op_slots = a->next_free + u;
    a->slot = a->op_slots + ops + 1;
    a->activations_unit = a->slot + slots;
    return 0;
}

void sp_eviction_plan_free(struct sp_eviction_plan *a)
{
    free(a->units);
    free(a->groups);
    free(a->seconds);
    free(a->also);
    free(a->returns_allowed);
    free(a->gates);
    free(a->choices);
    *a = (struct sp_eviction_plan){0};
}
