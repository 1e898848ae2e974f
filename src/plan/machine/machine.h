/*
 * A machine as everything that predicts times sees it: nodes of equal devices, or several kinds of
 * such nodes. It is a named one, or comes from a file that somebody wrote or `starpipe calibrate`
 * measured; docs/machines.md has the keys of such a file. Pure.
 *
 * Rates are sustained ones, not peaks. Operations and bytes are those that the kernels of
 * kernels/kernels.h count for a call.
 */
#ifndef SP_MACHINE_H
#define SP_MACHINE_H

#include "kernels/dtype.h"
#include "model/model.h"
#include <stdbool.h>
#include <stdint.h>

enum { SP_CURVE_POINTS = 24, SP_MACHINE_TEXT = 4096, SP_MACHINE_TEAMS = 16, SP_MACHINE_KINDS = 8 };

/* A rate by the size of one call. Between points it is interpolated in logarithms; beyond them it
 * is that of the nearest point. Sizes ascend; there is at least one point. */
struct sp_curve {
    int n;
    struct {
        double size, rate;
    } at[SP_CURVE_POINTS];
};

double sp_curve_rate(const struct sp_curve *c, double size);

/* Seconds of a call of that size; 0 for size 0. */
double sp_curve_s(const struct sp_curve *c, double size);

/* One interface: it sends and receives at `bandwidth` each, at the same time unless half_duplex. */
struct sp_link {
    double latency_s, bandwidth; /* bytes a second */
    bool half_duplex;
    int shared_by; /* devices that send and receive through it */
};

/* Seconds of a message that has the interface to itself. */
double sp_link_s(const struct sp_link *l, double bytes);

/* Bytes a second between the memory of a device and that of its node. All 0: they are the same
 * memory, as for a CPU. */
struct sp_copy_rates {
    double to_host, from_host;
    double both;   /* each way, when both ways are busy */
    int shared_by; /* devices that share these rates */
};

/* Bytes a second of a node's disk. All 0: it has no disk. */
struct sp_disk_rates {
    double write, read;
    double both; /* each way, when both ways are busy */
};

enum sp_attention_pass { SP_ATTENTION_FORWARD, SP_ATTENTION_BACKWARD, SP_ATTENTION_PASSES };

/* The figures of one device, while all devices of its node are at work. */
struct sp_rates {
    int threads; /* of the device; 0: it is a GPU, or the file does not say */
    /* FLOP/s of a product, by its FLOPs; in fp8 with the rounding of its operands. No points in fp8:
     * the rates of bf16 hold. */
    struct sp_curve matmul[SP_DTYPES];
    /* FLOP/s of attention by the FLOPs of the call: sp_flops_attention, which counts visible pairs
     * only; the backward has 2.5 times as many */
    struct sp_curve attention[SP_ELEMENTS][SP_ATTENTION_PASSES];
    /* Query-key pairs a second, for the work of attention on each pair besides its operations,
     * however wide the heads are; by the pairs of one head of one sequence. attention[] is by the
     * FLOPs of one head then. No points: attention[] includes this work. */
    struct sp_curve pairs[SP_ELEMENTS][SP_ATTENTION_PASSES];
    /* bytes/s of memory-bound kernels, by the bytes that a call reads and writes. No points in
     * bf16: the rates of f32 hold. */
    struct sp_curve memory[SP_ELEMENTS];
    double launch_s; /* runtime overhead of a task */
};

/* Nodes of a machine that are alike. */
struct sp_nodes {
    int count;
    const struct sp_machine *machine; /* has only such nodes; it lives as long as the program */
    const char *named;                /* the name or file that the user gave; NULL: none */
};

struct sp_machine {
    char name[64];
    char source[SP_MACHINE_TEXT]; /* where its numbers come from, in lines */
    char device[128];             /* what a device is called */

    struct sp_rates rates;
    int64_t memory_bytes; /* of a device */

    /* Figures of the same cores as devices of other numbers of threads, which ascend. */
    int teams;
    struct sp_rates team[SP_MACHINE_TEAMS];

    int devices_per_node;
    int64_t host_bytes; /* of a node; a CPU's memory is this */
    double host_rate; /* bytes a second of that memory, read and written by all cores; 0: unknown */
    struct sp_copy_rates copy;
    struct sp_disk_rates disk;
    struct sp_link node;    /* between devices of a node */
    struct sp_link network; /* between nodes */

    /* The kinds of nodes, in the order in which stages fill them, if there are several. All figures
     * above are then those of the slowest kind, with the least memory. 0: all nodes are alike, and
     * there may be any number of them. */
    int kinds;
    struct sp_nodes kind[SP_MACHINE_KINDS];
};

/* True if its devices compute in the memory of their node. */
static inline bool sp_machine_is_cpu(const struct sp_machine *m)
{
    return m->copy.to_host <= 0;
}

/*
 * Turns a machine of cores into devices of `threads` threads each, as many as its cores allow.
 * Their figures are the measured ones for so many threads, or lie between those of the two nearest
 * numbers of threads. Beyond the measured range the nearest figures serve, and `why` says so; it
 * also says if the file does not tell the threads of its figures. Otherwise `why` is empty. GPUs
 * stay as they are.
 */
enum { SP_THREADS_WHY = 256 };

void sp_machine_take_threads(struct sp_machine *m, int threads, char why[SP_THREADS_WHY]);

/* Warns with one line if the machine is to price products in fp8 and has no rates for them. */
void sp_machine_check_dtype(const struct sp_machine *m, enum sp_dtype dtype);

/* Rows of logits at a time, for sp_shape_cut: those that `train` uses there. NULL: no machine is
 * known. */
int sp_machine_head_rows(const struct sp_machine *m, const struct sp_model *model);

/* The machine of one node; or of the slowest of `devices` devices from `first` on. The last kind
 * continues without end. */
const struct sp_machine *sp_machine_of_node(const struct sp_machine *m, int node);
const struct sp_machine *sp_machine_of_devices(const struct sp_machine *m, int64_t first,
                                               int64_t devices);

/* Nodes of all kinds; 0: any number. */
int sp_machine_nodes(const struct sp_machine *m);

/* Fills order[SP_MACHINE_ORDERS] with *m in several orders of its kinds, itself first: all orders
 * of up to three kinds; for more kinds, itself and the reverse. Returns how many; 1 if nodes are
 * alike or have no names. */
enum { SP_MACHINE_ORDERS = 6 };
int sp_machine_orders(const struct sp_machine *m, struct sp_machine *order);

/* Writes its kinds as a list that sp_machine_load reads, into text[n]. */
void sp_machine_list(const struct sp_machine *m, char *text, size_t n);

/* Sets *m to a machine of such kinds of nodes, which are copied. 0, or -EINVAL after one line:
 * their devices are too different. */
int sp_machine_join(const char *where, const struct sp_nodes *kind, int kinds,
                    struct sp_machine *m);

/*
 * Loads a machine by its name, or from a file: any other text with a '/' or ending in ".json". Or a
 * list of such, with the number of nodes of each: "h100-ib:2,a800-ib:4". 0; or one line on stderr
 * and -EINVAL, or the error of opening the file; *m is set on success.
 */
int sp_machine_load(const char *name_or_file, struct sp_machine *m);

/* The default machine. */
#define SP_MACHINE_DEFAULT "h100-ib"

/* The named machines in alphabetical order; NULL past the end. */
const char *sp_machine_name_at(int i);

/* Sets *m to the machine that `json` describes; messages begin with `where`. Refuses as
 * sp_machine_load does. */
int sp_machine_parse(const char *where, const char *json, struct sp_machine *m);

/* Writes the machine as such a file, which the caller frees; it reads back as exactly *m. NULL
 * after one line on stderr. */
char *sp_machine_text(const struct sp_machine *m);

/* Sets the machine of `nodes`, and the name[n] that the user gave (NULL: none), to copies that live
 * as long as the program. 0, or -ENOMEM after one line. */
int sp_machine_keep(const struct sp_machine *m, const char *name, size_t n, struct sp_nodes *nodes);

/* The most nodes of one kind. */
enum { SP_MACHINE_NODES = 4096 };

#endif
