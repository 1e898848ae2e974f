/*
 * The layout that auto chooses: all devices are taken, what was given stays, sequences of a step stay as many, what is
 * chosen is what the search has as its best, and a choice goes to other processes as it is.
 */
#include "../policies/common.h"
#include "model/model.h"
#include "train/layout_auto.h"
#include <math.h>

static struct sp_machine machine;
static struct sp_model model;

static int load(void **state)
{
    (void)state;
    return sp_machine_load("laptop", &machine) || sp_model_load("gpt-tiny", &model);
}

struct asked {
    struct sp_layout_args layout;
    struct sp_group_args groups;
    struct sp_auto_devices devices;
};

static struct asked ask(int processes)
{
    struct asked a = {.layout = SP_LAYOUT_ARGS_DEFAULT,
                      .groups = SP_GROUP_ARGS_DEFAULT,
                      .devices = {processes, processes, 1, 0, 0}};

    a.layout.schedule = SP_AUTO_SCHEDULE;
    a.layout.micro_batches = 4;
    a.layout.seq = 64;
    return a;
}

static struct sp_auto_contenders contenders; /* of the last choice */

static int choose(const struct asked *a, double within_s, struct sp_auto_choice *choice)
{
    const struct sp_auto_request r = {.command = "test",
                                      .layout = &a->layout,
                                      .groups = &a->groups,
                                      .model = &model,
                                      .dtype = SP_F32,
                                      .machine = &machine,
                                      .devices = a->devices,
                                      .within_s = within_s};

    return sp_layout_auto(&r, choice, &contenders);
}

/* The choice, taken over; whose devices and sequences are as many as there are. */
static struct asked chosen(const struct asked *a, struct sp_auto_texts *texts)
{
    int64_t sequences =
        (int64_t)a->groups.data_parallel * a->layout.micro_batches * a->layout.micro_batch_size;
    struct sp_auto_choice choice;
    struct asked b = *a;
    char name[SP_AUTO_TEXT];

    assert_int_equal(choose(a, 0, &choice), 0);
    sp_auto_choice_name(&choice, name);
    printf("  %s: %.3g ms of %d layouts\n", name, choice.found.step_ms, choice.layouts);
    assert_true(choice.found.step_ms > 0 && choice.layouts > 0);
    assert_true(!choice.next.step_ms || choice.next.step_ms >= choice.found.step_ms * 0.99);
    sp_layout_auto_take(&choice, &b.layout, &b.groups, texts);
    assert_true(b.layout.stages_set && b.layout.micro_batches_set);
    assert_int_equal(b.layout.stages * sp_groups_pipelines(&b.groups), a->devices.processes);
    assert_true((int64_t)b.groups.data_parallel * b.layout.micro_batches *
                    b.layout.micro_batch_size ==
                sequences);
    assert_false(sp_layout_is_auto(&b.layout));
    return b;
}

TEST(all_devices_are_taken)
{
    for (int n = 1; n <= 4; n *= 2) {
        struct asked a = ask(n);
        struct sp_auto_texts texts;

        chosen(&a, &texts);
    }
}

/* Each is nearly as fast, and differs from the choice and from the others in its grid, its schedule or its optimizer. */
TEST(contenders_differ)
{
    struct asked a = ask(4);
    struct sp_auto_choice choice;
    int grids = 0;

    a.layout.micro_batches = 16;
    assert_int_equal(choose(&a, 0, &choice), 0);
    assert_int_equal(contenders.n, SP_AUTO_CONTENDERS);
    for (int i = 0; i < contenders.n; i++) {
        const struct sp_found *f = &contenders.layout[i].found;

        assert_true(f->step_ms <= SP_AUTO_NEAR * choice.found.step_ms);
        assert_false(sp_auto_same(&contenders.layout[i], &choice));
        grids += !sp_found_same_grid(f, &choice.found);
        for (int j = 0; j < i; j++) {
            const struct sp_found *other = &contenders.layout[j].found;

            assert_true(!sp_found_same_grid(f, other) || strcmp(f->schedule, other->schedule) ||
                        f->zero != other->zero);
        }
    }
    assert_true(grids > 0);
}

TEST(what_was_given_stays)
{
    struct sp_auto_texts texts;
    struct asked a = ask(4), b;

    a.layout.stages = 2;
    a.layout.stages_set = true;
    b = chosen(&a, &texts);
    assert_int_equal(b.layout.stages, 2);
    a.layout.kept.micro_batch_size = a.layout.kept.tensor_parallel = true;
    b = chosen(&a, &texts);
    assert_int_equal(b.layout.micro_batch_size, 1);
    assert_int_equal(b.groups.tensor_parallel, 1);
    a = ask(4);
    a.groups.data_parallel = 2;
    a.layout.micro_batch_size = 2;
    a.layout.recompute = "full";
    b = chosen(&a, &texts);
    assert_int_equal(b.groups.data_parallel, 2);
    assert_int_equal(b.layout.micro_batch_size, 2);
    assert_string_equal(b.layout.recompute, "full");
    a = ask(4);
    a.groups.context_parallel = 2;
    a.groups.tensor_parallel = 2;
    b = chosen(&a, &texts);
    assert_int_equal(b.groups.context_parallel, 2);
    assert_int_equal(b.groups.tensor_parallel, 2);
    a = ask(4);
    a.layout.kept.data_parallel = a.layout.kept.context_parallel = true;
    b = chosen(&a, &texts);
    assert_int_equal(b.groups.data_parallel, 1);
    assert_int_equal(b.groups.context_parallel, 1);
}

/* Workers of one process take stages, and hand tensors over where they are. */
TEST(workers_take_stages)
{
    struct sp_auto_choice choice;
    struct asked a = ask(1);

    a.devices.workers = 3;
    assert_int_equal(choose(&a, 0, &choice), 0);
    assert_true(choice.found.stages > 1 && choice.found.stages <= 3);
    assert_true(choice.found.devices * choice.found.context * choice.found.data == 1);
}

/* Schedules that one stage makes the same differ in nothing but their name. */
TEST(the_usual_schedule_goes_before_equals)
{
    struct sp_auto_choice choice;
    struct asked a = ask(1);

    assert_int_equal(choose(&a, 0, &choice), 0);
    assert_string_equal(choice.found.schedule, "1f1b");
}

TEST(what_does_not_fit_is_refused)
{
    struct sp_auto_choice choice;
    struct asked a = ask(2);

    a.layout.memory_limit = 1 << 20;
    assert_int_equal(choose(&a, 0, &choice), -EINVAL);
    a = ask(2);
    a.layout.stages = 3; /* of 2 processes, which neither share a stage nor have two workers */
    a.layout.stages_set = true;
    a.groups.tensor_parallel = 2;
    assert_int_equal(choose(&a, 0, &choice), -EINVAL);
    a = ask(2);
    a.layout.partition_slices = "flops";
    assert_int_equal(choose(&a, 0, &choice), -EINVAL);
}

TEST(time_ends_the_search)
{
    struct sp_auto_choice all, some;
    struct asked a = ask(4);

    assert_int_equal(choose(&a, 0, &all), 0);
    assert_false(all.cut_short);
    assert_int_equal(choose(&a, 1e-9, &some), 0);
    assert_true(some.cut_short && some.layouts < all.layouts);
}

TEST(choices_travel)
{
    struct sp_auto_choice choice, read;
    struct asked a = ask(4);
    char text[SP_AUTO_TEXT];

    assert_int_equal(choose(&a, 0, &choice), 0);
    sp_auto_choice_pack(&choice, text);
    assert_int_equal(sp_auto_choice_unpack(text, &read), 0);
    assert_true(sp_auto_same(&choice, &read));
    read.found.slices++;
    assert_false(sp_auto_same(&choice, &read));
    assert_int_equal(sp_auto_choice_unpack("1f1b 2", &read), -EINVAL);
}

TEST_FIXTURE(load, NULL)
