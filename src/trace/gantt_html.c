/*
 * The Gantt picture as a page: page/page.html, which the build turns into the string `page` with its
 * scripts, and the data as JSON where it says @DATA@. The scripts draw.
 */
#include "src/trace/page.inc"
#include "trace/escape.h"
#include "trace/gantt.h"
#include <stdlib.h>
#include <string.h>

static void write_rows(const struct sp_gantt *g, FILE *out)
{
    int i = 0;

    fputs("\"rows\":[", out);
    for (int s = 0; s < g->stages; s++) {
        fputs(s ? ",\n[" : "\n[", out);
        for (int first = i; i < g->n && g->bars[i].stage == s; i++) {
            const struct sp_bar *b = &g->bars[i];

            fprintf(out, "%s[%.9g,%.9g,", i > first ? "," : "", b->start, b->end);
            sp_escape_json(b->name, out);
            fprintf(out, ",%d,%d,%d,%d,%d,%d,%d", b->kind, b->mb, b->chunk, b->live, b->after,
                    b->lane, b->joined);
            if (b->exchange > 0)
                fprintf(out, ",%.9g", b->exchange);
            putc(']', out);
        }
        putc(']', out);
    }
    fputs("]", out);
}

static void write_messages(const struct sp_gantt *g, FILE *out)
{
    int i = 0;

    fputs(",\n\"messages\":[", out);
    for (int s = 0; s < g->stages; s++) {
        fputs(s ? ",\n[" : "\n[", out);
        for (int first = i; i < g->n_messages && g->messages[i].to == s; i++) {
            const struct sp_gantt_message *m = &g->messages[i];

            fprintf(out, "%s[%.9g,%.9g,", i > first ? "," : "", m->sent, m->arrived);
            sp_escape_json(m->name, out);
            fprintf(out, ",%d]", m->from);
        }
        putc(']', out);
    }
    putc(']', out);
}

static void write_away(const struct sp_gantt *g, FILE *out)
{
    fputs(",\n\"away\":[", out);
    for (int s = 0; s < g->stages; s++) {
        int n;
        struct sp_gantt_step *step = sp_gantt_evicted_of(g, s, &n);

        fputs(s ? ",\n[" : "\n[", out);
        for (int i = 0; i < n; i++)
            fprintf(out, "%s[%.9g,%.6g]", i ? "," : "", step[i].at,
                    (double)step[i].bytes / (1 << 20));
        putc(']', out);
        free(step);
    }
    putc(']', out);
}

static void write_legend(const struct sp_gantt *g, FILE *out)
{
    static const char *const marks[SP_MARKS] = {
        [SP_MARK_BAR] = "bar",      [SP_MARK_IDLE] = "idle",         [SP_MARK_HATCHED] = "hatched",
        [SP_MARK_FRAME] = "frame",  [SP_MARK_EXCHANGE] = "exchange", [SP_MARK_MESSAGE] = "message",
        [SP_MARK_EVICTED] = "away", [SP_MARK_NUMBER] = "number"};
    struct sp_gantt_key key[SP_GANTT_KEYS];
    int n = sp_gantt_legend(g, key);

    fputs("\"legend\":[", out);
    for (int i = 0; i < n; i++) {
        fprintf(out, "%s[\"%s\",%d,", i ? "," : "", marks[key[i].mark], key[i].kind);
        sp_escape_json(key[i].sample ? key[i].sample : "", out);
        putc(',', out);
        sp_escape_json(key[i].text, out);
        putc(']', out);
    }
    fputs("],\n", out);
}

static void write_kinds(FILE *out)
{
    fputs("\"kinds\":[", out);
    for (int k = 0; k < SP_BAR_KINDS; k++) {
        fputs(k ? ",\n[" : "\n[", out);
        sp_escape_json(sp_gantt_kind_name((enum sp_bar_kind)k), out);
        for (int mb = 0; mb < SP_GANTT_SHADES; mb++) {
            struct sp_color fill = sp_gantt_color((enum sp_bar_kind)k, mb);
            struct sp_color ink = sp_gantt_ink(fill);

            fprintf(out, ",[%d,%d,%d,\"#%02x%02x%02x\"]", fill.r, fill.g, fill.b, ink.r, ink.g,
                    ink.b);
        }
        putc(']', out);
    }
    fputs("],\n", out);
}

static void write_picture(const struct sp_gantt *g, FILE *out)
{
    fputs("{\"title\":", out);
    sp_escape_json(g->title, out);
    fputs(",\"subtitle\":", out);
    sp_escape_json(g->subtitle, out);
    fputs(",\"unit\":", out);
    sp_escape_json(g->unit, out);
    fprintf(out, ",\"end\":%.9g,\"stages\":%d,\"share\":%.9g,\n\"notes\":", g->end, g->stages,
            g->share);
    sp_escape_json(g->notes, out);
    fputs(",\"note\":[", out);
    for (int s = 0; s < g->stages; s++) {
        fputs(s ? "," : "", out);
        sp_escape_json(g->note[s], out);
    }
    fputs("],\"idle\":[", out);
    for (int s = 0; s < g->stages; s++)
        fprintf(out, "%s%.4g", s ? "," : "", g->idle_percent[s]);
    fputs("],\n", out);
    write_legend(g, out);
    write_rows(g, out);
    if (g->n_messages > 0)
        write_messages(g, out);
    if (g->n_away > 0)
        write_away(g, out);
    putc('}', out);
}

void sp_gantt_json(const struct sp_gantt *pictures, int n, const struct sp_gantt_fact *facts,
                   int n_facts, FILE *out)
{
    fputs("{\"facts\":[", out);
    for (int i = 0; i < n_facts; i++) {
        fputs(i ? ",\n[" : "\n[", out);
        sp_escape_json(facts[i].name, out);
        putc(',', out);
        sp_escape_json(facts[i].value, out);
        putc(']', out);
    }
    fputs("],\n", out);
    write_kinds(out);
    fputs("\"pictures\":[", out);
    for (int i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", out);
        write_picture(&pictures[i], out);
    }
    fputs("]}", out);
}

void sp_gantt_html(const struct sp_gantt *pictures, int n, const struct sp_gantt_fact *facts,
                   int n_facts, FILE *out)
{
    static const char mark[] = "@DATA@";
    const char *at = strstr(page, mark);

    fwrite(page, 1, (size_t)(at - page), out);
    sp_gantt_json(pictures, n, facts, n_facts, out);
    fputs(at + strlen(mark), out);
}
