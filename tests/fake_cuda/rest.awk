# From what nm prints of a library: its functions that begin with -v begins=, each of which does -v what=.
$3 ~ "^" begins "[A-Z]" { sub(/@.*/, "", $3); names[$3] }
END { for (n in names) print "__attribute__((weak)) int " n "(void) { " what "; }" }
