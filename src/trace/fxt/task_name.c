#include "trace/fxt/task_name.h"
#include <ctype.h>
#include <stdio.h>

bool sp_task_name_read(const char *text, struct sp_task_name *name)
{
    int at = 0, next = 0;

    *name = (struct sp_task_name){.micro_batch = -1, .slice = -1};
    if (sscanf(text, "%c s%d%n", &name->pass, &name->stage, &at) != 2 || !isupper(name->pass) ||
        !at)
        return false;
    if (sscanf(text + at, " m%d%n", &name->micro_batch, &next) == 1) {
        at += next;
        if (sscanf(text + at, ".%d%n", &name->slice, &next) == 1)
            at += next;
    }
    next = 0;
    if (sscanf(text + at, " l%d %n", &name->layer, &next) != 1 || !next || !text[at + next])
        return false;
    name->part = text + at + next;
    return true;
}

char *sp_task_kind(const struct sp_task_name *name, char *kind)
{
    snprintf(kind, SP_TASK_KIND, "%c %s", name->pass, name->part);
    return kind;
}
