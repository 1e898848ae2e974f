/* Steps of which each can fail. */
#ifndef SP_MODEL_TRY_H
#define SP_MODEL_TRY_H

/* Does one, and returns its code from the function where that is not 0. */
#define SP_TRY(call)                                                                               \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

#endif
