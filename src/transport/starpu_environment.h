/*
 * Sets the environment that StarPU starts in. Variables set for another program, for example in a
 * job script, would change which workers there are, in which order they work or whether they
 * compute; so they are set aside while StarPU starts. StarPU ends the program if it cannot write
 * below the home directory, so then it gets a directory of its own.
 */
#ifndef SP_STARPU_ENVIRONMENT_H
#define SP_STARPU_ENVIRONMENT_H

#include <stdbool.h>

struct starpu_conf;

/*
 * Sets the environment and fills in `conf` as starpu_conf_init does. `host_limit`:
 * STARPU_LIMIT_CPU_MEM stays, because a disk takes what does not fit; without one StarPU would wait
 * for ever, so the variable is unset. 0, or -errno after one line if no directory can be written.
 * No other thread may use the environment meanwhile.
 */
int sp_starpu_environment_set(struct starpu_conf *conf, bool host_limit);

/* Sets a variable, or unsets it if `value` is NULL, until the environment is put back; `default`
 * leaves a variable that is set. 0, or -ENOMEM after one line. */
int sp_starpu_environment_change(const char *name, const char *value);
int sp_starpu_environment_default(const char *name, const char *value);

/* Call it once StarPU started: puts back the variables that other libraries read too. */
void sp_starpu_environment_started(void);

/* Call it once StarPU ended or failed to start: puts back the rest, which StarPU reads until
 * then, and removes its directory. */
void sp_starpu_environment_restore(void);

/* Call it before the program ends itself: removes only the directory. */
void sp_starpu_environment_remove(void);

#endif
