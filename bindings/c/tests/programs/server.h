/* The Redis server for tests, and how to suspend it. */
#ifndef SERVER_H
#define SERVER_H

#include "check.h"

#include <sys/types.h>

/* The URL without options. */
static inline const char *bare_url(void) {
    static char url[256];
    size_t length = strcspn(redis_url(), "?");
    CHECK(length < sizeof url);
    memcpy(url, redis_url(), length);
    url[length] = 0;
    return url;
}

/* The server's process id, from INFO. */
static inline pid_t server(void) {
    char command[512], line[256];
    snprintf(command, sizeof command, "redis-cli -u %s info server", bare_url());
    FILE *info = popen(command, "r");
    CHECK(info != NULL);
    int pid = 0;
    while (fgets(line, sizeof line, info) != NULL) {
        sscanf(line, "process_id:%d", &pid);
    }
    CHECK(pclose(info) == 0 && pid > 0);
    return pid;
}

#endif
