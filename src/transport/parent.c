#include "transport/parent.h"
#include "transport/launcher.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads a process's name, parent and start from /proc. False: it is gone, or a zombie. */
static bool look_at(pid_t pid, char name[32], pid_t *parent, unsigned long long *start)
{
    char path[48], text[1024], *end, state;
    FILE *f;
    size_t n;
    int up;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    end = strrchr(text, ')');
    if (!end || !strchr(text, '('))
        return false;
    *end = '\0';
    snprintf(name, 32, "%.31s", strchr(text, '(') + 1);
    if (sscanf(end + 1,
               " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &up, start) != 3)
        return false;
    *parent = up;
    return state != 'Z' && state != 'X';
}

static bool launches(const char *name)
{
    static const char *const names[] = {
        "mpirun",  "mpiexec", "orterun",         "orted",         "prte",      "prted",
        "prterun", "srun",    "hydra_pmi_proxy", "mpiexec.hydra", "slurmstepd"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

void sp_parent_find(struct sp_parent *p)
{
    pid_t direct = getppid(), pid = direct, up;
    unsigned long long start;
    char name[32];

    *p = (struct sp_parent){0};
    if (!sp_launcher_find().size)
        return;
    for (int i = 0; i < 16 && pid > 1 && look_at(pid, name, &up, &start); i++, pid = up)
        if (launches(name)) {
            *p = (struct sp_parent){pid, start};
            return;
        }
    if (direct > 1 && look_at(direct, name, &up, &start))
        *p = (struct sp_parent){direct, start};
}

bool sp_parent_gone(const struct sp_parent *p)
{
    unsigned long long start;
    char name[32];
    pid_t up;

    return p->pid && (!look_at(p->pid, name, &up, &start) || start != p->start);
}
