/* WeiPipe: its systems as runs; in weipipe_claims.c what the text says, figures 6 and 7, and what rings carry. */
#ifndef SP_REPRODUCE_WEIPIPE_H
#define SP_REPRODUCE_WEIPIPE_H

#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"

struct sp_weipipe_setting {
    const char *machine, *model;
    int layers, batch, seq, devices;
    int sequences; /* of a device and step */
    bool memory_only;
};

struct sp_weipipe_setting sp_weipipe_setting_of(const struct sp_cell *cell);

/* 0; or one line on stderr and -errno. The run's model lasts until the next call. */
int sp_weipipe_run(const struct sp_weipipe_setting *setting, const char *schedule,
                   struct sp_run *run, struct sp_run_result *result);

int sp_weipipe_figures_6_7(struct sp_unpublished *out);
int sp_weipipe_figure_5_communication(struct sp_cell *cell);

extern const struct sp_experiment sp_weipipe_claims[];

#endif
