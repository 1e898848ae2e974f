/* WebAssembly loads no shared library, so all code there is our own and needs no guard. */
#include "policies/load/guard.h"
#include "policies/load/plugin.h"
#include "sp_error.h"
#include <stdlib.h>

int sp_plugins_load(const char *files)
{
    return files ? sp_error(EINVAL, "plugin %s: a page loads none", files) : 0;
}

int sp_guard_call(const struct sp_schedule_owner *owner, const char *what, void (*fn)(void *arg),
                  void *arg)
{
    (void)owner, (void)what;
    fn(arg);
    return 0;
}

void sp_guard_work_begins(void)
{
}

void sp_guard_full(int ops)
{
    sp_error(EINVAL, "a schedule appends more than %d ops to a program", ops);
    exit(2);
}
