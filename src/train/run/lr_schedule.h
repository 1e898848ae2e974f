/* The learning rate of every step. */
#ifndef SP_LR_SCHEDULE_H
#define SP_LR_SCHEDULE_H

enum sp_lr_shape { SP_LR_CONSTANT, SP_LR_COSINE, SP_LR_LINEAR, SP_LR_WSD };

/* The shapes of --lr-schedule, in the order of the enum. */
#define SP_LR_SHAPES "constant|cosine|linear|wsd"

struct sp_lr_schedule {
    enum sp_lr_shape shape;
    double lr, min; /* highest and last learning rate */
    int warmup;     /* steps of linear rise: step k has lr (k+1) / warmup */
    int decay;      /* steps of the fall from lr to min; 0: the default of sp_lr_decay */
    int steps;      /* of the run */
};

/*
 * Steps of the fall. Cosine and linear fall from the end of the warm-up, by default until the last
 * step; wsd (warm-up, stable, decay) over the last steps, by default a tenth of them all.
 */
int sp_lr_decay(const struct sp_lr_schedule *s);

/*
 * Step k, counted from 0. With x = (k - first step of the fall) / decay, at most 1:
 *
 *   cosine       min + (lr - min) (1 + cos(pi x)) / 2
 *   linear, wsd  min + (lr - min) (1 - x)
 */
double sp_lr_at(const struct sp_lr_schedule *s, int step);

/* Refuses schedules that make no sense: 0, or -EINVAL after one line. */
int sp_lr_check(const struct sp_lr_schedule *s);

#endif
