//go:build cgo

package polylimit

// Without cgo the package cannot be used, and nocgo.go is the only file that is compiled.

import (
	"fmt"
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
	headroom  int
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
	r.headroom = percent
	return r
}

// Plan names the plan of the key, whose quotas decide where the policy has it; a calendar may follow, as in "gold from=15".
func (r Request) Plan(plan string) Request {
	r.plan = plan
	return r
}

// String omits the key, which may be a secret.
func (r Request) String() string {
	text := fmt.Sprintf("request of %d units", r.units())
	for _, given := range [][2]string{{"policy", r.policy}, {"plan", r.plan}} {
		if given[1] != "" {
			text += fmt.Sprintf(", %s %q", given[0], given[1])
		}
	}
	if r.headroom != 0 {
		text += fmt.Sprintf(", headroom %d%%", r.headroom)
	}
	return text
}

// check refuses what C cannot read as it was written: numbers below 0, and texts with a NUL.
func (r *Request) check() error {
	if r.units() < 0 {
		return negativeCost(r.units())
	}
	if r.headroom < 0 || r.headroom > math.MaxUint32 {
		return invalid(fmt.Sprintf("headroom is %d %%: allowed is 0 to 99 %%", r.headroom))
	}
	if strings.IndexByte(r.policy, 0) >= 0 {
		return invalid("policy contains a NUL")
	}
	if strings.IndexByte(r.plan, 0) >= 0 {
		return invalid("plan contains a NUL")
	}
	return nil
}

// units is the cost.
func (r Request) units() int64 { return r.beyondOne + 1 }

func negativeCost(units int64) error {
	return invalid(fmt.Sprintf("cost is %d: allowed is 0 to 10^12 units", units))
}

// checkDuration refuses a duration that C cannot be given.
func checkDuration(name string, duration time.Duration) error {
	if duration < 0 {
		return invalid(fmt.Sprintf("%s is %v: allowed is 0 or more", name, duration))
	}
	return nil
}

// checkDurations is checkDuration for several.
func checkDurations(named ...namedDuration) error {
	for _, one := range named {
		if err := checkDuration(one.name, one.duration); err != nil {
			return err
		}
	}
	return nil
}

type namedDuration struct {
	name     string
	duration time.Duration
}

// microseconds is a duration in microseconds, rounded up; 0 when it is negative.
func microseconds(duration time.Duration) uint64 {
	if duration <= 0 {
		return 0
	}
	return (uint64(duration) + 999) / 1000
}
