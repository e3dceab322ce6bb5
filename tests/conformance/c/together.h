/* Cases of format 5: requests over several policies. */
#ifndef TOGETHER_H
#define TOGETHER_H

#include "cases.h"
#include "face.h"

/* Whether a case agrees; `number` makes its keys differ from those of the others. */
bool together_run(const cJSON *item, const struct face *face, const char *store, int number);

#endif
