/* Text inside other text: whatever bytes it has, the document stays well-formed UTF-8. */
#ifndef SP_ESCAPE_H
#define SP_ESCAPE_H

#include <stdio.h>

/* In XML or HTML, in an element or between double quotes. */
void sp_escape_xml(const char *text, FILE *out);

/* A JSON string with its quotes, fit for a <script> too: no '<', '>' or '&'. */
void sp_escape_json(const char *text, FILE *out);

#endif
