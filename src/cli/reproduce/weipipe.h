/* WeiPipe: its systems as runs; in weipipe_claims.c what the text says, figures 6 and 7, and what
 * rings carry, in weipipe_assumptions.c who wins under other assumptions. */
#ifndef SP_REPRODUCE_WEIPIPE_H
#define SP_REPRODUCE_WEIPIPE_H

#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"

/* Constants that the paper does not state, inferred from its cells. */
struct sp_weipipe_assumptions {
    int vocabulary;
    double unfused; /* see struct sp_run */
    bool own_ring;  /* starpipe's, not the paper's */
    bool buffered;  /* messages of 1F1B and ZB do not block */
    double waits;   /* of ZB alone, see struct sp_run */
};

struct sp_weipipe_setting {
    const char *machine, *model;
    int layers, batch, seq, devices;
    int sequences; /* of a device and step */
    bool memory_only;
    struct sp_weipipe_assumptions assumed;
};

/* The setting of a cell; what it does not say is as in table 2. */
struct sp_weipipe_setting sp_weipipe_setting_of(const struct sp_cell *cell);

/* The setting of a row of table 2. */
enum { SP_WEIPIPE_ROWS = 9 };
struct sp_weipipe_setting sp_weipipe_row(int row);

/* Plays each setting once: later calls have the result of the first. 0; or one line on stderr and
 * -errno. */
int sp_weipipe_run(const struct sp_weipipe_setting *setting, const char *schedule,
                   struct sp_run *run, struct sp_run_result *result);

/* Tokens a second and GPU of a setting, 0 where it does not fit. */
int sp_weipipe_rate(const struct sp_weipipe_setting *setting, const char *schedule, double *rate);

int sp_weipipe_figures_6_7(struct sp_unpublished *out);
int sp_weipipe_vary(const struct sp_paper *paper, struct sp_unpublished *out);
int sp_weipipe_figure_5_communication(struct sp_cell *cell);

extern const struct sp_experiment sp_weipipe_claims[];

#endif
