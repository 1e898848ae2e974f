#include "policies/lowering/action.h"

const char *sp_action_name(enum sp_action_kind kind)
{
    static const char *const names[SP_ACTION_KINDS] = {
        [SP_ACTION_RUN] = "RUN",           [SP_ACTION_SEND] = "SEND",
        [SP_ACTION_RECV] = "RECV",         [SP_ACTION_GATHER] = "GATHER",
        [SP_ACTION_SCATTER] = "SCATTER",   [SP_ACTION_REDUCE] = "REDUCE",
        [SP_ACTION_EXCHANGE] = "EXCHANGE", [SP_ACTION_EVICT] = "EVICT",
        [SP_ACTION_FETCH] = "FETCH",       [SP_ACTION_FREE] = "FREE",
    };

    return names[kind];
}
