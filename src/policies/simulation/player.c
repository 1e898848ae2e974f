#include "policies/simulation/player.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sp_player_create(const struct sp_player_rules *rules, void *arg, int lanes, int events,
                     struct sp_player *player)
{
    size_t n = (size_t)lanes, m = (size_t)events;

    *player = (struct sp_player){.rules = rules, .arg = arg, .lanes = lanes};
    player->ops = calloc(5 * n + m, sizeof *player->ops);
    player->free_at = calloc(2 * n, sizeof *player->free_at);
    player->queued = calloc(2 * n, sizeof *player->queued);
    if (!player->ops || !player->free_at || !player->queued) {
        sp_player_destroy(player);
        return -ENOMEM;
    }
    player->next = player->ops + n;
    player->queue = player->next + n;
    player->ready.item = player->queue + n;
    player->next_waiting = player->ready.item + n;
    player->first_waiting = player->next_waiting + n;
    memset(player->first_waiting, -1, m * sizeof *player->first_waiting);
    player->start = player->free_at + n;
    player->waits = player->queued + n;
    return 0;
}

void sp_player_destroy(struct sp_player *player)
{
    free(player->ops);
    free(player->free_at);
    free(player->queued);
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

/* A lane that was told to try again still waits for the event that it waited for, which is to
 * come. */
static void wait_for(struct sp_player *player, int lane, int event)
{
    if (player->waits[lane])
        return;
    player->waits[lane] = true;
    player->next_waiting[lane] = player->first_waiting[event];
    player->first_waiting[event] = lane;
}

void sp_player_wake(struct sp_player *player, int event)
{
    for (int lane; (lane = player->first_waiting[event]) >= 0; sp_player_try(player, lane)) {
        player->first_waiting[event] = player->next_waiting[lane];
        player->waits[lane] = false;
    }
}

static void take_turn(struct sp_player *player, int lane, double start)
{
    double end;

    player->next[lane] += player->rules->run(player, lane, player->next[lane], start, &end);
    player->free_at[lane] = end;
    player->to_go -= player->next[lane] >= player->ops[lane];
}

/* Lets a lane take turns up to the first op that must wait for its inputs; or, with an order, for
 * other lanes. */
static void advance(struct sp_player *player, int lane)
{
    const struct sp_player_rules *rules = player->rules;

    while (player->next[lane] < player->ops[lane]) {
        double start = player->free_at[lane];
        int event = rules->wait(player, lane, player->next[lane], &start);

        if (event >= 0)
            wait_for(player, lane, event);
        if (event != SP_PLAYER_READY)
            return;
        if (rules->before) {
            player->start[lane] = start;
            sp_heap_push(&player->ready, lane, rules->before, player);
            return;
        }
        take_turn(player, lane, start);
    }
}

bool sp_player_go_on(struct sp_player *player)
{
    while (player->length > 0 || player->ready.n > 0) {
        int lane;

        if (player->length == 0) {
            lane = sp_heap_pop(&player->ready, player->rules->before, player);
            take_turn(player, lane, player->start[lane]);
            sp_player_try(player, lane);
            continue;
        }
        lane = player->queue[player->head];
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
