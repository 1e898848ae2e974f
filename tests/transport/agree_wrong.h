/*
 * The rules of src/transport/nccl/nccl_agree.c, right or with a mistake planted: for tests that must see them.
 * A program that is to have mistakes is linked with agree_wrong.c, which has the right rules in it too.
 */
#ifndef SP_TESTS_AGREE_WRONG_H
#define SP_TESTS_AGREE_WRONG_H

enum agree_mistake {
    AGREE_RIGHT,
    AGREE_OWN_ORDER, /* every end begins what is ready, in the order in which that became so */
    AGREE_UNASKED,   /* the leader does not wait until the others are ready */
    AGREE_LATEST,    /* the leader begins what was agreed on last, first */
    AGREE_FORGETS,   /* the leader forgets who was ready before it */
    AGREE_MISTAKES
};

extern enum agree_mistake agree_mistake;

#endif
