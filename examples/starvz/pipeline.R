#!/usr/bin/env Rscript
# One step of a pipeline, from the tables that `starpipe trace fxt DIR` writes: stages over time with their
# messages and the critical path, the share of each stage's time that is bubble, memory, and what the critical
# path consists of. Needs R with ggplot2 and patchwork (Debian: r-base-core r-cran-ggplot2 r-cran-patchwork).
#
# usage: pipeline.R DIR FIGURE.png|svg|pdf [STEP]      (the last step of the trace)

suppressPackageStartupMessages({
  library(ggplot2)
  library(patchwork)
})

args <- commandArgs(trailingOnly = TRUE)
if (length(args) < 2) stop("usage: pipeline.R DIR FIGURE.png|svg|pdf [STEP]", call. = FALSE)
table_of <- function(name) {
  read.csv(file.path(args[[1]], paste0(name, ".csv")),
    colClasses = c(job = "character", id = "character", after = "character", tensor = "character")
  ) |> suppressWarnings()
}
tasks <- table_of("tasks")
messages <- table_of("messages")
memory <- table_of("memory")
dependencies <- table_of("dependencies")
step <- if (length(args) > 2) as.integer(args[[3]]) else max(tasks$step, na.rm = TRUE)

# ---- the step, from its first task --------------------------------------------------------------------

mine <- subset(tasks, step == get("step", globalenv()))
if (!nrow(mine)) stop(sprintf("no task of step %d in %s", step, args[[1]]), call. = FALSE)
from <- min(mine$start_ms)
to <- max(mine$end_ms)
sent <- subset(messages, start_ms >= from & end_ms <= to & nzchar(tensor))
work <- c(F = "forward", B = "backward", W = "weight gradient", R = "recompute")
kind_of <- function(pass, part) {
  kind <- ifelse(pass %in% names(work), work[pass], "norm, update")
  ifelse(pass == "B" & grepl("\\.w$", part), "weight gradient", kind)
}
mine$kind <- kind_of(mine$pass, mine$part)

# ---- the critical path: backwards, each time to what ended last of what was waited for -----------------

before <- split(dependencies$after, dependencies$id)
mine <- mine[order(mine$rank, mine$worker, mine$start_ms), ]
same <- c(FALSE, diff(mine$rank) == 0 & diff(mine$worker) == 0)
previous <- setNames(ifelse(same, c("", head(mine$job, -1)), ""), mine$job)
ends <- c(setNames(mine$end_ms, mine$job), setNames(sent$end_ms, sent$message))
starts <- c(setNames(mine$start_ms, mine$job), setNames(sent$start_ms, sent$message))

path <- character()
id <- mine$job[which.max(mine$end_ms)]
while (length(id) == 1) {
  path <- c(id, path)
  waited <- unique(c(before[[id]], previous[id]))
  waited <- waited[waited %in% names(ends)]
  waited <- waited[ends[waited] <= ends[[id]] & starts[waited] < starts[[id]]]
  id <- waited[which.max(ends[waited])]
}
critical <- data.frame(id = path, start = starts[path], end = ends[path])
at <- match(critical$id, mine$job)
critical$stage <- mine$stage[at]
critical$what <- ifelse(is.na(at), "message", mine$kind[at])
# A message is late only from where the task before it ended.
critical$start <- pmax(critical$start, c(from, head(cummax(critical$end), -1)))
spent <- tapply(pmax(0, critical$end - critical$start), critical$what, sum)
spent["waiting"] <- (to - from) - sum(spent)

# ---- panels ------------------------------------------------------------------------------------------

colors <- c(
  "forward" = "#3182bd", "backward" = "#fd8d3c", "weight gradient" = "#74c476", "recompute" = "#9e9ac8",
  "norm, update" = "#969696", "message" = "#e377c2", "waiting" = "#f0f0f0"
)
fill <- scale_fill_manual(values = colors, name = NULL)
stages <- scale_y_reverse(breaks = sort(unique(mine$stage)))
time <- scale_x_continuous(limits = c(0, to - from), expand = expansion(0.01))
look <- theme_bw(base_size = 10) + theme(panel.grid.minor = element_blank(), legend.position = "top")

gantt <- ggplot(mine) +
  geom_rect(aes(
    xmin = start_ms - from, xmax = end_ms - from, ymin = stage - 0.4, ymax = stage + 0.4, fill = kind
  )) +
  geom_segment(
    data = subset(sent, !is.na(from_stage) & !is.na(to_stage)),
    aes(x = start_ms - from, xend = end_ms - from, y = from_stage, yend = to_stage),
    linewidth = 0.2, arrow = arrow(length = unit(1.2, "mm")), color = "#636363"
  ) +
  geom_segment(
    data = subset(critical, !is.na(stage)),
    aes(x = start - from, xend = end - from, y = stage + 0.45, yend = stage + 0.45),
    color = "#d62728", linewidth = 1
  ) +
  fill + stages + time + look +
  labs(
    x = NULL, y = "stage",
    title = sprintf("step %d: %.1f ms (red: the critical path; arrows: messages)", step, to - from)
  )

busy <- tapply(mine$end_ms - mine$start_ms, mine$stage, sum)
bubble <- data.frame(stage = as.integer(names(busy)), share = 100 * (1 - busy / (to - from)))
idle <- ggplot(bubble, aes(y = stage, x = share)) +
  geom_col(orientation = "y", width = 0.7, fill = "#bdbdbd") +
  geom_text(aes(label = sprintf("%.0f %%", share)), hjust = 1.1, size = 3) +
  stages + xlim(0, 100) + look + labs(x = "idle, % of the step", y = "stage", title = "bubble")

memory$process <- factor(memory$rank)
memory$ms <- (memory$ms - min(tasks$start_ms)) / 1000
held <- ggplot(memory[memory$ms >= 0, ], aes(x = ms, y = mb, color = process)) +
  annotate("rect",
    xmin = (from - min(tasks$start_ms)) / 1000, xmax = (to - min(tasks$start_ms)) / 1000,
    ymin = -Inf, ymax = Inf, fill = "#f0f0f0"
  ) +
  geom_step(linewidth = 0.4) +
  facet_wrap(~ paste("memory node", node)) +
  look + labs(x = "s, of all steps", y = "MB", title = "allocated by StarPU")

parts <- data.frame(what = factor(names(spent), levels = names(colors)), ms = as.numeric(spent))
along <- ggplot(parts, aes(x = ms, y = what, fill = what)) +
  geom_col(width = 0.7, show.legend = FALSE, color = "#bdbdbd", linewidth = 0.2) +
  geom_text(aes(label = sprintf("%.1f", ms)), hjust = -0.1, size = 3) +
  fill + scale_x_continuous(expand = expansion(c(0, 0.15))) +
  look + labs(x = "ms", y = NULL, title = "the critical path")

figure <- gantt / (idle | held | along) + plot_layout(heights = c(3, 2))
ggsave(args[[2]], figure, width = 11, height = 6.5, dpi = 80)
cat(sprintf(
  "step %d: %.2f ms, %d tasks, %d messages; critical path: %s\n", step, to - from, nrow(mine), nrow(sent),
  paste(sprintf("%s %.2f", names(spent), spent), collapse = ", ")
))
