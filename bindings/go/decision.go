package polylimit

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"time"
	"unsafe"
)

// Never stands for a wait that never ends: the cost exceeds what a quota can ever admit. A wait that exceeds the range of
// time.Duration (292 years) becomes Never - 1.
const Never = time.Duration(math.MaxInt64)

// QuotaUsage is one quota's own view of a key, after the operation, and in a decision its own verdict on the request.
type QuotaUsage struct {
	// Limit is the quota's limit, in units per period.
	Limit uint64
	// Remaining is the whole units that this quota would admit right now.
	Remaining uint64
	// ResetAfter is the time until nothing counts as used under this quota, if nothing else arrives.
	ResetAfter time.Duration
	// Over is the units of the quota's excess that are in use: above 0 once use is beyond the limit.
	Over uint64
	// Allowed is whether this quota admits the request; if not, it has denied it. True where no quota was asked, and in a Usage.
	Allowed bool
	// RetryAfter is the time until this quota would admit the same request if no other arrives, exact to the microsecond: 0 when it
	// admits it, Never when the cost exceeds what the quota can ever admit.
	RetryAfter time.Duration
}

// Decision is the answer to a check, a peek, an acquire or a reserve. A request that is not allowed must not proceed.
type Decision struct {
	// Allowed is whether every quota admits the request.
	Allowed bool
	// Remaining is the whole units that can be spent right now, after this decision: the least over the quotas.
	Remaining uint64
	// RetryAfter is the time until the same request would be admitted if no other arrives, exact to the microsecond: 0 when
	// allowed, Never when never.
	RetryAfter time.Duration
	// ResetAfter is the time until nothing counts as used if nothing else arrives: the longest over the quotas.
	ResetAfter time.Duration
	// Delay is the time that this admitted request must wait before it proceeds: leaky bucket only, otherwise 0.
	Delay time.Duration
	// Over is the units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
	Over uint64
	// Cause is why the request was denied, would have been without the shadow, or was admitted without the store: "off", "allow_list",
	// "deny_list", "missing_key", "blocked", "quota" or "concurrency"; empty for none.
	Cause string
	// Crossed is whether this request's units were the first beyond a quota's limit.
	Crossed bool
	// Elastic is whether the pool of an elastic policy admitted the request; then nothing was spent in the policy itself.
	Elastic bool
	// Shadowed is whether the request would have been denied if its policy were not in shadow: it is allowed, and RetryAfter is that of
	// the denial.
	Shadowed bool
	// Source is where the answer came from: "store", or what decided without it.
	Source string
	// Degraded is why a healthy store might have answered otherwise; empty when the answer is exact.
	Degraded string

	numbers plainNumbers
}

// String is the decision for a log, such as "denied (quota), retry after 12s, 0 remaining, reset after 54s".
func (d Decision) String() string {
	text := "denied"
	if d.Allowed {
		text = "allowed"
	}
	if d.Cause != "" {
		text += " (" + d.Cause + ")"
	}
	switch {
	case d.Allowed && !d.Shadowed:
	case d.RetryAfter == Never:
		text += ", never admitted"
	default:
		text += fmt.Sprintf(", retry after %v", d.RetryAfter)
	}
	if d.Delay > 0 {
		text += fmt.Sprintf(", delay %v", d.Delay)
	}
	return text + stateText(d.Remaining, d.ResetAfter, d.Over, d.Source, d.Degraded)
}

// stateText is what decisions and usages have in common.
func stateText(remaining uint64, resetAfter time.Duration, over uint64, source, degraded string) string {
	text := fmt.Sprintf(", %d remaining, reset after %v", remaining, resetAfter)
	if over > 0 {
		text += fmt.Sprintf(", %d over", over)
	}
	if source != "store" {
		text += ", by " + source
	}
	if degraded != "" {
		text += ", degraded: " + degraded
	}
	return text
}

// Quotas is each quota's own view, in the policy's order.
func (d *Decision) Quotas() []QuotaUsage { return d.numbers.quotas() }

// ResetAfterUs is ResetAfter in microseconds, also where a time.Duration cannot hold it.
func (d *Decision) ResetAfterUs() uint64 { return d.numbers.resetAfterUs }

// Usage is the answer to a take, a charge, a refund, a reset, a commit, a cancel, a renew or a block: the state after it.
type Usage struct {
	// Remaining is the whole units that can be spent right now: the least over the quotas.
	Remaining uint64
	// ResetAfter is the time until nothing counts as used if nothing else arrives: the longest over the quotas.
	ResetAfter time.Duration
	// Taken is the units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
	Taken uint64
	// Over is the units of an excess that are in use, the most over the quotas.
	Over uint64
	// Found is whether a commit, a cancel or a renew has found the reservation; true for every other operation.
	Found bool
	// Repeated is whether this was a commit of an id that was committed before and is remembered, so that nothing was charged.
	Repeated bool
	// Source and Degraded are as in Decision.
	Source, Degraded string

	numbers plainNumbers
}

// String is the usage for a log, such as "taken 3, 2 remaining, reset after 54s".
func (u Usage) String() string {
	text := fmt.Sprintf("taken %d", u.Taken)
	switch {
	case u.Repeated:
		text += ", committed before"
	case !u.Found:
		text += ", no reservation found"
	}
	return text + stateText(u.Remaining, u.ResetAfter, u.Over, u.Source, u.Degraded)
}

// Quotas is each quota's own view, in the policy's order.
func (u *Usage) Quotas() []QuotaUsage { return u.numbers.quotas() }

// ResetAfterUs is ResetAfter in microseconds, also where a time.Duration cannot hold it.
func (u *Usage) ResetAfterUs() uint64 { return u.numbers.resetAfterUs }

// plainNumbers are the numbers of a decision in the form of C, for header fields. Most policies have one quota.
type plainNumbers struct {
	retryAfterUs, resetAfterUs, delayUs uint64
	source, degraded, cause             uint32
	first                               C.polylimit_quota_usage
	others                              []C.polylimit_quota_usage
}

func (n *plainNumbers) setQuotas(quotas []C.polylimit_quota_usage) {
	if len(quotas) > 0 {
		n.first = quotas[0]
	}
	if len(quotas) > 1 {
		n.others = append([]C.polylimit_quota_usage(nil), quotas[1:]...)
	}
}

func (n *plainNumbers) quotas() []QuotaUsage {
	quotas := make([]QuotaUsage, 0, 1+len(n.others))
	for at := -1; at < len(n.others); at++ {
		plain := n.first
		if at >= 0 {
			plain = n.others[at]
		}
		quotas = append(quotas, QuotaUsage{
			Limit:      uint64(plain.limit),
			Remaining:  uint64(plain.remaining),
			ResetAfter: duration(uint64(plain.reset_after_us)),
			Over:       uint64(plain.over),
			Allowed:    plain.allowed != 0,
			RetryAfter: duration(uint64(plain.retry_after_us)),
		})
	}
	return quotas
}

func decisionOf(result *C.polylimit_result) Decision {
	return decisionFrom((*C.polylimit_decision)(unsafe.Pointer(&result.answer)))
}

func decisionFrom(plain *C.polylimit_decision) Decision {
	decision := Decision{
		Allowed:    plain.allowed != 0,
		Remaining:  uint64(plain.remaining),
		RetryAfter: duration(uint64(plain.retry_after_us)),
		ResetAfter: duration(uint64(plain.reset_after_us)),
		Delay:      duration(uint64(plain.delay_us)),
		Over:       uint64(plain.over),
		Cause:      causeName(plain.cause),
		Crossed:    plain.crossed != 0,
		Elastic:    plain.elastic != 0,
		Shadowed:   plain.shadowed != 0,
		Source:     sourceName(plain.source),
		Degraded:   degradationName(plain.degraded),
	}
	decision.numbers = plainNumbers{
		retryAfterUs: uint64(plain.retry_after_us),
		resetAfterUs: uint64(plain.reset_after_us),
		delayUs:      uint64(plain.delay_us),
		source:       uint32(plain.source),
		degraded:     uint32(plain.degraded),
		cause:        uint32(plain.cause),
	}
	decision.numbers.setQuotas(plain.quotas[:plain.quota_count])
	return decision
}

func usageOf(result *C.polylimit_result) Usage {
	plain := (*C.polylimit_usage)(unsafe.Pointer(&result.answer))
	usage := Usage{
		Remaining:  uint64(plain.remaining),
		ResetAfter: duration(uint64(plain.reset_after_us)),
		Taken:      uint64(plain.taken),
		Over:       uint64(plain.over),
		Found:      plain.found != 0,
		Repeated:   plain.repeated != 0,
		Source:     sourceName(plain.source),
		Degraded:   degradationName(plain.degraded),
	}
	usage.numbers.resetAfterUs = uint64(plain.reset_after_us)
	usage.numbers.setQuotas(plain.quotas[:plain.quota_count])
	return usage
}

// toC writes the decision into a struct of C.
func (d *Decision) toC(plain *C.polylimit_decision) {
	plain.allowed, plain.crossed = C.uint32_t(flag(d.Allowed)), C.uint32_t(flag(d.Crossed))
	plain.elastic, plain.shadowed = C.uint32_t(flag(d.Elastic)), C.uint32_t(flag(d.Shadowed))
	plain.cause = C.uint32_t(d.numbers.cause)
	plain.size = C.uint32_t(unsafe.Sizeof(*plain))
	plain.source = C.uint32_t(d.numbers.source)
	plain.degraded = C.uint32_t(d.numbers.degraded)
	plain.remaining = C.uint64_t(d.Remaining)
	plain.retry_after_us = C.uint64_t(d.numbers.retryAfterUs)
	plain.reset_after_us = C.uint64_t(d.numbers.resetAfterUs)
	plain.delay_us = C.uint64_t(d.numbers.delayUs)
	plain.over = C.uint64_t(d.Over)
	plain.quota_count = C.uint32_t(1 + len(d.numbers.others))
	plain.quotas[0] = d.numbers.first
	copy(plain.quotas[1:], d.numbers.others)
}

// After is the decision with what is left after a later operation on the same key under the same policy, such as a refund: for
// header fields that report it.
func (d Decision) After(usage Usage) Decision {
	d.Remaining, d.ResetAfter, d.Over = usage.Remaining, usage.ResetAfter, usage.Over
	d.numbers.resetAfterUs = usage.numbers.resetAfterUs
	verdicts := d.numbers
	d.numbers.first = withVerdict(usage.numbers.first, verdicts.first)
	d.numbers.others = nil
	for at, left := range usage.numbers.others {
		if at < len(verdicts.others) {
			left = withVerdict(left, verdicts.others[at])
		}
		d.numbers.others = append(d.numbers.others, left)
	}
	return d
}

// withVerdict is the usage with the verdict of another.
func withVerdict(usage, verdict C.polylimit_quota_usage) C.polylimit_quota_usage {
	usage.allowed, usage.retry_after_us = verdict.allowed, verdict.retry_after_us
	return usage
}

// duration converts microseconds, up to the range of time.Duration.
func duration(us uint64) time.Duration {
	switch {
	case us == C.POLYLIMIT_NEVER:
		return Never
	case us > math.MaxInt64/1000:
		return Never - 1
	default:
		return time.Duration(us) * time.Microsecond
	}
}

// The names of sources, causes and degradations by number. They are read once, so that a decision needs no further call to C.
var (
	sources      = names(0, func(number C.uint32_t) *C.char { return C.polylimit_source_name(number) })
	causes       = names(1, func(number C.uint32_t) *C.char { return C.polylimit_cause_name(number) })
	degradations = names(1, func(number C.uint32_t) *C.char { return C.polylimit_degradation_name(number) })
)

func names(first C.uint32_t, name func(C.uint32_t) *C.char) []string {
	known := make([]string, first)
	for number := first; ; number++ {
		text := name(number)
		if text == nil {
			return known
		}
		known = append(known, C.GoString(text))
	}
}

func causeName(number C.uint32_t) string       { return causes[number] }
func sourceName(number C.uint32_t) string      { return sources[number] }
func degradationName(number C.uint32_t) string { return degradations[number] }
