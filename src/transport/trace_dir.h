/* The directory for StarPU's trace of a run (STARPU_FXT_TRACE=1) and for the log of its messages. */
#ifndef SP_TRACE_DIR_H
#define SP_TRACE_DIR_H

/*
 * By all processes, before StarPU starts. Where the run is traced and STARPU_FXT_PREFIX does not say where to,
 * StarPU would write into /tmp under names that anybody can foresee: then a new directory, which only this user
 * reads, becomes STARPU_FXT_PREFIX, and rank 0 says which. 0; or -errno on all after one line on stderr.
 */
int sp_trace_dir(int rank);

#endif
