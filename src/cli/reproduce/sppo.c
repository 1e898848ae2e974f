#include "cli/reproduce/paper.h"
static const struct sp_experiment experiments[] = {{0}};
const struct sp_paper sp_paper_sppo = {.name = "sppo", .experiments = experiments};
