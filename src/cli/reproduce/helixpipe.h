/*
 * HelixPipe: its systems as runs, and its tables and figures. helixpipe_tables.c has tables 1 and
 * 2; helixpipe_claims.c has the grid of figure 8 and what the text says of figures.
 */
#ifndef SP_REPRODUCE_HELIXPIPE_H
#define SP_REPRODUCE_HELIXPIPE_H

#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"

/* Costs of a layer's parts in units of a pre-attention forward, as in the paper's figures. */
#define SP_HELIXPIPE_COSTS "pre=1,attn=3,post=2"

enum { SP_HELIXPIPE_BASELINES = 3, SP_HELIXPIPE_SYSTEMS, SP_HELIXPIPE_PARTS = 6 };

/* The schedules of the systems: the baselines, then HelixPipe. */
extern const char *const sp_helixpipe_systems[SP_HELIXPIPE_SYSTEMS];

/* One run of the paper's grid, with 2p micro-batches of one sequence. */
struct sp_helixpipe_setting {
    const char *machine, *model;
    int seq, stages;
    double attention; /* see struct sp_run */
};

struct sp_helixpipe_setting sp_helixpipe_setting_of(const struct sp_cell *cell);

/* All return 0; or one line on stderr and -errno. */
int sp_helixpipe_run(const struct sp_helixpipe_setting *setting, const char *schedule,
                     struct sp_run *run);

/* Tokens a second and GPU of all systems; 0: it does not fit. */
int sp_helixpipe_rates(const struct sp_helixpipe_setting *setting,
                       double rates[SP_HELIXPIPE_SYSTEMS]);

/* Speedup of HelixPipe over the best baseline, in per cent; NAN: no baseline fits, or HelixPipe
 * does not. */
double sp_helixpipe_speedup(const double rates[SP_HELIXPIPE_SYSTEMS]);

/* Throughput that recomputation costs; fits[]: whether the run fits without it, and with it. */
int sp_helixpipe_lost(const struct sp_helixpipe_setting *setting, double *percent, bool fits[2]);

/* bytes[stages]: memory of one GPU of each stage. */
int sp_helixpipe_memory(const struct sp_helixpipe_setting *setting, const char *schedule,
                        double *bytes);

/* Shares of pre-attention, attention and post-attention in a layer's forward and its backward. */
int sp_helixpipe_shares(int seq, double share[SP_HELIXPIPE_PARTS]);

/* The activations of a stage, in bytes and in bsh numbers; `model` if the cell names none. */
int sp_helixpipe_activations(const struct sp_cell *cell, const char *model, const char *schedule,
                             double *bytes, double *bsh);

int sp_helixpipe_figure_8(struct sp_unpublished *out);
int sp_helixpipe_vary(const struct sp_paper *paper, struct sp_unpublished *out);
int sp_helixpipe_table_1(struct sp_cell *cell);
int sp_helixpipe_table_1_memory(struct sp_cell *cell);
int sp_helixpipe_table_2(struct sp_cell *cell);
int sp_helixpipe_section_4(struct sp_cell *cell);

extern const struct sp_experiment sp_helixpipe_claims[];

#endif
