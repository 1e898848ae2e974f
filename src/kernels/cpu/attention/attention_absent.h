/* A path that was not compiled: for other machines. */
#ifndef SP_KERNELS_ATTENTION_ABSENT_H
#define SP_KERNELS_ATTENTION_ABSENT_H

#define SP_ATTENTION_ABSENT(path, title, words)                                                    \
    static bool supported(void)                                                                    \
    {                                                                                              \
        return false;                                                                              \
    }                                                                                              \
    const struct sp_attention_path path = {                                                        \
        .name = title, .pair = words, .lanes = 1, .rows = 1, .supported = supported};

#endif
