/* Orders that are searched (zb1p:auto) are searched again within --memory-limit if they exceed it. */
#include "train/trainer.h"
#include "plan/memory.h"
#include "policies/plan_create.h"

static bool fits(const struct sp_trainer *t)
{
    struct sp_shape sh;

    sp_train_shape(t, &sh);
    for (int s = 0; s < t->plan.layout.stages; s++) {
        struct sp_memory m = sp_memory_of_stage(&t->plan, &sh, t->args.recompute, t->args.every, s);

        if ((uint64_t)sp_memory_sum(&m) > t->args.layout.memory_limit)
            return false;
    }
    return true;
}

/* The plan whose stages hold at most so many micro-batches. */
static int search(struct sp_trainer *t, struct sp_layout *layout, int most)
{
    int err;

    sp_plan_destroy(&t->plan);
    layout->memory = most;
    err = sp_plan_create(t->args.layout.schedule, layout, &t->plan);
    if (err)
        t->plan.def = NULL;
    return err;
}

int sp_train_fit(struct sp_trainer *t, struct sp_layout *layout)
{
    int low = 1, high = t->plan.layout.micro_batches, err = 0;

    if (!t->args.layout.memory_limit || !sp_layout_flag(&t->plan.layout, "auto") || fits(t))
        return 0;
    /* 1 micro-batch may not fit either: the memory check says so then */
    while (low < high) {
        int middle = (low + high + 1) / 2;

        err = search(t, layout, middle);
        if (err)
            return err;
        if (fits(t))
            low = middle;
        else
            high = middle - 1;
    }
    return search(t, layout, low);
}
