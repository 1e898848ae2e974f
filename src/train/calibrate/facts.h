/* What is known of this machine without measuring: its names, its memory. */
#ifndef SP_CALIBRATE_FACTS_H
#define SP_CALIBRATE_FACTS_H

#include "graphs/placement.h"
#include "plan/machine/machine.h"

/* name, device, memory_bytes, devices_per_node, host_bytes. 0, or -errno after one line. */
int sp_machine_facts(const struct sp_placement *place, struct sp_machine *m);

/* One more line of m->source, where it has room. */
void sp_machine_note(struct sp_machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Which machine, which versions, which day. */
void sp_machine_note_origin(const struct sp_placement *place, struct sp_machine *m);

#endif
