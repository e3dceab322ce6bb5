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

/* Decides requests that belong together, all with one operation, and waits for the decisions. */
polylimit_status face_together(const struct face *face, const polylimit_limiter *limiter,
                               const polylimit_request *requests, size_t count, polylimit_decision *decisions_out,
                               char *message, size_t capacity);

/* Decides about a request by its attributes, and waits for the decision. */
polylimit_status face_decide(const struct face *face, const polylimit_limiter *limiter,
                             const polylimit_attributes *attributes, const polylimit_reservation_options *options,
                             polylimit_request_decision **decision_out, char *message, size_t capacity);

/* Changes a configuration by completions, and waits until that is done. */
polylimit_status face_change(const struct face *face, const polylimit_limiter *limiter, const polylimit_change *change,
                             char *message, size_t capacity);

#endif
