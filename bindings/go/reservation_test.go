package polylimit_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// left is what remains of the key "k".
func left(t testing.TB, limiter *polylimit.Limiter) uint64 {
	t.Helper()
	return must(limiter.Peek(ctx, polylimit.Key("k")))(t).Remaining
}

func advance(t testing.TB, clock *polylimit.ManualClock, by time.Duration) {
	t.Helper()
	if err := clock.Advance(by); err != nil {
		t.Fatal(err)
	}
}

func TestJobThatRunsAgainIsChargedOnce(t *testing.T) {
	limiter, _ := withClock(t, "2 concurrent; 100/minute fixed_window")
	key := polylimit.Key("k").Cost(40)
	for run := range 2 {
		job := must(limiter.Reserve(ctx, key, polylimit.ReserveID("job"), polylimit.ReserveRemember(time.Hour)))(t)
		usage := must(job.Commit(ctx, 30))(t)
		if !usage.Found || usage.Repeated != (run == 1) || usage.Remaining != 70 {
			t.Errorf("run %d: %v", run, usage)
		}
	}
	again := must(limiter.Commit(ctx, key, "job", 30))(t)
	if again.Found || !again.Repeated || !strings.Contains(again.String(), "committed before") {
		t.Errorf("%v", again)
	}
	if other := must(limiter.Commit(ctx, key, "other", 30))(t); other.Repeated {
		t.Errorf("%v", other)
	}
	for _, wrong := range []time.Duration{49 * time.Hour, -1} {
		if _, err := limiter.Reserve(ctx, key, polylimit.ReserveRemember(wrong)); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

func TestRequestIsReservedTogetherOrNotAtAll(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, polylimit.WithPolicy("model", "2 concurrent; 100/day fixed_window"),
				polylimit.WithPolicy("rate", "2/day fixed_window"))
			key := polylimit.Key("together " + time.Now().String())
			model, rate := key.Policy("model").Cost(40), key.Policy("rate")
			both := []polylimit.Request{model, rate}
			first := must(limiter.ReserveTogether(ctx, both))(t)
			if !first.Allowed() || len(first.ID) != 32 || first.Decisions[0].Remaining != 60 || first.Decisions[1].Remaining != 1 {
				t.Errorf("%+v", first)
			}
			second := must(limiter.ReserveTogether(ctx, both, polylimit.ReserveID("se\x00cond"), polylimit.ReserveTTL(time.Minute)))(t)
			if !second.Allowed() || second.ID != "se\x00cond" {
				t.Errorf("%+v", second)
			}
			denied := must(limiter.ReserveTogether(ctx, both))(t)
			if denied.Allowed() || denied.Decisions[0].Allowed || denied.Decisions[1].Allowed {
				t.Errorf("%+v", denied)
			}
			if usage := must(limiter.Cancel(ctx, model, first.ID))(t); !usage.Found || usage.Remaining != 60 {
				t.Errorf("%v", usage)
			}
			if usage := must(limiter.Cancel(ctx, rate, first.ID))(t); usage.Found {
				t.Errorf("%v", usage)
			}
			if usage := must(limiter.Commit(ctx, model, second.ID, 10))(t); !usage.Found || usage.Remaining != 90 {
				t.Errorf("%v", usage)
			}
			// The rate denies, so that no slot is taken.
			denied = must(limiter.ReserveTogether(ctx, both))(t)
			if left := must(limiter.Peek(ctx, model))(t); denied.Allowed() || left.Quotas()[0].Remaining != 2 {
				t.Errorf("a slot was taken: %+v, %+v", denied, left)
			}
			if none := must(limiter.ReserveTogether(ctx, nil))(t); len(none.Decisions) != 0 {
				t.Errorf("%+v", none)
			}
			for _, wrong := range []polylimit.ReserveOption{
				polylimit.ReserveTTL(0), polylimit.ReserveRemember(49 * time.Hour), polylimit.ReserveID(""), polylimit.ReserveTimeout(time.Second),
			} {
				if _, err := limiter.ReserveTogether(ctx, both, wrong); !errors.Is(err, polylimit.ErrInvalidArgument) {
					t.Error(err)
				}
			}
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := limiter.ReserveTogether(cancelled, both); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			limiter.Close()
			for _, together := range []func() error{
				func() error { _, err := limiter.CheckTogether(ctx, both); return err },
				func() error { _, err := limiter.PeekTogether(ctx, both); return err },
				func() error { _, err := limiter.ReserveTogether(ctx, both); return err },
			} {
				if err := together(); !errors.Is(err, polylimit.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
}

func TestCommitsOfARequestAreRemembered(t *testing.T) {
	limiter, _ := withClock(t, "2 concurrent; 100/minute fixed_window")
	requests := []polylimit.Request{polylimit.Key("k").Cost(40)}
	for run := range 2 {
		job := must(limiter.ReserveTogether(ctx, requests, polylimit.ReserveID("job"), polylimit.ReserveRemember(time.Hour)))(t)
		usage := must(limiter.Commit(ctx, requests[0], job.ID, 30))(t)
		if !usage.Found || usage.Repeated != (run == 1) || usage.Remaining != 70 {
			t.Errorf("run %d: %v", run, usage)
		}
	}
}

func TestReservationIsCommittedOrGivenBack(t *testing.T) {
	limiter, _ := withClock(t, "2 concurrent; 100/minute fixed_window")
	first := must(limiter.Reserve(ctx, polylimit.Key("k").Cost(40)))(t)
	second := must(limiter.Reserve(ctx, polylimit.Key("k").Cost(50)))(t)
	denied := must(limiter.Reserve(ctx, polylimit.Key("k")))(t)
	if !first.Allowed() || first.Decision().Remaining != 60 || len(first.ID()) != 32 || first.ID() == second.ID() || first.IsLost() {
		t.Errorf("%+v", first.Decision())
	}
	if decision := denied.Decision(); denied.Allowed() || decision.RetryAfter != 30*time.Second {
		t.Errorf("%+v", decision)
	}
	if usage := must(denied.Commit(ctx, 1))(t); usage.Found {
		t.Errorf("%+v", usage)
	}
	denied.Cancel()
	if usage := must(first.Commit(ctx, 25))(t); !usage.Found || usage.Remaining != 25 {
		t.Errorf("%+v", usage)
	}
	if usage := must(first.Commit(ctx, 25))(t); usage.Found || usage.Remaining != 25 {
		t.Errorf("%+v", usage)
	}
	first.Cancel()
	second.Cancel()
	second.Cancel()
	if now := left(t, limiter); now != 75 {
		t.Errorf("%d are left", now)
	}
	third := must(limiter.Reserve(ctx, polylimit.Key("k").Cost(20)))(t)
	if usage := must(third.CommitReserved(ctx))(t); !usage.Found || usage.Remaining != 55 {
		t.Errorf("%+v", usage)
	}
}

func TestDeferredCancelGivesBackAfterAPanic(t *testing.T) {
	limiter, _ := withClock(t, "1 concurrent")
	func() {
		defer func() { _ = recover() }()
		reservation := must(limiter.Reserve(ctx, polylimit.Key("k")))(t)
		defer reservation.Cancel()
		panic("the work has failed")
	}()
	if now := left(t, limiter); now != 1 {
		t.Errorf("%d slots are free", now)
	}
}

func TestReservationIsEndedByItsID(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, polylimit.WithPolicy("model", "2 concurrent; 1000/day fixed_window"))
			key := polylimit.Key(name + time.Now().String())
			reserve := func(id string, cost int64) *polylimit.Reservation {
				return must(limiter.Reserve(ctx, key.Cost(cost), polylimit.ReserveID(id), polylimit.ReserveTTL(time.Hour)))(t)
			}
			first, second := reserve("first", 100), reserve("sec\x00nd", 200)
			if again := reserve("first", 500); !again.Allowed() || again.Detach() != "first" {
				t.Errorf("%+v", again.Decision())
			}
			if !first.Allowed() || second.Decision().Remaining != 0 || reserve("third", 1).Allowed() {
				t.Errorf("%+v %+v", first.Decision(), second.Decision())
			}
			if usage := must(limiter.Renew(ctx, key, "first", 2*time.Hour))(t); !usage.Found || usage.Remaining != 0 {
				t.Errorf("%+v", usage)
			}
			other := open(t, url, polylimit.WithPolicy("model", "2 concurrent; 1000/day fixed_window"))
			if name == "memory" {
				other = limiter
			}
			if usage := must(other.Commit(ctx, key, first.Detach(), 50))(t); !usage.Found || usage.Remaining != 750 {
				t.Errorf("%+v", usage)
			}
			if usage := must(other.Commit(ctx, key, "first", 50))(t); usage.Found {
				t.Errorf("%+v", usage)
			}
			if usage := must(other.CommitReserved(ctx, key, second.ID()))(t); !usage.Found || usage.Remaining != 750 {
				t.Errorf("%+v", usage)
			}
			if usage := must(other.Cancel(ctx, key, "sec\x00nd"))(t); usage.Found {
				t.Errorf("%+v", usage)
			}
			if usage := must(limiter.Renew(ctx, key, "first", time.Hour))(t); usage.Found {
				t.Errorf("%+v", usage)
			}
		})
	}
}

func TestReservationEndsAtItsTime(t *testing.T) {
	limiter, clock := withClock(t, "1 concurrent")
	reservation := must(limiter.Reserve(ctx, polylimit.Key("k"), polylimit.ReserveTTL(10*time.Second), polylimit.ReserveMaxAge(0)))(t)
	reservation.Detach()
	advance(t, clock, 10*time.Second-time.Microsecond)
	if decision := must(limiter.Peek(ctx, polylimit.Key("k")))(t); decision.Allowed || decision.RetryAfter != time.Microsecond {
		t.Errorf("%+v", decision)
	}
	advance(t, clock, time.Microsecond)
	if now := left(t, limiter); now != 1 {
		t.Errorf("%d slots are free", now)
	}
}

func TestReservationIsRenewedAndTellsItsLoss(t *testing.T) {
	limiter, clock := withClock(t, "1 concurrent")
	reservation := must(limiter.Reserve(ctx, polylimit.Key("k"), polylimit.ReserveTTL(30*time.Second)))(t)
	defer reservation.Cancel()
	for range 5 {
		advance(t, clock, 10*time.Second)
		until(t, "the reservation is renewed", func() bool {
			return must(limiter.Peek(ctx, polylimit.Key("k")))(t).RetryAfter == 30*time.Second
		})
	}
	if reservation.IsLost() {
		t.Error("it is lost")
	}
	must(limiter.Cancel(ctx, polylimit.Key("k"), reservation.ID()))(t)
	advance(t, clock, 10*time.Second)
	until(t, "the loss is known", reservation.IsLost)
	if usage := must(reservation.CommitReserved(ctx))(t); usage.Found || reservation.IsLost() {
		t.Errorf("%+v", usage)
	}
}

func TestReserveWaitsInLineUntilItsContextIsDone(t *testing.T) {
	limiter, _ := withClock(t, "1 concurrent")
	first := must(limiter.Reserve(ctx, polylimit.Key("k")))(t)
	cancelled, cancel := context.WithCancel(ctx)
	type outcome struct {
		reservation *polylimit.Reservation
		err         error
	}
	reserve := func(ctx context.Context) chan outcome {
		done := make(chan outcome, 1)
		go func() {
			reservation, err := limiter.Reserve(ctx, polylimit.Key("k"), polylimit.ReserveTimeout(time.Hour))
			done <- outcome{reservation, err}
		}()
		return done
	}
	leaving, waiting := reserve(cancelled), reserve(ctx)
	cancel()
	if left := <-leaving; !errors.Is(left.err, context.Canceled) || left.reservation != nil {
		t.Errorf("%+v", left)
	}
	must(first.Commit(ctx, 1))(t)
	next := <-waiting
	if next.err != nil || !next.reservation.Allowed() {
		t.Fatalf("%+v", next)
	}
	// Without a timeout it does not wait, and a deadline does not make it wait.
	late, cancelLate := context.WithTimeout(ctx, time.Hour)
	defer cancelLate()
	if denied := must(limiter.Reserve(late, polylimit.Key("k")))(t); denied.Allowed() {
		t.Error("there are two")
	}
	if _, err := limiter.Reserve(cancelled, polylimit.Key("k")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// A commit that fails leaves something to cancel.
	if _, err := next.reservation.Commit(cancelled, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	next.reservation.Cancel()
	if now := left(t, limiter); now != 1 {
		t.Errorf("%d slots are free", now)
	}
}

func TestReserveWaitsAtMostUntilTheDeadlineOfItsContext(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "1 concurrent"))
	first := must(limiter.Reserve(ctx, polylimit.Key("k"), polylimit.ReserveTTL(time.Hour)))(t)
	defer first.Cancel()
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	denied, err := limiter.Reserve(soon, polylimit.Key("k"), polylimit.ReserveTimeout(24*time.Hour))
	if err == nil && denied.Allowed() || err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v %v", denied, err)
	}
}

// The reserve is on its way to a suspended server when its caller leaves: the slot is given back when the server has answered.
func TestCancelledReserveIsGivenBack(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		t.Run(timeout.String(), func(t *testing.T) {
			url, process := server(t)
			limiter := open(t, url, polylimit.WithPolicy("model", "8 concurrent"), polylimit.WithOption("deadline", "60s"),
				polylimit.WithOption("doctor_after", "0"))
			if now := left(t, limiter); now != 8 {
				t.Fatal(now)
			}
			_ = process.Process.Signal(syscall.SIGSTOP)
			cancelled, cancel := context.WithCancel(ctx)
			failed := make(chan error, 4)
			for range cap(failed) {
				go func() {
					_, err := limiter.Reserve(cancelled, polylimit.Key("k"), polylimit.ReserveTTL(time.Hour),
						polylimit.ReserveTimeout(timeout))
					failed <- err
				}()
			}
			time.Sleep(100 * time.Millisecond)
			cancel()
			for range cap(failed) {
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			_ = process.Process.Signal(syscall.SIGCONT)
			until(t, "all slots are free", func() bool { return left(t, limiter) == 8 })
		})
	}
}

func TestForgottenReservationIsGivenBack(t *testing.T) {
	limiter, _ := withClock(t, "1 concurrent")
	must(limiter.Reserve(ctx, polylimit.Key("k")))(t)
	until(t, "the collector gives it back", func() bool {
		runtime.GC()
		return left(t, limiter) == 1
	})
}

func TestWrongReservationsAreRefused(t *testing.T) {
	limiter, _ := withClock(t, "1 concurrent")
	key := polylimit.Key("k")
	for name, do := range map[string]func() error{
		"no id": func() error { _, err := limiter.Reserve(ctx, key, polylimit.ReserveID("")); return err },
		"long id": func() error {
			_, err := limiter.Reserve(ctx, key, polylimit.ReserveID(strings.Repeat("x", 65)))
			return err
		},
		"no ttl": func() error { _, err := limiter.Reserve(ctx, key, polylimit.ReserveTTL(0)); return err },
		"long ttl": func() error {
			_, err := limiter.Reserve(ctx, key, polylimit.ReserveTTL(48*time.Hour+time.Microsecond))
			return err
		},
		"leaky bucket":    func() error { _, err := limiter.Reserve(ctx, key.Policy("1/s leaky_bucket")); return err },
		"policy with NUL": func() error { _, err := limiter.Reserve(ctx, key.Policy("a\x00")); return err },
		"cost":            func() error { _, err := limiter.Reserve(ctx, key.Cost(-1)); return err },
		"commit of -1":    func() error { _, err := limiter.Commit(ctx, key, "a", -1); return err },
		"commit of much":  func() error { _, err := limiter.Commit(ctx, key, "a", 1_000_000_000_001); return err },
		"commit of none":  func() error { _, err := limiter.CommitReserved(ctx, key, ""); return err },
		"cancel by NUL":   func() error { _, err := limiter.Cancel(ctx, key.Policy("a\x00"), "a"); return err },
		"renew":           func() error { _, err := limiter.Renew(ctx, key, "a", 0); return err },
		"check":           func() error { _, err := limiter.Check(ctx, key); return err },
		"take":            func() error { _, err := limiter.Take(ctx, key); return err },
		"acquire":         func() error { _, err := limiter.Acquire(ctx, key, time.Second); return err },
	} {
		if err := do(); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now := left(t, limiter); now != 1 {
		t.Errorf("%d slots are free", now)
	}
	reservation := must(limiter.Reserve(ctx, key))(t)
	limiter.Close()
	if _, err := reservation.Commit(ctx, 1); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
	reservation.Cancel()
	if _, err := limiter.Reserve(ctx, key); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
}

func TestConcurrentQuotaHasNumbersAndText(t *testing.T) {
	if text := must(polylimit.Concurrent(20).Text())(t); text != "20 concurrent" {
		t.Error(text)
	}
	if quota := must(polylimit.ParseQuota("20 concurrent"))(t); quota != polylimit.Concurrent(20) {
		t.Errorf("%+v", quota)
	}
}

func TestNoMoreThanTheLimitAreHeldAtATime(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			const limit, callers, rounds = 20, 64, 10
			key := polylimit.Key(name + time.Now().String())
			var inside, most atomic.Int64
			var group sync.WaitGroup
			limiter := open(t, url, polylimit.WithPolicy("model", "20 concurrent"))
			for range callers {
				group.Go(func() {
					for round := range rounds {
						reservation := must(limiter.Reserve(ctx, key, polylimit.ReserveTimeout(time.Hour)))(t)
						if !reservation.Allowed() {
							t.Errorf("%+v", reservation.Decision())
						}
						now := inside.Add(1)
						for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
						}
						inside.Add(-1)
						if round%2 == 0 {
							must(reservation.Commit(ctx, 1))(t)
						}
						reservation.Cancel()
					}
				})
			}
			group.Wait()
			if most.Load() < 1 || most.Load() > limit {
				t.Errorf("%d were held at a time", most.Load())
			}
			until(t, "all slots are free", func() bool { return must(limiter.Peek(ctx, key))(t).Remaining == limit })
		})
	}
}
