/*
 * What a tier adds to a stage's program if it writes one tensor after the other, and reads likewise
 * beside. Three lanes: the stage, whose slots are two ops each, and the two ways of the tier, whose
 * ops are units. The first op of a slot takes no time and waits for what must have left; the second
 * waits for what must be back, and takes the slot's time. A unit is written when the slot after its
 * forward's first has ended, in the order they are made; it is read from the first op of `back` on.
 */
#include "offload/eviction.h"
#include <math.h>
#include <stdlib.h>

enum { STAGE, WRITER, READER, LANES };

struct tier {
    struct sp_away *a;
    struct sp_tier_rates rates;
};

static int wait_for_stage(const struct sp_away *a, int op, double *start)
{
    int slot = op / 2;

    for (int i = op % 2 ? -1 : a->gates[slot]; i >= 0; i = a->next_gate[i]) {
        if (a->written[i] < 0)
            return SP_PLAYER_BLOCKED;
        *start = fmax(*start, a->written[i]);
    }
    for (int i = op % 2 ? a->uses[slot] : -1; i >= 0; i = a->next_use[i]) {
        if (!a->units[i].out)
            continue;
        if (a->fetched[i] < 0)
            return SP_PLAYER_BLOCKED;
        *start = fmax(*start, a->fetched[i]);
    }
    return SP_PLAYER_READY;
}

static int wait_for(struct sp_player *player, int lane, int at, double *start)
{
    const struct sp_away *a = ((struct tier *)player->arg)->a;
    int unit = lane == READER ? a->reads[at] : at, slot, op;

    if (lane == STAGE)
        return wait_for_stage(a, at, start);
    slot = lane == WRITER ? a->units[unit].made + 1 : a->units[unit].back;
    op = 2 * slot + (lane == WRITER);
    if (op >= player->next[STAGE] || (lane == READER && a->written[unit] < 0))
        return SP_PLAYER_BLOCKED;
    *start = fmax(*start, a->passed[op]);
    if (lane == READER)
        *start = fmax(*start, a->written[unit]);
    return SP_PLAYER_READY;
}

static int run(struct sp_player *player, int lane, int at, double start, double *end)
{
    const struct tier *tier = player->arg;
    struct sp_away *a = tier->a;
    int unit = lane == READER ? a->reads[at] : at;

    switch (lane) {
    case STAGE:
        *end = a->passed[at] = at % 2 ? start + a->seconds[at / 2] : start;
        break;
    case WRITER:
        *end = a->written[unit] =
            start + (double)sp_unit_leaving(&a->units[unit]) / tier->rates.write;
        break;
    default:
        *end = a->fetched[unit] =
            start + (double)sp_unit_leaving(&a->units[unit]) / tier->rates.read;
        break;
    }
    for (int l = 0; l < LANES; l++) {
        if (l != lane)
            sp_player_try(player, l);
    }
    return 1;
}

static const struct sp_player_rules rules = {.wait = wait_for, .run = run};

int sp_away_player(struct sp_away *a)
{
    return sp_player_create(&rules, NULL, LANES, 0, &a->player);
}

double sp_away_stall(struct sp_away *a, struct sp_tier_rates rates)
{
    struct tier tier = {.a = a, .rates = rates};
    struct sp_player *player = &a->player;
    double busy = 0;

    player->arg = &tier;
    sp_player_rewind(player);
    player->ops[STAGE] = 2 * a->n_slots;
    player->ops[WRITER] = a->n_units;
    player->ops[READER] = 0;
    for (int i = 0; i < a->n_units; i++)
        a->written[i] = a->fetched[i] = -1;
    for (int s = 0; s < a->n_slots; s++) {
        busy += a->seconds[s];
        for (int i = a->returns[s]; i >= 0; i = a->next_return[i])
            a->reads[player->ops[READER]++] = i;
    }
    sp_player_play(player);
    return player->free_at[STAGE] - busy;
}
