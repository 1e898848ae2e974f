/* The survey: in survey_choice.c which parallelism suits a task. */
#ifndef SP_REPRODUCE_SURVEY_H
#define SP_REPRODUCE_SURVEY_H

#include "cli/reproduce/paper.h"

int sp_survey_choice(struct sp_cell *cell);

#endif
