package polylimit_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// prefixed is the URL of the Redis server, with another prefix of the keys in each call.
func prefixed(t *testing.T) string {
	redis := os.Getenv("REDIS_URL")
	if redis == "" {
		t.Fatal("REDIS_URL names no server: bindings/go/test starts one")
	}
	return fmt.Sprintf("%s&prefix=go-%d", redis, time.Now().UnixNano())
}

// bySource checks one key until its decisions have come from a source, and counts those that were admitted.
func bySource(t *testing.T, limiter *polylimit.Limiter, request polylimit.Request, source string) (admitted uint64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		decision := must(limiter.Check(ctx, request))(t)
		if decision.Allowed {
			admitted++
		}
		if decision.Source == source {
			return admitted
		}
	}
	t.Fatalf("no decision came from %s", source)
	return 0
}

func TestLeaseDecidesInThisProcessAndAdmitsNoMoreThanTheQuota(t *testing.T) {
	const quota = 5000
	url := prefixed(t)
	request := polylimit.Key("busy").Policy("api")
	var admitted uint64
	for range 2 {
		limiter := open(t, url, polylimit.WithPolicy("api", "5000/day fixed_window"), polylimit.WithLease("api", "100"))
		admitted += bySource(t, limiter, request, "lease")
		if leased := must(limiter.Stats())(t)["leased"]; leased == 0 {
			t.Error("no decision of a lease is counted")
		}
		// It gives back what it has not spent.
		limiter.Close()
	}
	unleased := open(t, url, polylimit.WithPolicy("api", "5000/day fixed_window"))
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		remaining := must(unleased.Peek(ctx, request))(t).Remaining
		if remaining+admitted == quota {
			return
		}
		if remaining+admitted > quota || time.Now().After(deadline) {
			t.Fatalf("%d were admitted and %d of %d are left", admitted, remaining, quota)
		}
	}
}

func TestLeaseIsRefusedWhereAQuotaCannotBeLeased(t *testing.T) {
	_, err := polylimit.Open(prefixed(t), polylimit.WithPolicy("log", "5/day sliding_log"), polylimit.WithLease("log", "auto"))
	if err == nil {
		t.Error("a sliding_log was leased")
	}
}

func TestCachedDenialEndsWithARefund(t *testing.T) {
	limiter := open(t, prefixed(t), polylimit.WithPolicy("one", "1/day"), polylimit.WithOption("denial_cache_max", "1h"))
	request := polylimit.Key("hot").Policy("one")
	if admitted := bySource(t, limiter, request, "denial_cache"); admitted != 1 {
		t.Errorf("%d were admitted", admitted)
	}
	if denied := must(limiter.Check(ctx, request))(t); denied.Allowed || denied.RetryAfter <= 0 {
		t.Errorf("%+v", denied)
	}
	must(limiter.Refund(ctx, request))(t)
	if decision := must(limiter.Check(ctx, request))(t); !decision.Allowed || decision.Source != "store" {
		t.Errorf("%+v", decision)
	}
}

func TestDenialsAreNotCachedWhenTheSettingIsZero(t *testing.T) {
	limiter := open(t, prefixed(t), polylimit.WithPolicy("one", "1/day"), polylimit.WithOption("denial_cache_max", "0"))
	for at := range 50 {
		decision := must(limiter.Check(ctx, polylimit.Key("hot").Policy("one")))(t)
		if decision.Allowed != (at == 0) || decision.Source != "store" {
			t.Fatalf("%d: %+v", at, decision)
		}
	}
}
