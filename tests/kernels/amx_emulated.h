/* AMX in plain C, see src/kernels/cpu/attention/amx.h, which includes this. */
#ifndef SP_AMX_EMULATED_H
#define SP_AMX_EMULATED_H

#include <stdlib.h>
#include <string.h>

static __thread uint32_t sp_amx_tile[8][SP_AMX_ROWS][SP_AMX_WORDS];
static __thread struct sp_amx_config sp_amx_is;

static inline bool sp_amx_supported(void)
{
    return true;
}

/* Configuring sets the size of the tiles; here they must be whole. */
static inline int sp_amx_whole(int t)
{
    if (sp_amx_is.palette != 1 || sp_amx_is.rows[t] != SP_AMX_ROWS ||
        sp_amx_is.row_bytes[t] != SP_AMX_WORDS * sizeof(uint32_t))
        abort();
    return t;
}

/* Old contents are lost, as on the machine. It zeroes the tiles; here NaNs show reads of lost
 * contents. */
static inline void sp_amx_configure(const struct sp_amx_config *to)
{
    memset(sp_amx_tile, 0xff, sizeof sp_amx_tile);
    sp_amx_is = *to;
}

static inline void sp_amx_configured(struct sp_amx_config *is)
{
    *is = sp_amx_is;
}

static inline void sp_amx_dot_(int c, int a, int b)
{
    for (int m = 0; m < SP_AMX_ROWS; m++)
        for (int n = 0; n < SP_AMX_ROWS; n++) {
            float sum[2] = {0, 0}, old;
            uint16_t left[2], right[2];

            for (int k = 0; k < SP_AMX_WORDS; k++) {
                memcpy(left, &sp_amx_tile[a][m][k], sizeof left);
                memcpy(right, &sp_amx_tile[b][k][n], sizeof right);
                for (int half = 0; half < 2; half++)
                    sum[half] += sp_bf16_value(left[half]) * sp_bf16_value(right[half]);
            }
            memcpy(&old, &sp_amx_tile[c][m][n], sizeof old);
            old += sum[0] + sum[1];
            memcpy(&sp_amx_tile[c][m][n], &old, sizeof old);
        }
}

static inline void sp_amx_load_(int t, const void *from, size_t stride)
{
    for (int r = 0; r < SP_AMX_ROWS; r++)
        memcpy(sp_amx_tile[t][r], (const char *)from + (size_t)r * stride,
               sizeof sp_amx_tile[t][r]);
}

static inline void sp_amx_store_(int t, void *to, size_t stride)
{
    for (int r = 0; r < SP_AMX_ROWS; r++)
        memcpy((char *)to + (size_t)r * stride, sp_amx_tile[t][r], sizeof sp_amx_tile[t][r]);
}

#define sp_amx_zero(t) memset(sp_amx_tile[sp_amx_whole(t)], 0, sizeof sp_amx_tile[t])
#define sp_amx_load(t, from, stride) sp_amx_load_(sp_amx_whole(t), from, stride)
#define sp_amx_store(t, to, stride) sp_amx_store_(sp_amx_whole(t), to, stride)
#define sp_amx_dot(c, a, b) sp_amx_dot_(sp_amx_whole(c), sp_amx_whole(a), sp_amx_whole(b))

#endif
