package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"polylimit.dev/polylimit"
)

// answer does an operation, and gives what it answered in the form in which a case expects it.
func answer(limiter *polylimit.Limiter, op operation, request polylimit.Request) (map[string]any, error) {
	ctx, ttl := context.Background(), time.Duration(op.TTLUs)*time.Microsecond
	switch op.Op {
	case "check":
		return decision(limiter.Check(ctx, request))
	case "peek":
		return decision(limiter.Peek(ctx, request))
	case "take":
		usage, err := limiter.Take(ctx, request)
		answer, err := usageAnswer(usage, err)
		if len(answer) > 0 {
			answer["taken"] = usage.Taken
		}
		return answer, err
	case "charge":
		return usageAnswer(limiter.Charge(ctx, request))
	case "refund":
		return usageAnswer(limiter.Refund(ctx, request))
	case "reset":
		return usageAnswer(limiter.Reset(ctx, request))
	case "reserve":
		reservation, err := limiter.Reserve(ctx, request, polylimit.ReserveID(op.ID), polylimit.ReserveTTL(ttl),
			polylimit.ReserveMaxAge(0), polylimit.ReserveRemember(time.Duration(op.RememberUs)*time.Microsecond))
		if err != nil {
			return nil, err
		}
		// It stays as the case leaves it.
		reservation.Detach()
		return decision(reservation.Decision(), nil)
	case "commit":
		return foundAnswer(limiter.Commit(ctx, request, op.ID, op.cost()))
	case "cancel":
		return foundAnswer(limiter.Cancel(ctx, request, op.ID))
	case "renew":
		return foundAnswer(limiter.Renew(ctx, request, op.ID, ttl))
	}
	return nil, fmt.Errorf("operation %q is not known", op.Op)
}

// isOutage reports whether an outage policy answered, which must not look as if the store did.
func isOutage(source string) bool {
	return source == "fallback" || source == "allow" || source == "deny"
}

func decision(decision polylimit.Decision, err error) (map[string]any, error) {
	if err != nil || isOutage(decision.Source) {
		return map[string]any{}, err
	}
	answer := map[string]any{
		"allowed":        decision.Allowed,
		"remaining":      decision.Remaining,
		"retry_after_us": nil,
		"reset_after_us": decision.ResetAfterUs(),
		"delay_us":       us(decision.Delay),
		"over":           decision.Over,
	}
	if decision.RetryAfter != polylimit.Never {
		answer["retry_after_us"] = us(decision.RetryAfter)
	}
	return answer, nil
}

func usageAnswer(usage polylimit.Usage, err error) (map[string]any, error) {
	if err != nil || isOutage(usage.Source) {
		return map[string]any{}, err
	}
	return map[string]any{"remaining": usage.Remaining, "reset_after_us": usage.ResetAfterUs()}, nil
}

func foundAnswer(usage polylimit.Usage, err error) (map[string]any, error) {
	answer, err := usageAnswer(usage, err)
	if len(answer) > 0 {
		answer["found"] = usage.Found
		answer["repeated"] = usage.Repeated
	}
	return answer, err
}

func us(duration time.Duration) int64 { return int64(duration / time.Microsecond) }

// agrees compares what was expected with what came, number by number.
func agrees(expected json.RawMessage, got map[string]any) (bool, error) {
	wanted, err := canonical(expected)
	if err != nil {
		return false, err
	}
	// Only cases of format 2 expect the units of an excess.
	if !bytes.Contains(wanted, []byte(`"over":`)) {
		delete(got, "over")
	}
	// Only cases of commits that are remembered expect whether they are repeated.
	if !bytes.Contains(wanted, []byte(`"repeated":`)) {
		delete(got, "repeated")
	}
	came, err := json.Marshal(got)
	if err != nil {
		return false, err
	}
	given, err := canonical(came)
	return bytes.Equal(wanted, given), err
}

// canonical is an object with its fields in order and its numbers as they were written.
func canonical(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
