/* The format of the cases; see ../README.md. */
#ifndef CASES_H
#define CASES_H

#include <cjson/cJSON.h>
#include <polylimit.h>
#include <stdbool.h>
#include <stddef.h>

/* The runner of C++ uses these functions as well. */
#ifdef __cplusplus
#define NO_RETURN [[noreturn]]
extern "C" {
#else
#define NO_RETURN _Noreturn
#endif

/* Reads a file, or ends the program with a message. */
cJSON *cases_read(const char *path);

/* A whole number of an object; ends the program when it is there and none. */
bool cases_number(const cJSON *object, const char *name, uint64_t *number_out);

/* The quotas of a case as text; false with a message when one is refused. */
bool cases_quotas(const cJSON *quotas, char *text, size_t capacity, char *message, size_t message_capacity);

/* The number of an operation; 0 for "change", which changes the policy. */
uint32_t cases_operation(const cJSON *operation);

/* What an operation answered, in the form in which a case expects it. */
cJSON *cases_answer(uint32_t operation, const polylimit_result *result, const cJSON *expected);

/* Ends the program: it could not run. */
NO_RETURN void cases_die(const char *what, const char *about);

#ifdef __cplusplus
}
#endif

#endif
