package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// ConfigurationStatus says which configuration is active.
type ConfigurationStatus struct {
	// Source is where it comes from: "document" for one that the program gives, otherwise as WithConfiguration names it.
	Source string
	// Version is raised with each change; 0 before the first.
	Version uint64
	// DocumentVersion is which document of Redis is active, counted from 1: what ExpectedVersion of Admin.Publish expects to replace. 0
	// where the document does not come from Redis.
	DocumentVersion uint64
	// Digest is SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first.
	Digest string
	// AppliedAt is when this version was applied; the Unix epoch before the first.
	AppliedAt time.Time
	// UnreachableFor is how long the source has been unreachable; 0 when it is not.
	UnreachableFor time.Duration
	// Error is why a newer configuration was not applied, or may not be known; empty for no error.
	Error string
}

// Configuration returns the status of the active configuration; false for a limiter that has none.
func (a Admin) Configuration() (ConfigurationStatus, bool) {
	l := a.limiter
	defer runtime.KeepAlive(l)
	var plain *C.polylimit_configuration
	if C.polylimit_admin_configuration(l.limiter, &plain, nil, 0) != C.POLYLIMIT_OK || plain == nil {
		return ConfigurationStatus{}, false
	}
	return configurationOf(plain), true
}

// configurationOf reads a status and frees it.
func configurationOf(plain *C.polylimit_configuration) ConfigurationStatus {
	defer C.polylimit_configuration_free(plain)
	return ConfigurationStatus{
		Source:          C.GoString(plain.source),
		Version:         uint64(plain.version),
		DocumentVersion: uint64(plain.document_version),
		Digest:          C.GoString(plain.digest),
		AppliedAt:       time.UnixMicro(int64(plain.applied_at_us)),
		UnreachableFor:  duration(uint64(plain.unreachable_for_us)),
		Error:           C.GoString(plain.error),
	}
}

// longMessage is a buffer for the message on an entry or a document.
type longMessage [4096]C.char

func (m *longMessage) err(status C.polylimit_status) error {
	if status == C.POLYLIMIT_OK {
		return nil
	}
	return &Error{Kind: Kind(status), Message: C.GoString(&m[0])}
}

// SetDocument replaces the document that WithDocument has given, in TOML or JSON; its entries stay. A document that cannot be used is
// ErrInvalidArgument, with the line, the column, what was read and what is allowed; the previous one stays active.
func (a Admin) SetDocument(document string) (ConfigurationStatus, error) {
	l := a.limiter
	if err := l.enter(); err != nil {
		return ConfigurationStatus{}, err
	}
	defer l.leave()
	text, err := cText(document, "document")
	if err != nil {
		return ConfigurationStatus{}, err
	}
	defer free(text)
	var plain *C.polylimit_configuration
	var failure longMessage
	if err := failure.err(C.polylimit_admin_set_document(l.limiter, text, &plain, &failure[0], C.size_t(len(failure)))); err != nil {
		return ConfigurationStatus{}, err
	}
	return configurationOf(plain), nil
}

// SetEntry sets an entry: "deny ITEM", "allow ITEM" or "override POLICY KEY". The value is a JSON object as a string, or anything that
// encodes as one, such as a map; it may have "until", "by", "why" and, for an override, "numbers". nil is an empty object.
//
// It fails with ErrInvalidArgument when the entry or its value cannot be read, or the limiter's source has no entries, and with
// ErrStoreUnavailable when Redis does not answer: the entry may have been set.
func (a Admin) SetEntry(ctx context.Context, entry string, value any) (ConfigurationStatus, error) {
	text, isText := value.(string)
	if value != nil && !isText {
		encoded, err := json.Marshal(value)
		if err != nil {
			return ConfigurationStatus{}, invalid("the value of an entry is no JSON: " + err.Error())
		}
		text, isText = string(encoded), true
	}
	return a.limiter.change(ctx, change{operation: C.POLYLIMIT_SET_ENTRY, entry: entry, value: text, hasValue: isText})
}

// DeleteEntry deletes an entry; one that is not there is no error. It fails as SetEntry does.
func (a Admin) DeleteEntry(ctx context.Context, entry string) (ConfigurationStatus, error) {
	return a.limiter.change(ctx, change{operation: C.POLYLIMIT_DELETE_ENTRY, entry: entry})
}

// PublishOptions says how a document is published.
type PublishOptions struct {
	// ExpectedVersion is the version of the document that this one replaces; nil replaces whichever is there.
	ExpectedVersion *uint64
	// By is the author's name, up to 256 bytes, and Why the reason, up to 1,024 bytes.
	By, Why string
}

// Publish publishes a document, in TOML or JSON, to the Redis store that this limiter's configuration comes from, and waits until it is
// active here. Every process that follows the store takes it within a second.
//
// It fails with ErrInvalidArgument when the document cannot be used, another version than the expected one is there, or the document does
// not come from Redis, and with ErrStoreUnavailable when Redis does not answer: the document may have been published.
func (a Admin) Publish(ctx context.Context, document string, options PublishOptions) (ConfigurationStatus, error) {
	publish := change{operation: C.POLYLIMIT_PUBLISH, document: document, by: options.By, why: options.Why}
	if options.ExpectedVersion != nil {
		publish.hasVersion, publish.version = 1, *options.ExpectedVersion
	}
	return a.limiter.change(ctx, publish)
}

// WaitForVersion waits until this version of the configuration, or a later one, is active; it fails with ErrStoreUnavailable after the
// timeout.
func (a Admin) WaitForVersion(ctx context.Context, version uint64, timeout time.Duration) (ConfigurationStatus, error) {
	if err := checkDuration("timeout", timeout); err != nil {
		return ConfigurationStatus{}, err
	}
	return a.limiter.change(ctx, change{operation: C.POLYLIMIT_WAIT_FOR_VERSION, version: version, timeout: timeout})
}

// change is a change of the configuration, or the wait for one.
type change struct {
	operation                       C.uint32_t
	entry, value, document, by, why string
	hasValue                        bool
	version                         uint64
	hasVersion                      C.uint32_t
	timeout                         time.Duration
}

// change makes a change on the calling thread: changes are rare.
func (l *Limiter) change(ctx context.Context, asked change) (ConfigurationStatus, error) {
	if err := l.enter(); err != nil {
		return ConfigurationStatus{}, err
	}
	defer l.leave()
	if err := ctx.Err(); err != nil {
		return ConfigurationStatus{}, err
	}
	var plain C.polylimit_change
	plain.size = C.uint32_t(unsafe.Sizeof(plain))
	plain.operation = asked.operation
	plain.version, plain.has_version = C.uint64_t(asked.version), asked.hasVersion
	plain.timeout_us = C.uint64_t(microseconds(asked.timeout))
	texts := []struct {
		place      **C.char
		text, name string
	}{
		{&plain.entry, asked.entry, "entry"},
		{&plain.value, asked.value, "value"},
		{&plain.document, asked.document, "document"},
		{&plain.by, asked.by, "by"},
		{&plain.why, asked.why, "why"},
	}
	for _, text := range texts {
		if strings.IndexByte(text.text, 0) >= 0 {
			return ConfigurationStatus{}, invalid(text.name + " contains a NUL")
		}
	}
	for _, text := range texts {
		if text.place == &plain.value && !asked.hasValue {
			continue
		}
		*text.place = C.CString(text.text)
		defer free(*text.place)
	}
	var stopped atomic.Uint32
	defer context.AfterFunc(ctx, func() { stopped.Store(1) })()
	var configuration *C.polylimit_configuration
	var failure longMessage
	status := C.polylimit_admin_change(l.limiter, &plain, (*C.uint32_t)(unsafe.Pointer(&stopped)), &configuration, &failure[0],
		C.size_t(len(failure)))
	if status == C.POLYLIMIT_PENDING {
		return ConfigurationStatus{}, ctx.Err()
	}
	if err := failure.err(status); err != nil {
		return ConfigurationStatus{}, err
	}
	return configurationOf(configuration), nil
}

// CandidateCounts is how the candidate of a policy compares with the effective quotas: checks since the quotas of either changed.
type CandidateCounts struct {
	BothAllow, OnlyLiveDenies, OnlyCandidateDenies, BothDeny uint64
}

// CandidateCounts returns how the candidate of a policy has compared with its quotas in this process; false for a policy without one.
func (a Admin) CandidateCounts(policy string) (CandidateCounts, bool) {
	l := a.limiter
	defer runtime.KeepAlive(l)
	name, err := cText(policy, "policy")
	if err != nil {
		return CandidateCounts{}, false
	}
	defer free(name)
	var counts C.polylimit_candidate_counts
	counts.size = C.uint32_t(unsafe.Sizeof(counts))
	status := C.polylimit_admin_candidate_counts(l.limiter, name, &counts, nil, 0)
	return CandidateCounts{
		BothAllow:           uint64(counts.both_allow),
		OnlyLiveDenies:      uint64(counts.only_live_denies),
		OnlyCandidateDenies: uint64(counts.only_candidate_denies),
		BothDeny:            uint64(counts.both_deny),
	}, status == C.POLYLIMIT_OK && counts.has_candidate != 0
}
