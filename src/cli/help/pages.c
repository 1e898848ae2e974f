/* The descriptions and examples of the manual pages. */
#include "cli/help/help.h"
#include <string.h>

static const struct sp_help_page pages[] = {
    {"train",
     {"The model is a preset, with random weights, or a directory as transformers writes it: "
      "config.json with model.safetensors or its shards. The layers are dealt out to the stages, "
      "and the schedule says in which order each stage runs the forwards and backwards of its "
      "micro-batches. Under an MPI launcher, stage s of p runs on process floor(s R / p) of R.",
      "Data, sizes, memory, the schedule and the outputs are checked before the first task. At the "
      "end the run says where the time of a typical step went; with --report it prints tables, "
      "from the schedule's own bubble to the one measured.",
      "SIGTERM and SIGINT end the run after the step and save if there is --save; SIGUSR1 saves "
      "and goes on. --resume goes on from the newest checkpoint, with any number of stages and "
      "processes."},
     {{"starpipe train --model llama-tiny --data book.txt --stages 4 --steps 500 --lr 2e-3 "
       "--sample 200",
       "Trains a small model on the bytes of a text, and prints what it writes:"},
      {"starpipe train --model gpt3-1.3b --stages 8 --seq 8192 --dry-run",
       "Prints the plan and the memory of each stage, and runs nothing:"},
      {"mpirun -np 2 --bind-to none starpipe train --model gpt-tiny --data book.txt --stages 4 "
       "--schedule zbv",
       "Two processes with two stages each:"}}},
    {"show",
     {"Draws the order of every stage as it would run if every op took the time that --cost says, "
      "with its makespan, its bubble and the most activations that a stage holds. Where the "
      "schedule has a closed form, that is printed beside the simulated makespan.",
      "--format csv is what torch.distributed.pipelining reads, perfetto a record for 'report', "
      "'compare' and ui.perfetto.dev, picture what html draws, as JSON."},
     {{"starpipe show --schedule zbv --stages 4 --micro-batches 8", "One schedule:"},
      {"starpipe show --schedule zb1p:auto,limit=6 --cost f=1,b=1.2,w=0.9,comm=0.2",
       "An order that is searched for these costs:"},
      {"starpipe show --schedule 1f1b --format svg --output 1f1b.svg", "A picture:"}}},
    {"plan",
     {"Predicts a step of every schedule on a described machine, with what else may be chosen: "
      "devices of a stage, sequences of a micro-batch, chunks, slices, what is computed again, "
      "what leaves memory. Prints those that fit, the fastest first, and the command that trains "
      "with the first one that train runs. The rows are of different ideas: the best of each grid "
      "of devices and of each schedule before their variants.",
      "The page of --format html has a point for each layout, its step time against its memory, "
      "and the timelines of those that are printed and of the fastest ones in every memory."},
     {{"starpipe plan --model gpt3-7b --seq 16384 --hardware a800-ib --nodes 2 --devices 1",
       "A stage on each of 16 A800:"},
      {"starpipe plan --model gpt3-1.3b --seq 8192 --format html --output plan.html",
       "A page with pictures:"}}},
    {"sample",
     {"Prints the prompt and what the model makes of it, token by token, until the model's eos or "
      "as many tokens as were asked for. Text is tokens of the directory's tokenizer.json; a model "
      "without one reads and writes bytes.",
      "Only the weights are read, with none of what training keeps beside them."},
     {{"starpipe sample run --prompt \"Once upon a time\" --tokens 200", "From what a run saved:"},
      {"starpipe sample gpt2 --prompt \"The\" --temperature 0 --format json",
       "The likeliest tokens, with their numbers:"},
      {"mpirun -np 2 starpipe sample gpt2 --prompt \"The\" --stages 2",
       "A model that one process has no memory for:"}}},
    {"tokenize",
     {"Text becomes the tokens of a model in Hugging Face form, the same as those of its own "
      "tokenizer: byte-level BPE (GPT-2, Llama 3, Qwen), BPE with byte fallback (Llama 2, Mistral) "
      "and Unigram. A tokenizer.json that asks for something else is refused with its name.",
      "The last line that is printed begins the training on these tokens."},
     {{"starpipe tokenize book.txt --model gpt2 --output book.bin", "A book:"},
      {"starpipe tokenize web.txt --model gpt2 --documents blank-line --output web.npy",
       "Documents between blank lines, in a file of NumPy:"}}},
    {"list",
     {"A line for each schedule: its name, what it is and, in brackets, the options that may "
      "follow the name after a colon."},
     {{"starpipe list --plugin ./mine.so", "With the schedules of a plugin:"}}},
    {"watch",
     {"Reads what train --log writes. On a terminal it draws the loss, and bubble and memory of "
      "each stage in the last step, in place; elsewhere it prints a line a step. It ends when the "
      "run ended, however that was.",
      "Of a log that comes through a pipe, it shows what comes until the pipe's end."},
     {{"starpipe watch run.jsonl", "A run that goes on in another terminal:"},
      {"starpipe train --model llama-tiny --data book.txt --log - | starpipe watch -",
       "A run that leaves no log:"},
      {"starpipe watch run.jsonl --format html --output run.html",
       "A page with the curves of all steps:"}}},
    {"report",
     {"Reads the record of one step and divides the step of every stage: computing, waiting for "
      "ops of other stages, for messages, for interfaces that other messages have, for tensors "
      "that leave memory, for the submission, for cores, for the runtime and for the end of the "
      "step. The parts of a stage add up to the step.",
      "Then it plays the step again without each cause, and says what the step would take and "
      "where the cause is most; the critical path; and the three longest waits."},
     {{"starpipe report pictures", "The typical step of a run with --trace pictures:"},
      {"starpipe show --schedule zbv --format perfetto --output zbv.json && starpipe report "
       "zbv.json",
       "A list simulation:"}}},
    {"compare",
     {"Compares two records of a step: two runs, two schedules, or a prediction and a measurement. "
      "The tables have the largest differences first. Both must have as many stages and "
      "micro-batches, one model, and times in one unit."},
     {{"starpipe compare pictures pictures/predicted.json", "A run with what was predicted of it:"},
      {"starpipe compare a b --format svg --output both.svg", "Both on one axis:"}}},
    {"diff",
     {"Compares tensors of the same name, in the order of the files, which is that of the model: "
      "names the first one and the last one beyond the tolerance, prints the worst ones, and in "
      "the last line how many there are. Tensors in half precision are compared as floats.",
      "Of a directory that a run saved into, the newest step is compared: the weights and the "
      "moments of the optimizer. Of two logs, the loss and the gradient norm of every step are "
      "compared."},
     {{"starpipe diff one.safetensors four.safetensors --tolerance 1e-5",
       "The gradients that two runs wrote with --dump-grads:"},
      {"starpipe diff run.jsonl other.jsonl", "The first step at which two logs differ:"},
      {"starpipe diff --part resumed.jsonl whole.jsonl",
       "A log that has only some of the steps of the other:"}}},
    {"reproduce",
     {"Runs the experiments of a paper in simulation, on a description of its machine, and prints "
      "what it published beside what the simulation gives. What cannot be simulated says why.",
      "One set of constants serves all experiments on a machine; docs/fidelity.md says what "
      "differs, by how much and why."},
     {{"starpipe reproduce helixpipe", "HelixPipe's speedups, bubbles and memory, and how near:"},
      {"starpipe reproduce survey --format markdown", "The tables of the survey as a document:"}}},
    {"trace",
     {"A traced run leaves files that only the program that traces understands. This makes of them "
      "what other tools read."},
     {{"starpipe trace fxt fxt", "Of the traces that StarPU has left in the directory fxt:"}}},
    {"trace fxt",
     {"Reads the prof_file_* of StarPU and the messages_*.jsonl beside them, which a run with "
      "STARPU_FXT_TRACE=1 and STARPU_FXT_PREFIX=DIR/ leaves at its end; StarPU must have been "
      "built with "
      "FxT. Brings all processes to one clock, by the offsets that the run has measured at its "
      "start and its end, adds the messages between processes, and sorts what happened by time.",
      "paje.trace, tasks.rec, data.rec, dag.dot and entities.csv are what StarVZ reads (starvz "
      "--use-paje-trace). In its columns Value is the kind of a task, Iteration the step, "
      "Subiteration the micro-batch, X the layer, Y the slice, Tag the stage and Params the whole "
      "name. tasks.csv, messages.csv, memory.csv and dependencies.csv are the same as plain tables "
      "in ms."},
     {{"STARPU_FXT_TRACE=1 STARPU_FXT_PREFIX=$PWD/fxt/ mpirun -np 4 starpipe train --model "
       "llama-tiny --data book.txt --stages 4 --steps 5",
       "Four processes leave their traces in the directory fxt:"},
      {"starpipe trace fxt fxt", "What StarVZ reads, in the same directory:"}}},
    {"calibrate",
     {"Measures the kernels that training runs, the cost of a task, messages, copies and the disk, "
      "in under a minute, and writes a description of this machine that other commands plan and "
      "predict with. Its keys are those of the files in the machines directory of the "
      "installation.",
      "Under mpirun, messages between two processes of a node and of two nodes are measured too. "
      "Other programs should not run meanwhile: how many figures did not get steady is said at the "
      "end of the file's source."},
     {{"starpipe calibrate --output here.json", "This machine, all cores as one device:"},
      {"mpirun -np 2 --bind-to none starpipe calibrate --output here.json",
       "Two devices, and the messages between them:"}}},
    {"info",
     {"Prints what this build was made with, and what hardware it finds; or a machine that is "
      "described in a file or known by its name."},
     {{"starpipe info --hardware h100-ib", "Nodes of eight H100:"},
      {"starpipe info --hardware h100-ib --format json --output mine.json",
       "A file to start one's own from:"}}},
};

const struct sp_help_page *sp_help_find_page(const char *command)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (!strcmp(command, pages[i].command))
            return &pages[i];
    return NULL;
}
