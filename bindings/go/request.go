//go:build cgo

package polylimit

// Without cgo the package cannot be used, and nocgo.go is the only file that is compiled.

import (
	"math"
	"strings"
	"time"
)

// Request is a key, the policy for it, and the units that it spends. Key makes one.
type Request struct {
	key    string
	policy string
	plan   string
	// The cost minus 1, so that the zero value of Request costs 1 as well.
	beyondOne int64
	headroom  uint32
}

// Key makes a request of cost 1. The key identifies what is limited, such as a user or an address: any bytes, up to 1 MiB.
func Key(key string) Request { return Request{key: key} }

// Policy names a policy of the limiter, or gives quotas as text, such as "100/minute; 1000/hour". It may be empty
// when the limiter has one policy.
func (r Request) Policy(policy string) Request {
	r.policy = policy
	return r
}

// Cost is the units that the request spends: 0 to 10^12. A cost of 0 is always allowed and leaves no trace.
func (r Request) Cost(units int64) Request {
	r.beyondOne = units - 1
	return r
}

// Headroom is the part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent, rounded up: 0 to 99.
// So less important requests are denied first.
func (r Request) Headroom(percent int) Request {
	// What is out of the range of C is out of the range of the library as well.
	r.headroom = uint32(min(uint64(percent), math.MaxUint32))
	return r
}

// Plan names the plan of the key, whose quotas decide where the policy has a plan of that name.
func (r Request) Plan(plan string) Request {
	r.plan = plan
	return r
}

// check refuses texts that C would read only in part.
func (r *Request) check() error {
	if strings.IndexByte(r.policy, 0) >= 0 {
		return invalid("policy contains a NUL")
	}
	if strings.IndexByte(r.plan, 0) >= 0 {
		return invalid("plan contains a NUL")
	}
	return nil
}

// units is the cost. A negative one becomes larger than any valid cost, and is refused.
func (r Request) units() uint64 { return uint64(r.beyondOne + 1) }

// microseconds is a duration in microseconds, rounded up; 0 when it is negative.
func microseconds(duration time.Duration) uint64 {
	if duration <= 0 {
		return 0
	}
	return (uint64(duration) + 999) / 1000
}
