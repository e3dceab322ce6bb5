package polylimit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

func TestHeadroomIsLeftForOthers(t *testing.T) {
	limiter, _ := withClock(t, "10/minute fixed_window excess=1")
	decision := must(limiter.Check(ctx, polylimit.Key("k").Cost(8).Headroom(25)))(t)
	if !decision.Allowed || decision.Remaining != 0 || decision.Cause != "" {
		t.Errorf("%+v", decision)
	}
	requests := []polylimit.Request{polylimit.Key("k").Headroom(25), polylimit.Key("other").Headroom(50).Plan("gold")}
	together := must(limiter.CheckTogether(ctx, requests))(t)
	if together[0].Allowed || together[0].Cause != "quota" || !together[1].Allowed {
		t.Errorf("%+v", together)
	}
	reservation := must(limiter.Reserve(ctx, polylimit.Key("k").Headroom(25)))(t)
	if reservation.Allowed() {
		t.Errorf("%+v", reservation.Decision())
	}
	decision = must(limiter.Check(ctx, polylimit.Key("k").Cost(3)))(t)
	if !decision.Allowed || decision.Over != 1 || !decision.Crossed || decision.Elastic || decision.Shadowed {
		t.Errorf("%+v", decision)
	}
	for _, percent := range []int{-1, 100, 256, 1 << 40} {
		if _, err := limiter.Check(ctx, polylimit.Key("k").Headroom(percent)); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%d %%: %v", percent, err)
		}
	}
	if _, err := limiter.Peek(ctx, polylimit.Key("k").Plan("a\x00b")); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
	// A plan that does not fit on the stack together with its policy.
	if _, err := limiter.Peek(ctx, polylimit.Key("k").Policy("api").Plan(strings.Repeat("p", 200))); err != nil {
		t.Error(err)
	}
}

func TestBlockedKeyIsDeniedUntilThen(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, polylimit.WithPolicy("api", "10/minute"))
			key := polylimit.Key("blocked " + time.Now().String())
			usage := must(limiter.Admin().Block(ctx, key, time.Hour))(t)
			if usage.Remaining != 0 || usage.ResetAfter < 59*time.Minute {
				t.Errorf("%+v", usage)
			}
			decision := must(limiter.Check(ctx, key))(t)
			if decision.Allowed || decision.Cause != "blocked" || decision.RetryAfter < 59*time.Minute {
				t.Errorf("%+v", decision)
			}
			must(limiter.Admin().Unblock(ctx, key))(t)
			if decision := must(limiter.Check(ctx, key))(t); !decision.Allowed || decision.Remaining != 9 {
				t.Errorf("%+v", decision)
			}
			for _, duration := range []time.Duration{-time.Second, time.Microsecond, 367 * 24 * time.Hour} {
				if _, err := limiter.Admin().Block(ctx, key, duration); !errors.Is(err, polylimit.ErrInvalidArgument) {
					t.Errorf("%v: %v", duration, err)
				}
			}
		})
	}
}
