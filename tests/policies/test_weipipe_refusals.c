/*
 * WeiPipe refuses layouts and options that mean nothing to it. FSDP also refuses micro-batches that
 * workers cannot share evenly.
 */
#include "policies/weipipe.h"

/* If weights are gathered, each worker needs equally many micro-batches: the refusal names the
 * nearest multiple of the workers, which works. If weights travel around a ring, any number
 * works. */
TEST(micro_batches)
{
    static const char use[] = "use --micro-batches ";
    int refusals = 0;

    for (int i = 0; i < 8 * 25; i++) {
        int p = i % 8 + 1, m = i / 8 + 1, far = p, n;
        const char *name = "fsdp", *at;
        struct sp_plan plan;

        make_plan(weipipe_name(i % 2), p, m, &plan);
        sp_plan_destroy(&plan);
        if (m % p == 0)
            continue;
        at = strstr(assert_no_plan(name, layout(p, m), use), use) + sizeof use - 1;
        for (char *end; (n = (int)strtol(at, &end, 10)) > 0; at = end + 4) {
            make_plan(name, p, n, &plan);
            sp_plan_destroy(&plan);
            far = abs(n - m) < far ? abs(n - m) : far;
            if (strncmp(end, " or ", 4) != 0)
                break;
        }
        if (far > (m < p || m % p > p - m % p ? p - m % p : m % p))
            fail_msg("%s p=%d m=%d: nearer than '%s' would do", name, p, m, at);
        refusals++;
    }
    print_message("%d refused\n", refusals);
}

TEST(refusals)
{
    for (int naive = 0; naive < 2; naive++) {
        const char *name = weipipe_name(naive);

        assert_no_plan(name, layout_of(4, 8, 2, 1), "use --chunks 1");
        assert_no_plan(name, layout_of(4, 8, 1, 2), "use --slices 1");
        assert_no_plan(naive ? "weipipe-naive:x=1" : "weipipe:flow=x", layout(4, 8),
                       naive ? "no option 'x'" : "flow=ring or flow=line");
        assert_no_plan(naive ? "weipipe-naive:gradients=bf16" : "weipipe:gradients=bf16",
                       layout(4, 8), "use gradients=run or gradients=f32");
        assert_no_plan(naive ? "weipipe-naive:auto" : "weipipe:auto", layout(4, 8), "auto");
    }
}
