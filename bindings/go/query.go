package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
)

// asked submits a query, waits for its report and reads it.
func asked[T any](ctx context.Context, l *Limiter,
	submit func(tag C.uint64_t, report **C.polylimit_report, result *C.polylimit_result) C.polylimit_status) (T, error) {
	var nothing T
	if err := l.enter(); err != nil {
		return nothing, err
	}
	defer l.leave()
	if err := ctx.Err(); err != nil {
		return nothing, err
	}
	var report *C.polylimit_report
	var result C.polylimit_result
	tag := l.completions.tags.Add(1)
	status := submit(C.uint64_t(tag), &report, &result)
	err := resultError(status, &result)
	if status == C.POLYLIMIT_PENDING {
		err = l.completions.await(ctx, tag, &result)
	}
	defer C.polylimit_report_free(report)
	if err != nil {
		return nothing, err
	}
	return reportOf[T](report)
}

// made reads a report that needs no waiting.
func made[T any](make func(report **C.polylimit_report, failure *message) C.polylimit_status) (T, error) {
	var report *C.polylimit_report
	var failure message
	status := make(&report, &failure)
	defer C.polylimit_report_free(report)
	if err := failure.err(status); err != nil {
		var nothing T
		return nothing, err
	}
	return reportOf[T](report)
}

func reportOf[T any](report *C.polylimit_report) (T, error) {
	var read T
	if err := json.Unmarshal([]byte(C.GoString(C.polylimit_report_json(report))), &read); err != nil {
		return read, &Error{Kind: ErrInternal, Message: "a report cannot be read: " + err.Error()}
	}
	return read, nil
}

// optionalText copies a text for C; an empty one is NULL.
func optionalText(text, name string) (*C.char, error) {
	if text == "" {
		return nil, nil
	}
	return cText(text, name)
}
