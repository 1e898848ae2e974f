/* A machine in words, for people. */
#ifndef SP_HARDWARE_H
#define SP_HARDWARE_H

#include "plan/machine/machine.h"
#include <stdio.h>

void sp_hardware_print(FILE *f, const struct sp_machine *m);

#endif
