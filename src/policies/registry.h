/* The schedules: one X-macro table of the built-in ones, plus what plugins add. */
#ifndef SP_REGISTRY_H
#define SP_REGISTRY_H

#include "starpipe/schedule.h"

#define SP_SCHEDULES(X)                                                                            \
    X(naive)                                                                                       \
    X(gpipe)                                                                                       \
    X(1f1b)                                                                                        \
    X(interleaved)                                                                                 \
    X(bfs)                                                                                         \
    X(zb1p)                                                                                        \
    X(zb2p)                                                                                        \
    X(zbv)                                                                                         \
    X(v_half)                                                                                      \
    X(v_min)                                                                                       \
    X(1f1b_v)                                                                                      \
    X(dualpipe)                                                                                    \
    X(dualpipev)                                                                                   \
    X(chimera)                                                                                     \
    X(hanayo)                                                                                      \
    X(adapipe)                                                                                     \
    X(seq1f1b)                                                                                     \
    X(terapipe)                                                                                    \
    X(helix)                                                                                       \
    X(weipipe_naive)                                                                               \
    X(weipipe)                                                                                     \
    X(wzb1)                                                                                        \
    X(wzb2)                                                                                        \
    X(fsdp)                                                                                        \
    X(sppo)

/* NULL if there is none; a suffix ":..." of the name is ignored. */
const struct sp_schedule_def *sp_schedule_find(const char *name);
/* The i-th schedule, NULL past the end. */
const struct sp_schedule_def *sp_schedule_at(int i);

/* Adds a schedule of a plugin, whose name must be new; both stay the caller's and alive. 0 or
 * -ENOMEM. */
int sp_schedule_add(const struct sp_schedule_def *def, const char *plugin);
/* The file of the plugin that a schedule comes from, NULL: built in. */
const char *sp_schedule_plugin(const struct sp_schedule_def *def);

#endif
