package polylimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

var ctx = context.Background()

func start() time.Time { return time.UnixMicro(1_700_000_000_000_000) }

// must returns a value, and panics if there is an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func open(t testing.TB, url string, options ...polylimit.Option) *polylimit.Limiter {
	t.Helper()
	limiter := must(polylimit.Open(url, options...))(t)
	t.Cleanup(func() { limiter.Close() })
	return limiter
}

func withClock(t testing.TB, quotas string) (*polylimit.Limiter, *polylimit.ManualClock) {
	clock := must(polylimit.NewManualClock(start()))(t)
	return open(t, "memory:", polylimit.WithPolicy("api", quotas), polylimit.WithClock(clock)), clock
}

// stores are the URLs of every kind of store.
func stores(t testing.TB) map[string]string {
	redis := os.Getenv("REDIS_URL")
	if redis == "" {
		t.Fatal("REDIS_URL names no server: bindings/go/test starts one")
	}
	return map[string]string{"memory": "memory:", "local": "file://" + t.TempDir() + "/store?size=1MiB", "redis": redis}
}

func TestDecisionHasExactNumbers(t *testing.T) {
	limiter, clock := withClock(t, "3/minute token_bucket; 5/hour token_bucket")
	decision := must(limiter.Check(ctx, polylimit.Key("user:42").Cost(3)))(t)
	if !decision.Allowed || decision.Remaining != 0 || decision.Source != "store" || decision.Degraded != "" {
		t.Errorf("%+v", decision)
	}
	quotas := []polylimit.QuotaUsage{
		{Limit: 3, Remaining: 0, ResetAfter: time.Minute, Allowed: true},
		{Limit: 5, Remaining: 2, ResetAfter: 36 * time.Minute, Allowed: true},
	}
	if !slices.Equal(decision.Quotas(), quotas) {
		t.Errorf("%+v", decision.Quotas())
	}
	decision = must(limiter.Check(ctx, polylimit.Key("user:42")))(t)
	if decision.Allowed || decision.RetryAfter != 20*time.Second || decision.ResetAfter != 36*time.Minute {
		t.Errorf("%+v", decision)
	}
	if never := must(limiter.Peek(ctx, polylimit.Key("user:42").Cost(4)))(t); never.RetryAfter != polylimit.Never {
		t.Errorf("%+v", never)
	}
	if err := clock.Advance(20 * time.Second); err != nil || !clock.Now().Equal(start().Add(20*time.Second)) {
		t.Error(err, clock.Now())
	}
	if decision = must(limiter.Check(ctx, polylimit.Request{}.Policy("api")))(t); decision.Remaining != 2 {
		t.Errorf("a request that Key did not make costs 1: %+v", decision)
	}
}

func TestDecisionTellsWhichQuotaDenied(t *testing.T) {
	type verdict struct {
		allowed    bool
		retryAfter time.Duration
	}
	limiter, _ := withClock(t, "5/hour fixed_window; 2/minute fixed_window")
	admits, never := verdict{allowed: true}, verdict{retryAfter: polylimit.Never}
	for _, step := range []struct {
		cost     int64
		expected []verdict
	}{
		{2, []verdict{admits, admits}},
		{1, []verdict{admits, {retryAfter: time.Minute}}},
		{4, []verdict{{retryAfter: time.Hour}, never}},
	} {
		decision := must(limiter.Check(ctx, polylimit.Key("user:42").Cost(step.cost)))(t)
		var found []verdict
		for _, quota := range decision.Quotas() {
			found = append(found, verdict{quota.Allowed, quota.RetryAfter})
		}
		if !slices.Equal(found, step.expected) {
			t.Errorf("%d: %+v", step.cost, found)
		}
		usage := must(limiter.Refund(ctx, polylimit.Key("other")))(t)
		after := decision.After(usage)
		if left := after.Quotas()[1]; left.Allowed != found[1].allowed || left.Remaining != 2 {
			t.Errorf("%d: %+v", step.cost, left)
		}
		if quotas := usage.Quotas(); !quotas[1].Allowed || quotas[1].RetryAfter != 0 {
			t.Errorf("%+v", quotas)
		}
	}
}

func TestUsageHasExactNumbers(t *testing.T) {
	limiter, _ := withClock(t, "10/minute fixed_window")
	key := polylimit.Key("k")
	for _, step := range []struct {
		do               func(context.Context, polylimit.Request) (polylimit.Usage, error)
		cost             int64
		taken, remaining uint64
	}{
		{limiter.Take, 4, 4, 6}, {limiter.Charge, 20, 0, 0}, {limiter.Refund, 15, 0, 1}, {limiter.Take, 4, 1, 0}, {limiter.Reset, 0, 0, 10},
	} {
		usage := must(step.do(ctx, key.Cost(step.cost)))(t)
		if usage.Taken != step.taken || usage.Remaining != step.remaining || usage.Quotas()[0].Limit != 10 {
			t.Errorf("%+v: %+v", step, usage)
		}
	}
}

func TestCostOutOfRangeIsRefused(t *testing.T) {
	limiter, _ := withClock(t, "10/minute")
	for _, cost := range []int64{-1, math.MinInt64, math.MaxInt64, 1_000_000_000_001} {
		for name, do := range map[string]func() error{
			"check":   func() error { _, err := limiter.Check(ctx, polylimit.Key("k").Cost(cost)); return err },
			"take":    func() error { _, err := limiter.Take(ctx, polylimit.Key("k").Cost(cost)); return err },
			"acquire": func() error { _, err := limiter.Acquire(ctx, polylimit.Key("k").Cost(cost), time.Second); return err },
			"many":    func() error { return limiter.CheckMany(ctx, []polylimit.Request{polylimit.Key("k").Cost(cost)})[0].Err },
		} {
			if err := do(); !errors.Is(err, polylimit.ErrInvalidArgument) {
				t.Errorf("%s of %d: %v", name, cost, err)
			}
		}
	}
	if peeked := must(limiter.Peek(ctx, polylimit.Key("k")))(t); peeked.Remaining != 10 {
		t.Errorf("%+v", peeked)
	}
}

func TestErrorsIsFindsEveryKind(t *testing.T) {
	kinds := map[polylimit.Kind]string{
		polylimit.ErrInvalidArgument: "invalid_argument", polylimit.ErrStoreUnavailable: "store_unavailable",
		polylimit.ErrStoreFailed: "store_failed", polylimit.ErrClosed: "closed", polylimit.ErrInternal: "internal",
	}
	for number := polylimit.Kind(1); !strings.HasPrefix(number.Code(), "status "); number++ {
		if kinds[number] != number.Code() {
			t.Errorf("kind %d is %s", int(number), number.Code())
		}
		err := error(&polylimit.Error{Kind: number, Message: "x"})
		for other := range kinds {
			if errors.Is(err, other) != (other == number) {
				t.Errorf("%v is %v", err, other)
			}
		}
		delete(kinds, number)
	}
	if len(kinds) != 0 {
		t.Errorf("C does not know %v", kinds)
	}
}

func TestErrorNamesTheInvalidArgument(t *testing.T) {
	for _, wrong := range [][]polylimit.Option{
		{polylimit.WithPolicy("a b", "1/s")}, {polylimit.WithPolicy("a", "1 per decade")}, {polylimit.WithOutage("a", "deny")},
		{polylimit.WithOption("colour", "red")},
		{polylimit.WithPolicy("a", "1/s\x00")}, {polylimit.WithOption("deadline", "1")},
	} {
		if _, err := polylimit.Open("memory:", wrong...); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	limiter, _ := withClock(t, "1/s")
	for _, policy := range []string{"nobody", "a\x00", strings.Repeat("x", 1000)} {
		if _, err := limiter.Check(ctx, polylimit.Key("k").Policy(policy)); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%q: %v", policy, err)
		}
	}
	if _, err := polylimit.Open("redis://:hunter2@localhost:0"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	unavailable := open(t, "redis://127.0.0.1:1")
	if err := unavailable.Ready(ctx, time.Millisecond); !errors.Is(err, polylimit.ErrStoreUnavailable) {
		t.Error(err)
	}
}

func TestSetPolicyChangesAPolicy(t *testing.T) {
	limiter, _ := withClock(t, "100/min;10/s token_bucket burst=20")
	if quotas := must(limiter.Policy(""))(t); quotas != "100/minute; 10/second token_bucket burst=20" {
		t.Error(quotas)
	}
	if err := limiter.SetPolicy("api", "7/minute"); err != nil {
		t.Fatal(err)
	}
	one := must(limiter.Check(ctx, polylimit.Key("k").Policy("5/s; 9/m")))(t)
	if must(limiter.Policy("api"))(t) != "7/minute" || len(one.Quotas()) != 2 {
		t.Errorf("%+v", one)
	}
	if err := limiter.Admin().SetCredentials("", "secret"); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
	if findings := must(limiter.Admin().Doctor(ctx))(t); len(findings) != 0 {
		t.Error(findings)
	}
	if stats := must(limiter.Stats())(t); len(stats) == 0 {
		t.Error("there are no stats")
	}
}

func TestDecisionBecomesFieldsAndAProblem(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "1/minute"))
	name := must(limiter.PolicyFor("", ""))(t)
	if name != "api" {
		t.Fatalf("requests without a policy use %q", name)
	}
	var outcome polylimit.Outcome
	for range 2 {
		outcome = polylimit.Outcome{Policy: name, Decision: must(limiter.Check(ctx, polylimit.Key("k")))(t)}
	}
	problem := must(limiter.Problem(1, true, outcome))(t)
	if problem == nil || problem.Status != 429 || !strings.Contains(problem.Body, "quota-exceeded") {
		t.Fatalf("the response to a denial is %+v", problem)
	}
	fields := must(limiter.Headers("", outcome))(t)
	if len(fields) != 3 || fields[2].Name != "retry-after" {
		t.Fatalf("the fields of a denial are %+v", fields)
	}
}

func TestQuotaHasNumbersAndText(t *testing.T) {
	quota := must(polylimit.ParseQuota("50/day token_bucket burst=200 step=50"))(t)
	if quota != (polylimit.Quota{Limit: 50, Period: 24 * time.Hour, Algorithm: polylimit.TokenBucket, Burst: 200, Step: 50}) {
		t.Errorf("%+v", quota)
	}
	if text := must(quota.Text())(t); text != "50/day token_bucket burst=200 step=50" {
		t.Error(text)
	}
	for _, wrong := range []polylimit.Quota{{}, {Limit: 1, Period: time.Nanosecond}, {Limit: 1, Period: -time.Second}, {Limit: 1, Period: time.Second, Algorithm: 9}} {
		if text, err := wrong.Text(); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%+v: %q %v", wrong, text, err)
		}
	}
	if _, err := polylimit.ParseQuota("1/fortnight"); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestExactlyTheLimitIsAdmitted(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, polylimit.WithPolicy("go", "5000/day fixed_window"))
			var admitted atomic.Int64
			var group sync.WaitGroup
			for range 64 {
				group.Go(func() {
					for range 150 {
						decision := must(limiter.Check(ctx, polylimit.Key("k")))(t)
						if decision.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			group.Wait()
			if admitted.Load() != 5000 {
				t.Errorf("%d were admitted", admitted.Load())
			}
			requests := make([]polylimit.Request, 300)
			for at := range requests {
				requests[at] = polylimit.Key("many").Cost(20)
			}
			allowed := 0
			for _, result := range limiter.CheckMany(ctx, requests) {
				if result.Err != nil {
					t.Fatal(result.Err)
				}
				if result.Decision.Allowed {
					allowed++
				}
			}
			if allowed != 250 {
				t.Errorf("%d of the batch were admitted", allowed)
			}
		})
	}
}

// threads is the number of threads of the process.
func threads(t *testing.T) int {
	return len(must(os.ReadDir("/proc/self/task"))(t))
}

func TestCheckTogetherSpendsAllOrNothing(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, polylimit.WithPolicy("wide", "900/day fixed_window"))
			both := []polylimit.Request{polylimit.Key("together").Policy("wide"), polylimit.Key("together").Policy("100/day fixed_window")}
			var admitted atomic.Int64
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					for range 20 {
						decisions := must(limiter.CheckTogether(ctx, both))(t)
						if len(decisions) != 2 || !decisions[0].Allowed {
							t.Errorf("%+v", decisions)
						} else if decisions[1].Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			group.Wait()
			left := must(limiter.Peek(ctx, both[0]))(t)
			if admitted.Load() != 100 || left.Remaining != 800 {
				t.Errorf("%d were admitted, %d are left", admitted.Load(), left.Remaining)
			}
			if decisions := must(limiter.CheckTogether(ctx, nil))(t); len(decisions) != 0 {
				t.Errorf("%+v", decisions)
			}
			peeked := must(limiter.PeekTogether(ctx, both))(t)
			if len(peeked) != 2 || !peeked[0].Allowed || peeked[0].Remaining != 800 || peeked[1].Allowed {
				t.Errorf("%+v", peeked)
			}
			for _, wrong := range []polylimit.Request{both[0].Policy("unknown"), both[0].Policy("a\x00b"), both[0].Cost(-1)} {
				requests := []polylimit.Request{both[0], wrong}
				if _, err := limiter.CheckTogether(ctx, requests); !errors.Is(err, polylimit.ErrInvalidArgument) {
					t.Error(err)
				}
				if _, err := limiter.PeekTogether(ctx, requests); !errors.Is(err, polylimit.ErrInvalidArgument) {
					t.Error(err)
				}
				if _, err := limiter.ReserveTogether(ctx, requests); !errors.Is(err, polylimit.ErrInvalidArgument) {
					t.Error(err)
				}
			}
			if now := must(limiter.Peek(ctx, both[0]))(t); now.Remaining != left.Remaining {
				t.Errorf("mistakes have spent: %d are left", now.Remaining)
			}
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := limiter.CheckTogether(cancelled, both); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestWaitingGoroutinesBlockNoThreads(t *testing.T) {
	const waiting = 2000
	limiter, clock := withClock(t, "1/minute fixed_window")
	if !must(limiter.Check(ctx, polylimit.Key("k")))(t).Allowed {
		t.Fatal("denied")
	}
	before := threads(t)
	done := make(chan error, waiting)
	for range waiting {
		go func() {
			decision, err := limiter.Acquire(ctx, polylimit.Key("k"), 365*24*time.Hour)
			if err == nil && !decision.Allowed {
				err = errors.New("denied")
			}
			done <- err
		}()
	}
	for range waiting {
		// Every minute of the manual clock admits one of them.
		for {
			if err := clock.Advance(time.Minute); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Millisecond):
				continue
			}
			break
		}
		// Go starts some threads for concurrent calls to C, more of them on a busy machine. The limit is half of one thread for
		// each waiting goroutine.
		if now := threads(t); now > before+waiting/2 {
			t.Fatalf("%d threads, and %d before", now, before)
		}
	}
}

func TestCancelledAcquireLeavesTheWaitQueue(t *testing.T) {
	limiter, clock := withClock(t, "1/minute fixed_window")
	if !must(limiter.Check(ctx, polylimit.Key("k")))(t).Allowed {
		t.Fatal("denied")
	}
	cancelled, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := limiter.Acquire(cancelled, polylimit.Key("k"), time.Hour)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := clock.Advance(time.Minute); err != nil {
		t.Fatal(err)
	}
	if !must(limiter.Check(ctx, polylimit.Key("k")))(t).Allowed {
		t.Error("the cancelled Acquire has spent")
	}
	if _, err := limiter.Check(cancelled, polylimit.Key("k")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	soon, cancelSoon := context.WithTimeout(ctx, time.Second)
	defer cancelSoon()
	if decision := must(limiter.Acquire(soon, polylimit.Key("k"), time.Hour))(t); decision.Allowed {
		t.Error("a minute fits into a second")
	}
}

func TestCancelledAcquireRefundsItsUnitsDuringItsDelay(t *testing.T) {
	limiter, _ := withClock(t, "2/minute leaky_bucket burst=4")
	remaining := func() uint64 { return must(limiter.Peek(ctx, polylimit.Key("k")))(t).Remaining }
	if !must(limiter.Check(ctx, polylimit.Key("k")))(t).Allowed {
		t.Fatal("denied")
	}
	cancelled, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := limiter.Acquire(cancelled, polylimit.Key("k"), time.Hour)
		failed <- err
	}()
	for remaining() != 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := remaining(); left != 3 {
		t.Error(left)
	}
}

// A goroutine without concurrent operations waits on its own thread; cancelling its context still ends the wait.
func TestCancelledContextEndsABlockingCheck(t *testing.T) {
	silent := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	limiter := open(t, "redis://"+silent.Addr().String()+"?deadline=60s", polylimit.WithPolicy("api", "1/day"))
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if decision, err := limiter.Check(soon, polylimit.Key("k")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v %v", decision, err)
	}
}

func TestInvalidCostIsRefused(t *testing.T) {
	limiter := must(polylimit.Open("memory:", polylimit.WithPolicy("api", "9/minute")))(t)
	defer limiter.Close()
	costs := []int64{-1, math.MinInt64, math.MaxInt64, 1e12 + 1}
	for _, cost := range costs {
		if _, err := limiter.Check(ctx, polylimit.Key("k").Cost(cost)); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
	if left := must(limiter.Peek(ctx, polylimit.Key("k")))(t).Remaining; left != 9 {
		t.Fatalf("%d left: something was spent", left)
	}
	record(t, "bindings/go/limiter_test.go", "S4", "Go", fmt.Sprintf("measured=%d costs: invalid_argument", len(costs)))
}

func TestNumbersAreReportedAsTheyWereWritten(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "9/hour"))
	guard := must(limiter.NewGuard(polylimit.GuardOptions{}, polylimit.AddressRules{}))(t)
	key := polylimit.Key("k")
	for expected, run := range map[string]func() error{
		"polylimit: cost is -1: allowed is 0 to 10^12 units": func() error {
			_, err := limiter.Check(ctx, key.Cost(-1))
			return err
		},
		"polylimit: cost is -9223372036854775808: allowed is 0 to 10^12 units": func() error {
			_, err := limiter.CheckTogether(ctx, []polylimit.Request{key.Cost(math.MinInt64)})
			return err
		},
		"polylimit: cost is -2: allowed is 0 to 10^12 units": func() error {
			facts := polylimit.RequestFacts{Key: "k", Cost: -2, HasCost: true}
			_, err := guard.Check(ctx, nil, &facts, nil)
			return err
		},
		"polylimit: headroom is -1 %: allowed is 0 to 99 %": func() error {
			_, err := limiter.Check(ctx, key.Headroom(-1))
			return err
		},
		"polylimit: timeout is -1s: allowed is 0 or more": func() error {
			_, err := limiter.Acquire(ctx, key, -time.Second)
			return err
		},
		"polylimit: ttl is -5s: allowed is 0 or more": func() error {
			_, err := limiter.Renew(ctx, key, "id", -5*time.Second)
			return err
		},
		"polylimit: ttl is -1ms: allowed is 0 or more": func() error {
			_, err := limiter.Reserve(ctx, key, polylimit.ReserveTTL(-time.Millisecond))
			return err
		},
		"polylimit: Base is -1s: allowed is 0 or more": func() error {
			_, err := polylimit.NewThrottle(&polylimit.Backoff{Base: -time.Second})
			return err
		},
	} {
		if err := run(); err == nil || err.Error() != expected {
			t.Errorf("%v, and not %s", err, expected)
		}
	}
}

func TestValuesHaveATextWithoutSecrets(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "2/hour token_bucket"))
	allowed := must(limiter.Check(ctx, polylimit.Key("k").Cost(2)))(t)
	denied := must(limiter.Check(ctx, polylimit.Key("k")))(t)
	never := must(limiter.Check(ctx, polylimit.Key("k").Cost(3)))(t)
	for text, expected := range map[string]string{
		fmt.Sprint(allowed): "allowed, 0 remaining, reset after 1h0m0s",
		fmt.Sprint(denied):  "denied (quota), retry after ",
		fmt.Sprint(never):   "denied (quota), never admitted, 0 remaining",
		fmt.Sprint(must(limiter.Take(ctx, polylimit.Key("other").Cost(9)))(t)): "taken 2, 0 remaining",
		fmt.Sprint(limiter): "limiter on memory",
		fmt.Sprintf("%v", polylimit.Key("a secret").Policy("api").Cost(3).Headroom(20)): `request of 3 units, policy "api", headroom 20%`,
		fmt.Sprintf("%v", polylimit.WithOption("password", "a secret")):                 "password",
	} {
		if !strings.HasPrefix(text, expected) || strings.Contains(text, "secret") {
			t.Errorf("%q, and not %q", text, expected)
		}
	}
}
