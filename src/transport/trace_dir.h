/* Chooses the directory for StarPU's trace of a run (STARPU_FXT_TRACE=1) and for the log of its
 * messages. */
#ifndef SP_TRACE_DIR_H
#define SP_TRACE_DIR_H

/*
 * All processes call this before StarPU starts. If the run is traced and STARPU_FXT_PREFIX is not
 * set, StarPU would write into /tmp under names that anybody can foresee. So STARPU_FXT_PREFIX
 * becomes a new directory that only this user reads, and rank 0 prints its name. 0; or -errno on
 * all processes after one line on stderr.
 */
int sp_trace_dir(int rank);

#endif
