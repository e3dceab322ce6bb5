/* What the tests of the recipes' programs have in common: tests/recipes/run_c writes the program of the page into recipe.h. */
#ifndef TEST_H
#define TEST_H

#include <stdio.h>
#include <stdlib.h>

#include "recipe.h"

static char message[MESSAGE];

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, message);                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
