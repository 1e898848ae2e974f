/* A machine as it is printed. */
#ifndef SP_HARDWARE_H
#define SP_HARDWARE_H

#include "plan/machine/machine.h"

/* Prints it in words on standard output, or as the file that describes it. 0 or -ENOMEM. */
int sp_hardware_print(const struct sp_machine *m, bool words);

#endif
