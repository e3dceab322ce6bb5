package polylimit

/*
#cgo noescape polylimit_go_explain
#cgo nocallback polylimit_go_explain
#cgo noescape polylimit_go_explain_request
#cgo nocallback polylimit_go_explain_request
#include "shim.h"
*/
import "C"

import "context"

// KeyExplanation says why a request with a key would be admitted or denied now.
type KeyExplanation struct {
	// Policy is the policy's name.
	Policy string `json:"policy"`
	KeyName
	// Cost is the units that the request would spend, and Headroom the percent of the capacity that it leaves for others.
	Cost     uint64 `json:"cost"`
	Headroom int    `json:"headroom"`
	// Allowed is whether a check, or a reserve where the policy counts concurrency, would be admitted now.
	Allowed bool `json:"allowed"`
	// Cause is why it would be denied, or admitted without the store, as in Decision; empty for none.
	Cause string `json:"cause"`
	// RetryAfterUS is how long until it would be admitted, in microseconds: 0 when allowed, nil for never.
	RetryAfterUS *uint64 `json:"retry_after_us"`
	// Elastic is whether the pool of an elastic policy would admit it, and Shadowed whether it would be denied if the policy were not in
	// shadow.
	Elastic  bool `json:"elastic"`
	Shadowed bool `json:"shadowed"`
	// Mode is whether the policy decides: "on", "off" or "shadow".
	Mode string `json:"mode"`
	// Rule is the number of the rule that applies the policy, among those of the document, from 1 up; 0 for a request by its key.
	Rule int `json:"rule"`
	// QuotasSource is where the effective quotas of the key come from: "quotas", "override", "plan" or "candidate".
	QuotasSource string `json:"quotas_source"`
	// Plan is the plan whose quotas these are; empty for none.
	Plan string `json:"plan"`
	// OverrideEntry is the override that gives the key these quotas, and ListEntry the item of a list that names it; nil for none.
	OverrideEntry *EntryExplanation `json:"override_entry"`
	ListEntry     *EntryExplanation `json:"list_entry"`
	// Quotas are what each quota says, in their order.
	Quotas []QuotaExplanation `json:"quotas"`
	// Reservations is how many reservations there are, and ReservedUnits the units that they set aside.
	Reservations  uint64 `json:"reservations"`
	ReservedUnits uint64 `json:"reserved_units"`
	// ReservationsEndAfterUS is how long until the last of them ends, in microseconds.
	ReservationsEndAfterUS uint64 `json:"reservations_end_after_us"`
	// BlockedForUS is how much longer the key is blocked, in microseconds; 0 when it is not.
	BlockedForUS uint64 `json:"blocked_for_us"`
	// Penalty is what is counted against the key under the policy's penalty; nil for a policy that has none.
	Penalty *PenaltyExplanation `json:"penalty"`
	// ExpiresAfterUS is how long until the key is as if it had never been used, in microseconds; nil when it stays.
	ExpiresAfterUS *uint64 `json:"expires_after_us"`
	// Degraded is why the states may not be the key's own; empty when they are.
	Degraded string `json:"degraded"`
	// LeasedUnits are the units that this process holds in a lease; the store counts them as used.
	LeasedUnits uint64 `json:"leased_units"`
	// DenialCached is whether this process would deny the request without asking the store.
	DenialCached bool `json:"denial_cached"`
	// Denials is how often this process has denied the key lately, and DenialsError by how much that is too high at most; nil for a key
	// without a counter. See Admin.TopKeys.
	Denials      *uint64 `json:"denials"`
	DenialsError *uint64 `json:"denials_error"`
	// Pool is what the pool of an elastic policy says about a request that the policy denies; nil for none.
	Pool *KeyExplanation `json:"pool"`
	// Configuration is the active configuration; nil for a limiter without one.
	Configuration *ConfigurationExplanation `json:"configuration"`
}

// QuotaExplanation is what one quota says about a request.
type QuotaExplanation struct {
	// Quota is the quota as text, such as "100/minute token_bucket".
	Quota string `json:"quota"`
	// Limit is the limit, in units per period, or in reservations.
	Limit uint64 `json:"limit"`
	// Capacity is the most that can be used at once, without an excess.
	Capacity uint64 `json:"capacity"`
	// PeriodUS is the period, in microseconds; 0 for concurrency.
	PeriodUS uint64 `json:"period_us"`
	// Used is the units that count now, also those beyond the capacity; for concurrency, reservations.
	Used uint64 `json:"used"`
	// Remaining is the whole units that the quota would still admit now.
	Remaining uint64 `json:"remaining"`
	// Over is the units of an excess that are in use.
	Over uint64 `json:"over"`
	// Admits is whether this quota alone admits the request.
	Admits bool `json:"admits"`
	// RetryAfterUS is how long until this quota alone admits it, in microseconds; nil for never.
	RetryAfterUS *uint64 `json:"retry_after_us"`
	// ResetAfterUS is how long until nothing counts as used under this quota, in microseconds.
	ResetAfterUS uint64 `json:"reset_after_us"`
	// Words say the same in the words of the algorithm, such as "debt 12.4 of 100, repays 1.67/s".
	Words string `json:"words"`
}

// PenaltyExplanation is what is counted against a key that is denied too often.
type PenaltyExplanation struct {
	// Denials is how many denials count now, and BlocksAt how many of them block the key.
	Denials  int `json:"denials"`
	BlocksAt int `json:"blocks_at"`
	// Level is the blocks in a row until now: each is twice as long as the one before it.
	Level int `json:"level"`
	// NextBlockUS is how long the next block would last, in microseconds.
	NextBlockUS uint64 `json:"next_block_us"`
}

// EntryExplanation is an item of a list or an override: an entry, or a line of the document.
type EntryExplanation struct {
	// Entry is as Admin.SetEntry takes it, such as "deny client 192.0.2.0/24".
	Entry string `json:"entry"`
	// InDocument is whether it is a line of the document.
	InDocument bool `json:"in_document"`
	// UntilUS is from when on it has no effect, in microseconds since the Unix epoch; nil for never.
	UntilUS *uint64 `json:"until_us"`
	// By is the author's name, and Why the reason; empty where that is not known.
	By  string `json:"by"`
	Why string `json:"why"`
}

// ConfigurationExplanation is the configuration that an explanation is by.
type ConfigurationExplanation struct {
	// Source is where it comes from, Version its version, and Digest SHA-256 of the canonical document, as hexadecimal digits.
	Source  string `json:"source"`
	Version uint64 `json:"version"`
	Digest  string `json:"digest"`
}

// RequestExplanation says why a request would be admitted or denied now, by the configuration's lists, rules and policies.
type RequestExplanation struct {
	// Allowed is whether the request would be admitted.
	Allowed bool `json:"allowed"`
	// Cause is why it would be denied, or admitted without the store, as in Decision; empty for none.
	Cause string `json:"cause"`
	// RetryAfterUS is how long until it would be admitted, in microseconds: the longest over the policies that deny; 0 when allowed, nil for
	// never.
	RetryAfterUS *uint64 `json:"retry_after_us"`
	// ListEntry is the item of a list of attributes that decides; then no policy is asked.
	ListEntry *EntryExplanation `json:"list_entry"`
	// Policies are those that the rules apply, in their order.
	Policies []KeyExplanation `json:"policies"`
	// Configuration is the active configuration.
	Configuration *ConfigurationExplanation `json:"configuration"`
}

// Explain returns why a check of the request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and
// reservations; and what the configuration says about the key. It charges nothing. While the store does not answer, it fails with
// ErrStoreUnavailable: no outage policy answers in its place.
func (a Admin) Explain(ctx context.Context, request Request) (KeyExplanation, error) {
	l := a.limiter
	if err := request.check(); err != nil {
		return KeyExplanation{}, err
	}
	return asked[KeyExplanation](ctx, l, func(tag C.uint64_t, report **C.polylimit_report, result *C.polylimit_result) C.polylimit_status {
		return C.polylimit_go_explain(l.completions.c, l.limiter, request.toC(), tag, report, result)
	})
}

// ExplainRequest returns why a request, by its attributes, would be admitted or denied by the policy document: the lists, the rules that match,
// and what each of their policies says. It charges nothing, and fails as Explain and Matching do.
func (a Admin) ExplainRequest(ctx context.Context, request RequestAttributes) (RequestExplanation, error) {
	l := a.limiter
	plain := request.plain()
	return asked[RequestExplanation](ctx, l, func(tag C.uint64_t, report **C.polylimit_report, result *C.polylimit_result) C.polylimit_status {
		return C.polylimit_go_explain_request(l.completions.c, l.limiter, textStart(plain.texts.String()), &plain.lengths[0],
			plain.headers, plain.attributes, tag, report, result)
	})
}
