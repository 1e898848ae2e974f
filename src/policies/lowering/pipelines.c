#include "policies/lowering/pipelines.h"

int sp_pipelines_exchanges(int pipeline, int pipelines, struct sp_exchange out[SP_MAX_EXCHANGES])
{
    int power = 1, n = 0;
    bool helps;

    while (2 * power <= pipelines)
        power *= 2;
    if (pipeline >= power) {
        out[n++] = (struct sp_exchange){.peer = pipeline - power, .sends = true};
        out[n++] =
            (struct sp_exchange){.peer = pipeline - power, .receives = true, .replaces = true};
        return n;
    }
    helps = pipeline + power < pipelines;
    if (helps)
        out[n++] = (struct sp_exchange){.peer = pipeline + power, .receives = true};
    for (int bit = 1; bit < power; bit *= 2)
        out[n++] = (struct sp_exchange){.peer = pipeline ^ bit, .sends = true, .receives = true};
    if (helps)
        out[n++] = (struct sp_exchange){.peer = pipeline + power, .sends = true};
    return n;
}

int sp_pipelines_sent(int pipeline, int pipelines)
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int n = sp_pipelines_exchanges(pipeline, pipelines, e), sent = 0;

    for (int i = 0; i < n; i++)
        sent += e[i].sends;
    return sent;
}

void sp_pipelines_part(uint64_t n, int pipeline, int pipelines, uint64_t *first, uint64_t *count)
{
    uint64_t q = (uint64_t)pipeline, each = n / (uint64_t)pipelines, more = n % (uint64_t)pipelines;

    *first = q * each + (q < more ? q : more);
    *count = each + (q < more);
}
