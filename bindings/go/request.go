//go:build cgo

package polylimit

// Without cgo the package cannot be used, and nocgo.go is the only file that is compiled.

import "time"

// Request is a key, the policy for it, and the units that it spends. Key makes one.
type Request struct {
	key    string
	policy string
	// The cost minus 1, so that the zero value of Request costs 1 as well.
	beyondOne int64
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

// units is the cost. A negative one becomes larger than any valid cost, and is refused.
func (r Request) units() uint64 { return uint64(r.beyondOne + 1) }

// microseconds is a duration in microseconds, rounded up; 0 when it is negative.
func microseconds(duration time.Duration) uint64 {
	if duration <= 0 {
		return 0
	}
	return (uint64(duration) + 999) / 1000
}
