/* Facts about this machine that need no measuring: its names, its memory. */
#ifndef SP_CALIBRATE_FACTS_H
#define SP_CALIBRATE_FACTS_H

#include "graphs/placement.h"
#include "plan/machine/machine.h"

/* Sets name, device, memory_bytes, devices_per_node, host_bytes. 0, or -errno after one line. */
int sp_machine_facts(const struct sp_placement *place, struct sp_machine *m);

/* Adds a line to m->source, if there is room. */
void sp_machine_note(struct sp_machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Notes the machine, the versions and the day. */
void sp_machine_note_origin(const struct sp_placement *place, struct sp_machine *m);

#endif
