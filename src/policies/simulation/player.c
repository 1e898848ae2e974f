#include "policies/simulation/player.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sp_player_create(const struct sp_player_rules *rules, void *arg, int lanes, int events,
                     struct sp_player *player)
{
    size_t n = (size_t)lanes;

    *player = (struct sp_player){.rules = rules, .arg = arg, .lanes = lanes};
    player->ops = calloc(3 * n, sizeof *player->ops);
    player->free_at = calloc(n, sizeof *player->free_at);
    player->queued = calloc(n, sizeof *player->queued);
    if (!player->ops || !player->free_at || !player->queued ||
        sp_waiters_create(events, lanes, &player->waiters)) {
        sp_player_destroy(player);
        return -ENOMEM;
    }
    player->next = player->ops + n;
    player->queue = player->next + n;
    return 0;
}

void sp_player_destroy(struct sp_player *player)
{
    free(player->ops);
    free(player->free_at);
    free(player->queued);
    sp_waiters_destroy(&player->waiters);
    *player = (struct sp_player){0};
}

void sp_player_try(struct sp_player *player, int lane)
{
    int at = player->head + player->length;

    if (player->queued[lane])
        return;
    player->queue[at < player->lanes ? at : at - player->lanes] = lane;
    player->length++;
    player->queued[lane] = true;
}

void sp_player_wake(struct sp_player *player, int event)
{
    int lane;

    while ((lane = sp_waiters_take(&player->waiters, event)) >= 0)
        sp_player_try(player, lane);
}

/* Runs a lane up to the first op that must wait. */
static void advance(struct sp_player *player, int lane)
{
    const struct sp_player_rules *rules = player->rules;

    while (player->next[lane] < player->ops[lane]) {
        int at = player->next[lane];
        double start = player->free_at[lane], end;
        int event = rules->wait(player, lane, at, &start);

        if (event >= 0)
            sp_waiters_add(&player->waiters, event, lane);
        if (event != SP_PLAYER_READY)
            return;
        player->next[lane] += rules->run(player, lane, at, start, &end);
        player->free_at[lane] = end;
        player->to_go -= player->next[lane] >= player->ops[lane];
    }
}

bool sp_player_go_on(struct sp_player *player)
{
    while (player->length > 0) {
        int lane = player->queue[player->head];

        player->head = player->head + 1 < player->lanes ? player->head + 1 : 0;
        player->length--;
        player->queued[lane] = false;
        advance(player, lane);
    }
    return player->to_go == 0;
}

bool sp_player_play(struct sp_player *player)
{
    player->to_go = 0;
    for (int l = 0; l < player->lanes; l++) {
        player->to_go += player->next[l] < player->ops[l];
        sp_player_try(player, l);
    }
    return sp_player_go_on(player);
}
