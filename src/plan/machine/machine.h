/*
 * A machine: nodes of equal devices, as everything that predicts times sees it, or several kinds of such nodes. A named
 * one, or a file that somebody wrote or `starpipe calibrate` measured; docs/machines.md has the keys of such a file. Pure.
 *
 * Rates are what is sustained, not peaks. Operations and bytes are those that the kernels of
 * kernels/kernels.h count for a call.
 */
#ifndef SP_MACHINE_H
#define SP_MACHINE_H

#include "kernels/dtype.h"
#include "model/model.h"
#include <stdbool.h>
#include <stdint.h>

enum { SP_CURVE_POINTS = 24, SP_MACHINE_TEXT = 4096, SP_MACHINE_TEAMS = 16, SP_MACHINE_KINDS = 8 };

/* A rate over the size of one call: between its points on the line through them in logarithms, beyond them
 * that of the nearest. Sizes ascend; there is at least one point. */
struct sp_curve {
    int n;
    struct {
        double size, rate;
    } at[SP_CURVE_POINTS];
};

double sp_curve_rate(const struct sp_curve *c, double size);

/* What a call of that size takes, in seconds; 0 of size 0. */
double sp_curve_s(const struct sp_curve *c, double size);

/* One interface: it sends and receives at `bandwidth` each, at the same time unless half_duplex. */
struct sp_link {
    double latency_s, bandwidth; /* bytes a second */
    bool half_duplex;
    int shared_by; /* devices that send and receive through it */
};

/* A message that has the interface to itself, in seconds. */
double sp_link_s(const struct sp_link *l, double bytes);

/* Between the memory of a device and that of its node, bytes a second; all 0: they are the same memory, as
 * a CPU's are. */
struct sp_copy_rates {
    double to_host, from_host;
    double both;   /* each way, when both ways are busy */
    int shared_by; /* devices that share these rates */
};

/* Of a node, bytes a second; all 0: it has no disk. */
struct sp_disk_rates {
    double write, read;
    double both; /* each way, when both ways are busy */
};

enum sp_attention_pass { SP_ATTENTION_FORWARD, SP_ATTENTION_BACKWARD, SP_ATTENTION_PASSES };

/* The figures of one device, while all devices of its node are at work. */
struct sp_rates {
    int threads;                       /* of the device; 0: it is a GPU, or the file does not say */
    struct sp_curve matmul[SP_DTYPES]; /* FLOP/s of a product, by its FLOPs */
    /* FLOP/s of attention by the FLOPs of the call: sp_flops_attention, which counts visible pairs only;
     * 2.5 times that in the backward */
    struct sp_curve attention[SP_DTYPES][SP_ATTENTION_PASSES];
    /* Pairs of a query and a key a second, of what attention does for each beside operations, however wide heads are, by
     * the pairs of a head of a sequence; and attention[] is by the FLOPs of one then. No points: it is part of attention[]. */
    struct sp_curve pairs[SP_DTYPES][SP_ATTENTION_PASSES];
    /* bytes/s of kernels that memory bounds, by the bytes that a call reads and writes. In bf16 no points: as in f32. */
    struct sp_curve memory[SP_DTYPES];
    double launch_s; /* what the runtime takes for a task */
};

/* Nodes of a machine that are alike. */
struct sp_nodes {
    int count;
    const struct sp_machine *machine; /* of such nodes alone; it lives as long as the program */
    const char *named;                /* by which name or file it was given; NULL: by none */
};

struct sp_machine {
    char name[64];
    char source[SP_MACHINE_TEXT]; /* where its numbers are from, in lines */
    char device[128];             /* what a device is called */

    struct sp_rates rates;
    int64_t memory_bytes; /* of a device */

    /* The same cores as devices of other numbers of threads, which ascend. */
    int teams;
    struct sp_rates team[SP_MACHINE_TEAMS];

    int devices_per_node;
    int64_t host_bytes; /* of a node; a CPU's memory is this */
    struct sp_copy_rates copy;
    struct sp_disk_rates disk;
    struct sp_link node;    /* between devices of a node */
    struct sp_link network; /* between nodes */

    /* Its nodes, where they are of several kinds, in the order in which stages fill them; all figures above are those of
     * the slowest kind then, and the least memory. 0: all nodes are alike, and there may be any number of them. */
    int kinds;
    struct sp_nodes kind[SP_MACHINE_KINDS];
};

/* Whether its devices compute in the memory of their node. */
static inline bool sp_machine_is_cpu(const struct sp_machine *m)
{
    return m->copy.to_host <= 0;
}

/*
 * Makes the devices of a machine of cores such of `threads` threads each, as many as its cores allow: with the figures
 * of so many threads, or between those of the two numbers of threads next to it. Beyond all of them it takes the
 * nearest ones, and says so in `why`, as it does where the file does not say how many threads its figures are of;
 * else `why` is empty. GPUs stay as they are.
 */
enum { SP_THREADS_WHY = 256 };

void sp_machine_take_threads(struct sp_machine *m, int threads, char why[SP_THREADS_WHY]);

/* Rows of logits at a time, as sp_shape_init takes them: as `train` has them there. NULL: no machine is known. */
int sp_machine_head_rows(const struct sp_machine *m, const struct sp_model *model);

/* The machine of that node, and of `devices` devices from one on: that of the slowest of them. The last kind goes on without
 * an end. */
const struct sp_machine *sp_machine_of_node(const struct sp_machine *m, int node);
const struct sp_machine *sp_machine_of_devices(const struct sp_machine *m, int64_t first,
                                               int64_t devices);

/* Nodes of all kinds; 0: as many as somebody says. */
int sp_machine_nodes(const struct sp_machine *m);

/* The kinds of *m in other orders, itself first, into order[SP_MACHINE_ORDERS]: all of up to three, of more the reverse. How
 * many; 1 where nodes are alike, or are not known by names. */
enum { SP_MACHINE_ORDERS = 6 };
int sp_machine_orders(const struct sp_machine *m, struct sp_machine *order);

/* Its kinds as sp_machine_load has them, into text[n]. */
void sp_machine_list(const struct sp_machine *m, char *text, size_t n);

/* *m of nodes of such kinds, which are copied. 0, or -EINVAL after one line: their devices are too different. */
int sp_machine_join(const char *where, const struct sp_nodes *kind, int kinds,
                    struct sp_machine *m);

/*
 * A machine by its name, or of a file: what is no name of a machine and has a '/' or ends in ".json". Or a list of such,
 * with how many nodes each has, "h100-ib:2,a800-ib:4".
 * 0; or one line on stderr and -EINVAL, or what opening the file says; *m is set on success.
 */
int sp_machine_load(const char *name_or_file, struct sp_machine *m);

/* Where nobody says which. */
#define SP_MACHINE_DEFAULT "h100-ib"

/* The named ones in the order of the alphabet, NULL past the end. */
const char *sp_machine_name_at(int i);

/* What `json` says; messages begin with `where`. Refuses as sp_machine_load does. */
int sp_machine_parse(const char *where, const char *json, struct sp_machine *m);

/* The machine as such a file, to be freed; it reads back as exactly *m. NULL after one line on stderr. */
char *sp_machine_text(const struct sp_machine *m);

/* Sets the machine of nodes, and the name[n] by which it was given (NULL: none), to copies that live as long as the
 * program. 0, or -ENOMEM after one line. */
int sp_machine_keep(const struct sp_machine *m, const char *name, size_t n, struct sp_nodes *nodes);

/* Nodes of one kind at most. */
enum { SP_MACHINE_NODES = 4096 };

#endif
