/*
 * What the environment tells StarPU. Variables that were set for another program, in a job script say, would change
 * which workers there are, in which order they work or whether they compute: they are set aside while StarPU starts.
 * And StarPU ends the program where it cannot write below the home directory: then it gets a directory of its own.
 */
#ifndef SP_STARPU_ENVIRONMENT_H
#define SP_STARPU_ENVIRONMENT_H

#include <stdbool.h>

struct starpu_conf;

/*
 * Sets the environment and fills in `conf` as starpu_conf_init does. `host_limit`: STARPU_LIMIT_CPU_MEM counts, because
 * what does not fit goes to a disk; elsewhere StarPU would wait for ever. 0, or -errno after one line where no directory
 * can be written. Other threads leave the environment alone meanwhile.
 */
int sp_starpu_environment_set(struct starpu_conf *conf, bool host_limit);

/* Sets a variable, or with NULL unsets it, until the environment is put back; `default`: where it is not set. 0, or
 * -ENOMEM after one line. */
int sp_starpu_environment_change(const char *name, const char *value);
int sp_starpu_environment_default(const char *name, const char *value);

/* Once StarPU started: puts back what other libraries read too. */
void sp_starpu_environment_started(void);

/* Once it ended, or failed to start: puts back the rest, which StarPU reads until then, and removes its directory. */
void sp_starpu_environment_restore(void);

/* Before the program ends by itself: removes the directory alone. */
void sp_starpu_environment_remove(void);

#endif
