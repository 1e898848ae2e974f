#include "train/checkpoint/carried.h"
#include "graphs/weights/checkpoint.h"
#include "train/checkpoint/resume.h"
#include <stdio.h>
#include <unistd.h>

static const enum sp_field carried[] = {SP_FIELD_W, SP_FIELD_M, SP_FIELD_V};
enum { CARRIED = 3 };

static void path_of(const struct sp_trainer *t, enum sp_field field, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 64, t->choice->carried, sp_field_files[field]);
}

int sp_train_write_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];
    int err = 0;

    for (int i = 0; i < CARRIED && !err; i++) {
        path_of(t, carried[i], path);
        err = sp_checkpoint_write(&t->graph, carried[i], path);
    }
    return err;
}

void sp_train_remove_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];

    for (int i = 0; i < CARRIED && t->world.rank == 0; i++) {
        path_of(t, carried[i], path);
        unlink(path);
    }
    if (t->world.rank == 0)
        rmdir(t->choice->carried);
    *t->choice->carried = '\0';
}

bool sp_train_carries(const struct sp_trainer *t)
{
    return t->choice && *t->choice->carried;
}

int sp_train_take_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];
    int err = 0;

    for (int i = 0; i < CARRIED && !err; i++) {
        struct sp_st_file st;

        path_of(t, carried[i], path);
        err = sp_st_open(path, &st);
        if (err)
            return err;
        err = sp_weights_check(&st, &t->params);
        if (!err && carried[i] == SP_FIELD_W)
            err = sp_checkpoint_init(&t->graph, &st);
        else if (!err)
            err = sp_checkpoint_read(&t->graph, carried[i], &st);
        sp_st_close(&st);
    }
    return err;
}
