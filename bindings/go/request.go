//go:build cgo

package polylimit

// Without cgo nothing of this package can be used; nocgo.go says so.

import "time"

// Request is a key, the policy that is applied to it, and the units that it spends. Key makes one.
type Request struct {
	key    string
	policy string
	// How far the cost is from 1, so that a Request that was not made by Key costs 1 as well.
	beyondOne int64
}

// Key is a request of cost 1 for a key: whom or what a policy is applied to. Any bytes, up to 1 MiB.
func Key(key string) Request { return Request{key: key} }

// Policy names a policy of the limiter, or gives quotas as text, such as "100/minute; 1000/hour". It may be left out where
// the limiter has one policy.
func (r Request) Policy(policy string) Request {
	r.policy = policy
	return r
}

// Cost is the units that the request spends: 0 to 10^12. A cost of 0 is always allowed and leaves no trace.
func (r Request) Cost(units int64) Request {
	r.beyondOne = units - 1
	return r
}

// units is the cost. What is negative becomes more than any cost, and is refused.
func (r Request) units() uint64 { return uint64(r.beyondOne + 1) }

// microseconds of a duration, rounded up; nothing when it is negative.
func microseconds(duration time.Duration) uint64 {
	if duration <= 0 {
		return 0
	}
	return (uint64(duration) + 999) / 1000
}
