/*
 * Callers in C: caller URL CALLERS ATTEMPTS. For each line of the input, a key and quotas with a tab between them, all
 * callers ask at the same time, each in a thread; the answer is how many were admitted.
 */
#include <polylimit.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLERS = 64, LINE = 512 };

static polylimit_limiter *limiter;
static char line[LINE];
static const char *quotas;
static size_t key_length;
static long attempts;

static void fail(const char *what) {
    fprintf(stderr, "caller in C: %s\n", what);
    exit(1);
}

static void *call(void *admitted) {
    char message[256];
    for (long attempt = 0; attempt < attempts; attempt++) {
        polylimit_decision decision = {.size = sizeof decision};
        if (polylimit_limiter_check(limiter, quotas, line, key_length, 1, &decision, message, sizeof message) !=
            POLYLIMIT_OK) {
            fail(message);
        }
        /* What the store did not decide would say nothing about a shared budget. */
        if (decision.degraded) {
            fail(polylimit_degradation_name(decision.degraded));
        }
        *(long *)admitted += (long)decision.allowed;
    }
    return NULL;
}

int main(int count, char **arguments) {
    char message[256];
    long callers = count == 4 ? atol(arguments[2]) : 0;
    if (callers < 1 || callers > CALLERS) {
        fail("usage: caller URL CALLERS ATTEMPTS, with 1 to 64 callers");
    }
    attempts = atol(arguments[3]);
    if (polylimit_limiter_open(arguments[1], NULL, 0, NULL, &limiter, message, sizeof message) != POLYLIMIT_OK) {
        fail(message);
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        pthread_t threads[CALLERS];
        long admitted[CALLERS] = {0}, sum = 0;
        line[strcspn(line, "\n")] = 0;
        key_length = strcspn(line, "\t");
        quotas = line + key_length + 1;
        for (long caller = 0; caller < callers; caller++) {
            if (pthread_create(&threads[caller], NULL, call, &admitted[caller]) != 0) {
                fail("a thread cannot be made");
            }
        }
        for (long caller = 0; caller < callers; caller++) {
            pthread_join(threads[caller], NULL);
            sum += admitted[caller];
        }
        printf("%ld\n", sum);
        fflush(stdout);
    }
    polylimit_limiter_free(limiter);
    return 0;
}
