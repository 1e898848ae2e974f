#include "cli/train/args.h"
#include "cli/options.h"
#include "train/config.h"

int sp_train_parse(int argc, char **argv, struct sp_train_config *cfg)
{
    struct sp_option options[SP_TRAIN_OPTIONS];
    int err = sp_train_config_init(cfg);

    if (err)
        return err;
    sp_train_options(cfg, options);
    return sp_options_parse(options, "Trains a model, pipelined over stages.", argc, argv);
}
