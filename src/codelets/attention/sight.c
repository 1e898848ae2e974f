#include "codelets/attention/sight.h"
#include <math.h>

bool sp_sight_of(const struct sp_shape *sh, const struct sp_segment *s, int n,
                 const struct sp_keys *piece, struct sp_sight *sight)
{
    int begin = s->first - s->position, end = s->first + s->len, before = 0, seen = 0;

    for (int i = 0; i < n && piece[i].first < end; i++) {
        int skip = begin > piece[i].first ? begin - piece[i].first : 0, len = piece[i].len - skip;
        int earlier = s->first - piece[i].first - skip;
        size_t at =
            ((size_t)s->sequence * (size_t)piece[i].len + (size_t)skip) * (size_t)sh->kv_width;

        if (len <= 0)
            continue;
        sight->len[seen] = len;
        sight->keys[seen] = piece[i].keys ? sp_skip(sh, piece[i].keys, at) : NULL;
        sight->gradients[seen++] = piece[i].gradients ? sp_skip(sh, piece[i].gradients, at) : NULL;
        before += earlier < 0 ? 0 : earlier < len ? earlier : len;
    }
    sight->at = (struct sp_attention){
        .batch = s->sequences,
        .heads = sh->model.heads,
        .kv_heads = sh->model.kv_heads,
        .head_dim = sh->model.head_dim,
        .scale = 1.0f / sqrtf((float)sh->model.head_dim),
        .q_len = s->len,
        .q_pos = before,
        .n_kv = seen,
        .kv_len = sight->len,
    };
    return seen > 0;
}
