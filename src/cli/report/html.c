/* A page: the picture of the step, and above it the causes of its length. */
#include "cli/report/report.h"
#include "sp_error.h"
#include "sp_text.h"
#include "trace/timeline/pictures.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct facts {
    struct sp_gantt_fact *fact;
    int n;
};

/* The value of a fact while it is printed: `out` collects the text until add_fact() takes it. */
struct value {
    char *text;
    size_t n;
    FILE *out;
};

static int begin_fact(struct value *v)
{
    *v = (struct value){0};
    v->out = open_memstream(&v->text, &v->n);
    return v->out ? 0 : -ENOMEM;
}

static void add_fact(struct facts *f, const char *name, struct value *v)
{
    struct sp_gantt_fact *fact = &f->fact[f->n++];

    fclose(v->out);
    snprintf(fact->name, sizeof fact->name, "%s", name);
    snprintf(fact->value, sizeof fact->value, "%.*s", (int)strcspn(v->text, "\n"), v->text);
    free(v->text);
}

static void print_parts(const struct sp_report *r, int stage, FILE *out)
{
    for (int i = 0, n = 0; i < SP_STEP_PARTS; i++) {
        double part = r->waits.stage[stage][i] / r->t->length;

        if (part >= 1e-3)
            fprintf(out, "%s%s %.1f %%", n++ ? ", " : "",
                    sp_part_of_step_name((enum sp_part_of_step)i), 100 * part);
    }
}

/* 0 or -ENOMEM. */
static int list_facts(const struct sp_report *r, struct facts *f)
{
    const struct sp_timeline *t = r->t;
    struct value v;
    char name[32];

    if (begin_fact(&v))
        return -ENOMEM;
    sp_report_headline(t, v.out);
    add_fact(f, "step", &v);
    for (int i = 0; i < SP_FINDINGS && sp_report_counts(r, &r->finding[i]); i++) {
        if (begin_fact(&v))
            return -ENOMEM;
        fprintf(v.out, "%.4g (-%.1f %%): %s", t->length - r->finding[i].gain,
                100 * r->finding[i].gain / t->length, r->finding[i].text);
        snprintf(name, sizeof name, "without %s", sp_finding_name(r->finding[i].kind));
        add_fact(f, name, &v);
    }
    if (begin_fact(&v))
        return -ENOMEM;
    sp_path_print(&r->waits, &r->path, v.out);
    add_fact(f, "critical path", &v);
    for (int i = 0; i < r->n_longest; i++) {
        if (begin_fact(&v))
            return -ENOMEM;
        sp_report_wait(r, &r->longest[i], v.out);
        snprintf(name, sizeof name, "longest wait %d", i + 1);
        add_fact(f, name, &v);
    }
    for (int s = 0; s < t->stages; s++) {
        if (begin_fact(&v))
            return -ENOMEM;
        print_parts(r, s, v.out);
        snprintf(name, sizeof name, "stage %d", s);
        add_fact(f, name, &v);
    }
    return 0;
}

int sp_report_html(const struct sp_report *r, FILE *out)
{
    size_t most = 2 + SP_FINDINGS + SP_LONG_WAITS + (size_t)r->t->stages;
    struct facts facts = {.fact = calloc(most, sizeof *facts.fact)};
    struct sp_gantt g = {0};
    int err = facts.fact ? list_facts(r, &facts) : -ENOMEM;

    err = err ? err : sp_gantt_of_timeline(r->t, &g);
    if (!err) {
        snprintf(g.title, sizeof g.title, "%.96s %s: %s, %s", r->t->schedule,
                 sp_timeline_source_name(r->t->source), SP_COUNT(r->t->stages, "stage"),
                 SP_COUNT(r->t->micro_batches, "micro-batch"));
        sp_gantt_html(&g, 1, facts.fact, facts.n, out);
        sp_gantt_destroy(&g);
    }
    free(facts.fact);
    return err ? sp_error(-err, "report: no memory for the page of %d ops", r->t->n_ops) : 0;
}
