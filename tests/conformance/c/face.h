/* The two faces of the C interface: calls that wait, and completions. */
#ifndef FACE_H
#define FACE_H

#include <polylimit.h>

struct face {
    const char *name;
    /* NULL: calls that wait. */
    polylimit_completions *completions;
};

/* Does an operation and waits for its result. */
void face_run(const struct face *face, const polylimit_limiter *limiter, const polylimit_request *request,
              polylimit_result *result);

#endif
