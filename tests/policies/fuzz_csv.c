/*
 * Fuzz target: the CSV of an order. An accepted order is written and read again to the same text;
 * the verifier and the list simulation must terminate on it, whatever the order is.
 */
#include "../model/fuzz.h"
#include "policies/load/csv.h"
#include "policies/simulation/verify.h"
#include "policies/families/families.h"

static int parse(const void *data, size_t size, struct sp_plan *plan)
{
    FILE *in = fmemopen((void *)(uintptr_t)data, size, "r");
    int err;

    if (!in)
        abort();
    *plan = (struct sp_plan){.def = &sp_schedule_csv, .family = sp_family_find("layerwise")};
    err = sp_csv_parse(in, "fuzz", plan);
    fclose(in);
    if (!err && sp_plan_index(plan))
        abort();
    return err;
}

static char *written(const struct sp_plan *plan)
{
    char *text = NULL, why[160];
    size_t n;
    FILE *out = open_memstream(&text, &n);

    if (!out || sp_csv_write(plan, out, why, sizeof why) || fclose(out))
        abort();
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_plan plan, back;
    char *text, *again, why[512];

    fuzz_silence();
    if (!size || parse(data, size, &plan))
        return 0;
    fuzz_accepted++;
    text = written(&plan);
    if (parse(text, strlen(text), &back))
        abort();
    again = written(&back);
    if (strcmp(text, again))
        abort();
    sp_verify(&plan, why, sizeof why);
    free(text);
    free(again);
    sp_plan_destroy(&plan);
    sp_plan_destroy(&back);
    return 0;
}

#ifndef SP_LIBFUZZER

static const char plain[] = "0F0,0F1,,0B0,,0B1\r\n1F0,1B0,1F1,1B1\r\n";
static const char split[] =
    "0F0,0F1,3F0,3I0,3W0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
static const char paired[] = "0F0,\"0F1\",(0F2;0B0)OVERLAP_F_B,0I1,0B2,0W1\n";

int main(int argc, char **argv)
{
    const struct fuzz_seed seeds[] = {
        {plain, sizeof plain - 1}, {split, sizeof split - 1}, {paired, sizeof paired - 1}};

    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 20000);
}

#endif
