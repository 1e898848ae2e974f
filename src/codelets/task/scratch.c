#include "codelets/insert.h"

struct sp_tensor *sp_scratch_handle(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                    size_t n)
{
    return sp_sink_scratch(ctx->sink, n, sp_shape_elem(sh));
}

struct sp_tensor *sp_scratch_rows(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                  int width)
{
    return sp_scratch_handle(ctx, sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)width);
}
