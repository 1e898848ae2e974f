/* Begins and ends a trainer: checks, then starts; stops, then releases. */
#include "train/start/prepare.h"
#include "train/start/start.h"

int sp_trainer_open(const struct sp_train_config *cfg, struct sp_trainer **t)
{
    int err = sp_train_prepare(cfg, t);

    if (err || cfg->dry_run)
        return err;
    err = sp_train_start(*t);
    if (err)
        sp_trainer_close(*t);
    return err;
}

int sp_trainer_close(struct sp_trainer *t)
{
    int err = t ? sp_train_stop(t) : 0;

    if (t)
        sp_train_release(t);
    return err;
}
