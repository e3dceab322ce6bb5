/* Cases of format 3: a document, and operations of a limiter that has its limits from it. */
#ifndef POLICIES_H
#define POLICIES_H

#include "cases.h"
#include "face.h"

/* Whether a case agrees; `number` keeps what it stores apart from every other case. */
bool policies_run(const cJSON *item, const struct face *face, const char *store, int number);

#endif
