/* The last step of a trainer as a record (trace/timeline/timeline.h). */
#ifndef SP_TRAIN_RECORD_H
#define SP_TRAIN_RECORD_H

#include "trace/timeline/timeline.h"
#include "train/trainer.h"

/* Makes the record from t->report, which must be that of step `step`; on rank 0. To be
 * destroyed. 0, or -errno after one line. */
int sp_train_record(const struct sp_trainer *t, int step, struct sp_timeline *record);

/* Makes a record of the same step as it was predicted (sp_train_predict). */
int sp_train_record_predicted(const struct sp_trainer *t, struct sp_timeline *record);

#endif
