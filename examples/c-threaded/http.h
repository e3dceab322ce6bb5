/* As much of HTTP/1.1 as the examples need. A real service has a server for it. */
#ifndef HTTP_H
#define HTTP_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <polylimit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HTTP_REQUEST = 4096, HTTP_KEY = 128, HTTP_RESPONSE = 2048 };

/* Ends the program with a message. */
static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static const char *from_environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* One policy, "demo", as the environment says. */
static polylimit_limiter *open_demo(void) {
    char message[256];
    polylimit_limiter *limiter = NULL;
    polylimit_option option = {"policy.demo", from_environment("POLYLIMIT_QUOTA", "100/minute")};
    if (polylimit_limiter_open(from_environment("POLYLIMIT_URL", "local:demo"), &option, 1, NULL, &limiter, message,
                               sizeof message) != POLYLIMIT_OK) {
        fail(message);
    }
    return limiter;
}

/* A socket that listens on 127.0.0.1; with PORT=0 the system chooses the port. */
static int listen_on_port(int type) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int one = 1, listener = socket(AF_INET, type, 0);
    address.sin_port = htons((uint16_t)atoi(from_environment("PORT", "8080")));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 128) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        fail("the port cannot be listened on");
    }
    printf("listening on http://127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

/* Whom to limit: the query parameter "user", or "demo". The request ends with a NUL. */
static void key_of(const char *request, char key[HTTP_KEY]) {
    size_t line = strcspn(request, "\r\n");
    const char *user = strstr(request, "user=");
    snprintf(key, HTTP_KEY, "demo");
    if (user && user < request + line && (user[-1] == '?' || user[-1] == '&')) {
        snprintf(key, HTTP_KEY, "%.*s", (int)strcspn(user + 5, "& \r\n"), user + 5);
    }
}

/* Writes the response to a request that was decided, and says how long it is. */
static size_t respond(const polylimit_limiter *limiter, const polylimit_decision *decision,
                      char response[HTTP_RESPONSE]) {
    char message[256] = "", fields[1024] = "", body[512] = "{\"hello\":\"world\"}";
    const char *reason = "200 OK", *type = "application/json";
    uint32_t status = 0;
    polylimit_outcome outcome = {NULL, decision};
    uint64_t now_us = (uint64_t)time(NULL) * 1000000;
    if (polylimit_headers_render(limiter, &outcome, 1, NULL, now_us, fields, sizeof fields, NULL, message,
                                 sizeof message) != POLYLIMIT_OK) {
        fprintf(stderr, "%s\n", message);
    }
    if (!decision->allowed) {
        polylimit_problem_render(limiter, &outcome, 1, 1, 1, &status, body, sizeof body, NULL, message, sizeof message);
        reason = status == 503 ? "503 Service Unavailable" : "429 Too Many Requests";
        type = polylimit_problem_content_type(1);
    }
    int length = snprintf(response, HTTP_RESPONSE,
                          "HTTP/1.1 %s\r\n%scontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", reason, fields, type,
                          strlen(body), body);
    return length < HTTP_RESPONSE ? (size_t)length : HTTP_RESPONSE - 1;
}

/* A request that could not be decided. A service chooses what to do then; this one reports it. */
static size_t respond_failure(const char *message, char response[HTTP_RESPONSE]) {
    fprintf(stderr, "%s\n", message);
    return (size_t)snprintf(response, HTTP_RESPONSE,
                            "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n");
}

#endif
