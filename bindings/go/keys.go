package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"
)

// KeyName is the key of a client or resource, as a store has it: one of its fields, or an empty key.
type KeyName struct {
	// Key is the key, when it is text in UTF-8.
	Key string `json:"key,omitempty"`
	// KeyBase64 is the key when it is any other bytes.
	KeyBase64 []byte `json:"key_base64,omitempty"`
	// KeyDigest is a digest of the key, in hexadecimal digits, when the store has only that, since the key is long.
	KeyDigest string `json:"key_digest,omitempty"`
}

// Raw is the key itself, any bytes; false when the store has only its digest.
func (k KeyName) Raw() (string, bool) {
	if k.KeyBase64 != nil {
		return string(k.KeyBase64), true
	}
	return k.Key, k.KeyDigest == ""
}

// ListOptions says which keys a list has, and when a page ends. What is 0 or empty has the library's default: all keys, in pages of 1,000.
type ListOptions struct {
	// Policy is the name of a policy, or its quotas as text: only its keys are listed.
	Policy string
	// KeyPrefix is what the keys begin with: any bytes.
	KeyPrefix string
	// AtLeastUsed is the least use of the keys, in percent: up to 255. Keys of policies that the limiter does not know are listed with 0 only.
	AtLeastUsed int
	// Cursor is that of the page before; empty for the first page. It has no effect on ScanTop.
	Cursor string
	// Entries is how many keys end the page. The last step may bring some more: about a thousand at most. Default 1,000.
	Entries int
	// Examined is after how many keys of the store the page ends, whether they are in it or not. Default 100,000.
	Examined int
	// PacePercent is the share of one server's time that a list in Redis may take, 1 to 100: each call is followed by a pause. Default 10.
	PacePercent int
}

// KeyPage is a part of a list of keys.
type KeyPage struct {
	// Keys are the keys, in no particular order; for ScanTop first the one of which the most is used.
	Keys []ListedKey `json:"keys"`
	// Examined is how many keys the store went over, about; in Redis those of other programs, too.
	Examined uint64 `json:"examined"`
	// Cursor is where the list goes on; empty when this was the last page. A page without keys may have one.
	Cursor string `json:"cursor"`
}

// ListedKey is a key with what is used of its quotas.
type ListedKey struct {
	// Policy is the policy's name.
	Policy string `json:"policy"`
	KeyName
	// Quotas are the effective quotas of the key; none for a policy that the limiter does not know.
	Quotas []ListedQuota `json:"quotas"`
	// UsedPercent is the part of the most that can be used at once that is used or set aside, the most over the quotas: above 100 for units
	// beyond it, and at least 100 for a blocked key.
	UsedPercent uint64 `json:"used_percent"`
	// Reservations is how many reservations there are, and ReservedUnits the units that they set aside.
	Reservations  uint64 `json:"reservations"`
	ReservedUnits uint64 `json:"reserved_units"`
	// BlockedForUS is how much longer the key is blocked, in microseconds; 0 when it is not.
	BlockedForUS uint64 `json:"blocked_for_us"`
	// ExpiresAfterUS is how long until the key is as if it had never been used, in microseconds; nil when it stays, and where the store does
	// not report it.
	ExpiresAfterUS *uint64 `json:"expires_after_us"`
}

// ListedQuota is what is used of one quota of a key.
type ListedQuota struct {
	// Quota is the quota as text, such as "100/minute".
	Quota string `json:"quota"`
	// Limit is the limit, in units per period, or in reservations.
	Limit uint64 `json:"limit"`
	// Capacity is the most that can be used at once, without an excess.
	Capacity uint64 `json:"capacity"`
	// Used is the units that count now, also those beyond the capacity; for concurrency, reservations.
	Used uint64 `json:"used"`
	// Remaining is the whole units that the quota would still admit now.
	Remaining uint64 `json:"remaining"`
	// ResetAfterUS is how long until nothing counts as used under this quota, in microseconds.
	ResetAfterUS uint64 `json:"reset_after_us"`
}

// ResetPage is what became of a page of keys that were to be reset.
type ResetPage struct {
	// Reset is how many keys were reset, and Unknown how many stay, because the limiter does not know their policies.
	Reset   uint64 `json:"reset"`
	Unknown uint64 `json:"unknown"`
	// Examined is how many keys the store went over, about.
	Examined uint64 `json:"examined"`
	// Cursor is where the list goes on; empty when this was the last page.
	Cursor string `json:"cursor"`
}

// TopKeys are the keys that a limiter has denied and admitted most often in this process.
type TopKeys struct {
	// Denied are the keys that were denied, and Admitted those that were admitted, the most often first.
	Denied   []TopKey `json:"denied"`
	Admitted []TopKey `json:"admitted"`
	// HalfLifeUS is the time in which every count is halved, in microseconds.
	HalfLifeUS uint64 `json:"half_life_us"`
	// Counters is how many keys have a counter at most; 0 when keys are not counted.
	Counters uint64 `json:"counters"`
}

// TopKey is how often a key was denied or admitted.
type TopKey struct {
	// Policy is the policy's name.
	Policy string `json:"policy"`
	KeyName
	// Count is how often, in requests: estimated from a sample of them.
	Count uint64 `json:"count"`
	// Error is by how much the count is too high at most, because another key has had its counter before.
	Error uint64 `json:"error"`
}

// List gives the keys that the store has, with what is used of their quotas, a page at a time. A key that is there from the first page to
// the last is listed; one that comes or goes meanwhile may be, and a key may be listed twice. In Redis they are found by SCAN, for which the
// user needs the right, over connections of its own.
//
// It fails with ErrInvalidArgument for a number that is not allowed and the cursor of a list with another filter, with ErrStoreUnavailable
// when the store does not answer, and with ErrStoreFailed when the user may not list keys.
func (a Admin) List(ctx context.Context, options ListOptions) (KeyPage, error) {
	return listed[KeyPage](ctx, a.limiter, C.POLYLIMIT_LIST, options, 0)
}

// ScanTop returns the most used keys, at most this many, in descending order. With a cursor in the answer, its
// budget has ended before all keys were examined. It fails as List does.
func (a Admin) ScanTop(ctx context.Context, most int, options ListOptions) (KeyPage, error) {
	return listed[KeyPage](ctx, a.limiter, C.POLYLIMIT_SCAN_TOP, options, most)
}

// ResetListed lists a page of keys as List does, and resets them: the store forgets them, and what they have used. Keys of policies that
// the limiter does not know stay. It fails as List does; keys may have been reset before an error.
func (a Admin) ResetListed(ctx context.Context, options ListOptions) (ResetPage, error) {
	return listed[ResetPage](ctx, a.limiter, C.POLYLIMIT_RESET_LISTED, options, 0)
}

// TopKeys returns the keys that this limiter has denied and admitted most often in this process lately, this many of each at most. It needs
// WithObserveKeys; without, there are none. No store is asked.
func (a Admin) TopKeys(most int) (TopKeys, error) {
	l := a.limiter
	if most < 0 {
		return TopKeys{}, notNegative("most", most)
	}
	defer runtime.KeepAlive(l)
	return made[TopKeys](func(report **C.polylimit_report, failure *message) C.polylimit_status {
		return C.polylimit_admin_top_keys(l.limiter, C.uint64_t(most), report, &failure[0], C.size_t(len(failure)))
	})
}

// listed asks for a report of keys.
func listed[T any](ctx context.Context, l *Limiter, operation C.uint32_t, options ListOptions, most int) (T, error) {
	var nothing T
	policy, err := optionalText(options.Policy, "policy")
	if err != nil {
		return nothing, err
	}
	defer free(policy)
	cursor, err := optionalText(options.Cursor, "cursor")
	if err != nil {
		return nothing, err
	}
	defer free(cursor)
	prefix := C.CBytes([]byte(options.KeyPrefix))
	defer C.free(prefix)

	var plain C.polylimit_list_options
	plain.size = C.uint32_t(unsafe.Sizeof(plain))
	var failure message
	if err := failure.err(C.polylimit_list_defaults(&plain, &failure[0], C.size_t(len(failure)))); err != nil {
		return nothing, err
	}
	plain.policy, plain.cursor = policy, cursor
	plain.key_prefix, plain.key_prefix_length = prefix, C.size_t(len(options.KeyPrefix))
	for _, number := range []struct {
		name  string
		given int
		set   func(C.uint64_t)
	}{
		{"most", most, nil},
		{"AtLeastUsed", options.AtLeastUsed, func(number C.uint64_t) { plain.at_least_used = C.uint32_t(min(number, 1<<31)) }},
		{"Entries", options.Entries, func(number C.uint64_t) { plain.entries = number }},
		{"Examined", options.Examined, func(number C.uint64_t) { plain.examined = number }},
		{"PacePercent", options.PacePercent, func(number C.uint64_t) { plain.pace_percent = C.uint32_t(min(number, 1<<31)) }},
	} {
		if number.given < 0 {
			return nothing, notNegative(number.name, number.given)
		}
		if number.given > 0 && number.set != nil {
			number.set(C.uint64_t(number.given))
		}
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&plain)
	query := C.polylimit_query{operation: operation, options: &plain, most: C.uint64_t(most)}
	query.size = C.uint32_t(unsafe.Sizeof(query))
	return asked[T](ctx, l, func(tag C.uint64_t, report **C.polylimit_report, result *C.polylimit_result) C.polylimit_status {
		return C.polylimit_completions_submit_query(l.completions.c, l.limiter, &query, tag, report, result,
			C.size_t(unsafe.Sizeof(*result)), &result.message[0], C.size_t(len(result.message)))
	})
}

func notNegative(name string, number int) error {
	return invalid(fmt.Sprintf("%s is %d: allowed is 0, the default, or more", name, number))
}
