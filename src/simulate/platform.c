#include "simulate/platform.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const files[] = {"bus/simulated.platform.v4.xml", "bus/simulated.latency",
                                    "bus/simulated.bandwidth", "bus/simulated.config"};
enum { FILES = sizeof files / sizeof *files };

/* A bandwidth beyond need, because SimGrid has no unlimited links. */
static const double unlimited = 1e30;

struct sizes {
    const struct sp_sim_machine *machine;
    int ranks;
    double stretch;
};

static void one_link(FILE *f, const struct sizes *z, const char *name, int at, bool sends,
                     const struct sp_link *l)
{
    bool alone = z->machine->sharing == SP_LINK_FREE || l->bandwidth <= 0;

    fprintf(f,
            "<link id=\"%s-%d-%s\" bandwidth=\"%.17gBps\" latency=\"0s\" sharing_policy=\"%s\"/>\n",
            name, at, sends ? "up" : "down",
            l->bandwidth > 0 ? l->bandwidth / z->stretch : unlimited, alone ? "FATPIPE" : "SHARED");
}

/* Writes the interfaces of a link, with a SimGrid link for each direction or one for both, and its
 * latency. */
static void links(FILE *f, const struct sizes *z, const char *name, const struct sp_link *l)
{
    bool queued = z->machine->sharing == SP_LINK_QUEUED;

    for (int i = 0; i <= sp_sim_interface(l, z->ranks - 1); i++) {
        one_link(f, z, name, i, true, l);
        if (!l->half_duplex)
            one_link(f, z, name, i, false, l);
    }
    fprintf(f,
            "<link id=\"%s-latency\" bandwidth=\"%gBps\" latency=\"%.17gs\" "
            "sharing_policy=\"FATPIPE\"/>\n",
            name, unlimited, queued ? 0 : l->latency_s * z->stretch);
}

/* Writes the route of messages from one rank to another. */
static void route(FILE *f, const struct sizes *z, int from, int to)
{
    const struct sp_link *l = sp_sim_link_between(z->machine, from, to);
    const char *name = sp_sim_is_inside(z->machine, from, to) ? "node" : "network";
    int a = sp_sim_interface(l, from), b = sp_sim_interface(l, to);

    fprintf(f,
            "<route src=\"" SP_PLATFORM_RANK "\" dst=\"" SP_PLATFORM_RANK "\" symmetrical=\"NO\">"
            "<link_ctn id=\"%s-%d-up\"/>",
            from, to, name, a);
    if (!l->half_duplex || a != b)
        fprintf(f, "<link_ctn id=\"%s-%d-%s\"/>", name, b, l->half_duplex ? "up" : "down");
    fprintf(f, "<link_ctn id=\"%s-latency\"/></route>\n", name);
}

/* Switches off SimGrid's corrections, which model TCP: a message takes its latency and its bytes
 * over its share of the bandwidth. */
static const char head[] = "<?xml version='1.0'?>\n"
                           "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                           "<platform version=\"4.1\">\n"
                           "<config>\n"
                           "<prop id=\"network/model\" value=\"CM02\"/>\n"
                           "<prop id=\"network/TCP-gamma\" value=\"-1\"/>\n"
                           "<prop id=\"network/latency-factor\" value=\"1\"/>\n"
                           "<prop id=\"network/bandwidth-factor\" value=\"1\"/>\n"
                           "<prop id=\"network/crosstraffic\" value=\"0\"/>\n"
                           "<prop id=\"network/weight-S\" value=\"0\"/>\n"
                           "</config>\n"
                           "<zone id=\"machine\" routing=\"Full\">\n"
                           "<host id=\"MAIN\" speed=\"1Gf\"/>\n"
                           "<host id=\"RAM\" speed=\"1Gf\"/>\n";

static void write_platform(FILE *f, const struct sizes *z)
{
    const struct sp_sim_machine *m = z->machine;

    fputs(head, f);
    for (int s = 0; s < z->ranks; s++)
        fprintf(f, "<host id=\"" SP_PLATFORM_RANK "\" speed=\"1Gf\"/>\n", s);
    links(f, z, "node", &m->node);
    links(f, z, "network", &m->network);
    for (int s = 0; s < z->ranks; s++)
        for (int t = 0; t < z->ranks; t++)
            if (s != t)
                route(f, z, s, t);
    fputs("</zone>\n</platform>\n", f);
}

static int path_of(const struct sp_platform *p, const char *name, char *path, size_t n)
{
    return snprintf(path, n, "%s/%s", p->dir, name) < (int)n ? 0 : -ENAMETOOLONG;
}

/* All data are in one memory, so the bus that StarPU knows connects nothing. */
static int write_files(const struct sp_platform *p, const struct sizes *z)
{
    for (int i = 0; i < FILES; i++) {
        char path[128];
        FILE *f;
        bool bad;

        path_of(p, files[i], path, sizeof path);
        f = fopen(path, "w");
        if (!f)
            return sp_error(errno, "simulate: cannot write %s: %s", path, strerror(errno));
        if (i == 0)
            write_platform(f, z);
        else
            fputs("0.0\t\n", f);
        bad = ferror(f);
        if (fclose(f) || bad)
            return sp_error(EIO, "simulate: cannot write %s: %s", path, strerror(errno));
    }
    return 0;
}

/* Sets the emulated overheads of StarPU to 0: the simulation is about the schedule. */
static void set_environment(const struct sp_platform *p)
{
    static const char *const costs[] = {
        "STARPU_SIMGRID_CUDA_MALLOC_COST",    "STARPU_SIMGRID_CUDA_QUEUE_COST",
        "STARPU_SIMGRID_FETCHING_INPUT_COST", "STARPU_SIMGRID_SCHED_COST",
        "STARPU_SIMGRID_TASK_PUSH_COST",      "STARPU_SIMGRID_TASK_SUBMIT_COST"};

    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        setenv(costs[i], "0", 1);
    setenv("STARPU_PERF_MODEL_DIR", p->dir, 1);
    setenv("STARPU_HOME", p->dir, 1);
    setenv("STARPU_HOSTNAME", "simulated", 1);
    setenv("STARPU_SILENT", "1", 0);
    unsetenv("STARPU_LIMIT_BANDWIDTH");
}

int sp_platform_create(struct sp_platform *p, const struct sp_sim_machine *m, int ranks,
                       double stretch)
{
    const struct sizes z = {m, ranks, stretch};
    const char *tmp = getenv("TMPDIR");
    char path[128];
    int err;

    snprintf(p->dir, sizeof p->dir, "%s/starpipe-sim-XXXXXX",
             tmp && strlen(tmp) < 32 ? tmp : "/tmp");
    if (!mkdtemp(p->dir)) {
        err = sp_error(errno, "simulate: cannot make %s: %s", p->dir, strerror(errno));
        p->dir[0] = 0;
        return err;
    }
    path_of(p, "bus", path, sizeof path);
    if (mkdir(path, 0700))
        err = sp_error(errno, "simulate: cannot make %s: %s", path, strerror(errno));
    else
        err = write_files(p, &z);
    if (err)
        sp_platform_destroy(p);
    else
        set_environment(p);
    return err;
}

void sp_platform_destroy(struct sp_platform *p)
{
    static const char *const others[] = {"bus", "codelets/45", "codelets/tmp", "codelets",
                                         "sampling"};
    char path[128];

    if (!p->dir[0])
        return;
    for (int i = 0; i < FILES; i++)
        if (!path_of(p, files[i], path, sizeof path))
            unlink(path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!path_of(p, others[i], path, sizeof path))
            rmdir(path);
    rmdir(p->dir);
    p->dir[0] = 0;
}
