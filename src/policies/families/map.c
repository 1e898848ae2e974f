#include "policies/families/map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int sp_place_wave(const struct sp_layout *lay, int stage, int chunk)
{
    int p = lay->stages;

    return chunk * p + (chunk % 2 ? p - 1 - stage : stage);
}

int sp_place_both_ways(const struct sp_layout *lay, int stage, int chunk)
{
    return chunk ? lay->stages - 1 - stage : stage;
}

int sp_pipes(const struct sp_layout *lay)
{
    return lay->map ? lay->map->pipes : 1;
}

int sp_globals(const struct sp_layout *lay)
{
    return lay->map ? lay->map->globals : lay->stages * lay->chunks;
}

int sp_updates(const struct sp_layout *lay)
{
    return lay->map && lay->map->batch ? lay->micro_batches / lay->map->batch : 1;
}

bool sp_op_updates(const struct sp_layout *lay, const struct sp_op *op)
{
    int batch = lay->map ? lay->map->batch : 0;

    return batch && op->pass == SP_B && (op->mb + 1) % batch == 0;
}

int sp_global_stage(const struct sp_layout *lay, int stage, int chunk)
{
    return lay->map ? lay->map->global[(size_t)stage * (size_t)lay->chunks + (size_t)chunk]
                    : stage + chunk * lay->stages;
}

int sp_pipe_of_mb(const struct sp_layout *lay, int mb)
{
    return lay->map && lay->map->pipe ? lay->map->pipe[mb] : 0;
}

int sp_pipe_of_chunk(const struct sp_layout *lay, int chunk)
{
    return sp_pipes(lay) > 1 ? chunk : 0;
}

struct sp_chunk_owner sp_chunk_owner(const struct sp_layout *lay, int pipe, int g)
{
    if (!lay->map)
        return (struct sp_chunk_owner){g % lay->stages, g / lay->stages};
    return lay->map->home[(size_t)pipe * (size_t)lay->map->globals + (size_t)g];
}

/* Tabulates the place of each chunk. Every global stage of every pipe must occur exactly once. */
static int fill(const struct sp_layout *lay,
                int (*global)(const struct sp_layout *lay, int stage, int chunk),
                struct sp_map *map, char *why, size_t n)
{
    for (int i = 0; i < map->pipes * map->globals; i++)
        map->home[i].stage = -1;
    for (int s = 0; s < lay->stages; s++) {
        for (int c = 0; c < lay->chunks; c++) {
            int g = global ? global(lay, s, c) : s + c * lay->stages;
            int pipe = map->pipes > 1 ? c : 0;
            struct sp_chunk_owner *home;

            if (g < 0 || g >= map->globals) {
                snprintf(why, n, "places chunk %d of stage %d at global stage %d, not in 0 .. %d",
                         c, s, g, map->globals - 1);
                return -EINVAL;
            }
            home = &map->home[(size_t)pipe * (size_t)map->globals + (size_t)g];
            if (home->stage >= 0) {
                snprintf(why, n, "places global stage %d twice, on stages %d and %d", g,
                         home->stage, s);
                return -EINVAL;
            }
            *home = (struct sp_chunk_owner){s, c};
            map->global[(size_t)s * (size_t)lay->chunks + (size_t)c] = g;
        }
    }
    return 0;
}

/* Allocates the tables; NULL: no memory. */
static struct sp_map *new_map(const struct sp_layout *lay, int pipes, int globals)
{
    struct sp_map *map = calloc(1, sizeof *map);

    if (!map)
        return NULL;
    *map = (struct sp_map){
        .pipes = pipes,
        .globals = globals,
        .global = calloc((size_t)lay->stages * (size_t)lay->chunks, sizeof *map->global),
        .home = calloc((size_t)pipes * (size_t)globals, sizeof *map->home),
        .pipe = pipes > 1 ? calloc((size_t)lay->micro_batches, 1) : NULL};
    if (map->global && map->home && (pipes == 1 || map->pipe))
        return map;
    sp_map_destroy(map);
    return NULL;
}

int sp_map_create(const struct sp_layout *lay, int pipes,
                  int (*global)(const struct sp_layout *lay, int stage, int chunk),
                  int (*pipe)(const struct sp_layout *lay, int mb), struct sp_map **out, char *why,
                  size_t n)
{
    struct sp_map *map;
    int err;

    if (pipes > 1 && lay->chunks != pipes) {
        snprintf(why, n, "has %d chunks per stage, one a direction, not %d; use --chunks %d", pipes,
                 lay->chunks, pipes);
        return -EINVAL;
    }
    map = new_map(lay, pipes, lay->stages * lay->chunks / pipes);
    if (!map)
        return -ENOMEM;
    err = fill(lay, global, map, why, n);
    for (int i = 0; !err && pipes > 1 && i < lay->micro_batches; i++) {
        int at = pipe ? pipe(lay, i) : i >= (lay->micro_batches + 1) / 2;

        if (at < 0 || at >= pipes) {
            snprintf(why, n, "sends micro-batch %d through pipe %d of %d", i, at, pipes);
            err = -EINVAL;
        }
        map->pipe[i] = (unsigned char)at;
    }
    if (err) {
        sp_map_destroy(map);
        return err;
    }
    *out = map;
    return 0;
}

int sp_map_create_all(const struct sp_layout *lay, struct sp_map **out)
{
    struct sp_map *map = new_map(lay, 1, lay->chunks);

    if (!map)
        return -ENOMEM;
    for (int i = 0; i < lay->stages * lay->chunks; i++)
        map->global[i] = i % lay->chunks;
    for (int c = 0; c < lay->chunks; c++)
        map->home[c].chunk = c;
    *out = map;
    return 0;
}

void sp_map_destroy(struct sp_map *map)
{
    if (!map)
        return;
    free(map->global);
    free(map->home);
    free(map->pipe);
    if (map->destroy_state && map->state)
        map->destroy_state(map->state);
    else
        free(map->state);
    free(map);
}
