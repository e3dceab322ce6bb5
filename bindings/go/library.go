// Package polylimit decides whether requests may proceed: exactly, in integers, and with the same meaning in every store
// and language.
//
//	limiter, err := polylimit.Open("redis://localhost?deadline=20ms", polylimit.WithPolicy("api", "100/minute; 1000/hour"))
//	...
//	decision, err := limiter.Check(ctx, polylimit.Key("user:42"))
//	if err == nil && !decision.Allowed {
//	        // try again after decision.RetryAfter
//	}
//
// A denial is a value: an error means that no decision could be made. Goroutines that wait for a store do not block a
// thread each. The package needs libpolylimit, which pkg-config finds; with the build tag polylimit_static it is linked
// into the program.
package polylimit

/*
#include "shim.h"
*/
import "C"

// Version is the version of the library, such as "1.2.3".
func Version() string {
	return C.GoString(C.polylimit_version())
}
