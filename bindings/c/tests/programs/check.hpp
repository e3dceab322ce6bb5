/* Shared by the test programs in C++: a check that ends the program, and a run of tests that counts them. */
#ifndef CHECK_HPP
#define CHECK_HPP

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                               \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

struct Test {
    const char *name;
    void (*run)();
};

static inline void run_tests(std::initializer_list<Test> tests) {
    for (const Test &test : tests) {
        std::printf("test %s ... ", test.name);
        std::fflush(stdout);
        test.run();
        std::printf("ok\n");
    }
    std::printf("test result: ok. %zu passed; 0 failed;\n", tests.size());
}

#endif
