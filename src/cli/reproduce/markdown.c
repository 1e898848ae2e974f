#include "cli/reproduce/paper.h"
int sp_paper_markdown(const struct sp_paper *paper){(void)paper;return 0;}
