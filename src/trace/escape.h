/* Escapes text inside other text: the document stays well-formed UTF-8, whatever bytes the text
 * has. */
#ifndef SP_ESCAPE_H
#define SP_ESCAPE_H

#include <stdio.h>

/* Writes text for XML or HTML, in an element or between double quotes. */
void sp_escape_xml(const char *text, FILE *out);

/* Writes a JSON string with its quotes, fit for a <script> too: without '<', '>' or '&'. */
void sp_escape_json(const char *text, FILE *out);

#endif
