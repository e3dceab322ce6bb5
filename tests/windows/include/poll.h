/* What the test programs use of POSIX' poll, on Windows. */
#ifndef POLYLIMIT_TESTS_POLL_H
#define POLYLIMIT_TESTS_POLL_H
#include <winsock2.h>
#define poll WSAPoll
#endif
