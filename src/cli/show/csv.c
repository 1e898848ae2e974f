#include "cli/show/show.h"
#include "policies/load/csv.h"
#include "sp_error.h"

int sp_show_csv(const struct sp_show *show, FILE *out)
{
    char why[160];
    int ret = sp_csv_write(show->plan, out, why, sizeof why);

    return ret ? sp_error(-ret, "show: %s", why) : 0;
}
