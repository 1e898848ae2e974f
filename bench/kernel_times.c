/*
 * Records all that a GPU does for an unmodified program. CUDA loads this library into a process
 * whose CUDA_INJECTION64_PATH names it, and CUPTI reports every kernel, copy and fill. At the end
 * it writes $KERNEL_TIMES.PID, a line for each, in no order: begin and end in nanoseconds, the
 * stream, the name. See gpu/kernels.py.
 */
#include <cupti.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFER_BYTES = 4 << 20 };

static FILE *out;

static void written(uint64_t begin, uint64_t end, uint32_t stream, const char *name)
{
    fprintf(out, "%llu %llu %u %s\n", (unsigned long long)begin, (unsigned long long)end, stream,
            name);
}

static const char *copied(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "[copy host to device]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "[copy device to host]";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
        return "[copy on the device]";
    default:
        return "[copy]";
    }
}

static void take(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel9 *k = (const CUpti_ActivityKernel9 *)record;

        written(k->start, k->end, k->streamId, k->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy5 *c = (const CUpti_ActivityMemcpy5 *)record;

        written(c->start, c->end, c->streamId, copied(c->copyKind));
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const CUpti_ActivityMemset4 *)record;

        written(m->start, m->end, m->streamId, "[fill]");
    }
}

static void CUPTIAPI wanted(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = BUFFER_BYTES;
    *buffer = aligned_alloc(64, BUFFER_BYTES);
    *most = 0;
}

static void CUPTIAPI filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                            size_t valid)
{
    CUpti_Activity *record = NULL;

    (void)context, (void)stream, (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        take(record);
    free(buffer);
}

static void finish(void)
{
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fflush(out); /* and not closed: CUPTI may still deliver */
}

/* CUDA calls this once. The program runs on even if something fails here. */
__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET};
    const char *name = getenv("KERNEL_TIMES");
    char path[4096];

    snprintf(path, sizeof path, "%s.%d", name ? name : "", (int)getpid());
    if (!name || !(out = fopen(path, "w"))) {
        fprintf(stderr, "kernel_times: KERNEL_TIMES names no file that can be written\n");
        return 1;
    }
    cuptiActivityRegisterCallbacks(wanted, filled);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUptiResult err = cuptiActivityEnable(kinds[i]);

        if (err != CUPTI_SUCCESS)
            fprintf(stderr, "kernel_times: CUPTI refuses to record: error %d\n", (int)err);
    }
    atexit(finish);
    return 1;
}
