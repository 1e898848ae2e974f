/*
 * starpipe reproduce: the experiments of a paper once more, published beside simulated.
 */
#include "cli/commands.h"
#include "cli/result.h"
#include "cli/reproduce/paper.h"

static const struct {
    const struct sp_paper *paper;
    const char *summary;
} papers[] = {
    {&sp_paper_helixpipe, "HelixPipe (Zhang et al. 2025): attention of all stages in parallel"},
    {&sp_paper_weipipe, "WeiPipe (Lin et al. 2025): weights travel, activations stay"},
    {&sp_paper_sppo, "SPPO (2025): slices of one sequence, offloaded adaptively"},
    {&sp_paper_survey, "a survey of pipeline schedules: bubbles, memory, communication"},
};
#define FORMATS "text|json|markdown|html"
enum { PAPERS = sizeof papers / sizeof *papers };

static int (*const forms[])(const struct sp_paper *) = {sp_paper_text, sp_paper_json,
                                                        sp_paper_markdown, sp_paper_html};

/* The paper's own command. */
static int run_paper(int i, int argc, char **argv)
{
    struct sp_paper paper = *papers[i].paper;
    struct sp_result result = {0};
    int ret;
    bool vary = false;
    const struct sp_option varied = SP_OPTION(
        FLAG, "assumptions", vary, "also what becomes of the tables under other assumptions",
        .topic = SP_TOPIC_OUTPUT);
    struct sp_option options[] = {SP_RESULT_OPTIONS(result, FORMATS), {0}, {0}};

    if (paper.assumptions)
        options[sizeof options / sizeof *options - 2] = varied;

    ret = sp_options_parse(options, papers[i].summary, argc, argv);
    if (ret)
        return SP_OPTIONS_EXIT(ret);
    ret = sp_paper_run(&paper, vary);
    ret = ret ? ret : sp_result_begin(argv[0], result.output, 0);
    ret = ret ? ret : forms[result.format](&paper);
    sp_paper_destroy(&paper);
    return ret ? 1 : 0;
}

int sp_cmd_reproduce(int argc, char **argv)
{
    struct sp_subcommand sub[PAPERS];
    const struct sp_subcommands c = {
        .command = "reproduce",
        .what = "paper",
        .operand = "PAPER",
        .options = "[--format " FORMATS "]",
        .summary = "Re-runs the experiments of a paper in simulation, published beside simulated.",
        .joint = ", for ",
        .help = "the options of a paper",
        .sub = sub,
        .n = PAPERS,
        .run = run_paper,
    };

    for (int i = 0; i < PAPERS; i++)
        sub[i] = (struct sp_subcommand){papers[i].paper->name, papers[i].summary};
    return sp_subcommands_run(&c, argc, argv);
}
