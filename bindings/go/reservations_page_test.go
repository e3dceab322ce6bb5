//go:build !polylimit_static

package polylimit_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// exampleOfTheReservationsPage is the example of docs/reservations.md, word for word.
func exampleOfTheReservationsPage(ctx context.Context, limiter *polylimit.Limiter) error {
	slot := polylimit.Key("tenant:7").Policy("slots").Cost(0)
	requests := []polylimit.Request{slot, polylimit.Key("user:42").Policy("requests")}
	reserved, err := limiter.ReserveTogether(ctx, requests, polylimit.ReserveTTL(2*time.Minute))
	if err != nil {
		return err
	}
	if reserved.Allowed() {
		// the work
		_, err = limiter.CommitReserved(ctx, slot, reserved.ID)
	}
	return err
}

func TestReservationsPageHasThatExample(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("slots", "20 concurrent"), polylimit.WithPolicy("requests", "100/minute"))
	if err := exampleOfTheReservationsPage(ctx, limiter); err != nil {
		t.Fatal(err)
	}
	slots := must(limiter.Peek(ctx, polylimit.Key("tenant:7").Policy("slots").Cost(0)))(t)
	requests := must(limiter.Peek(ctx, polylimit.Key("user:42").Policy("requests")))(t)
	if slots.Remaining != 20 || requests.Remaining != 99 {
		t.Errorf("%+v, %+v", slots, requests)
	}
	block := fenced(t, string(must(os.ReadFile("../../docs/reservations.md"))(t)), "go")
	source := string(must(os.ReadFile("reservations_page_test.go"))(t))
	var lines []string
	for line := range strings.Lines(block) {
		lines = append(lines, strings.TrimRight("\t"+line, "\t"))
	}
	if !strings.Contains(source, strings.Join(lines, "")) {
		t.Errorf("reservations_page_test.go does not say:\n%s", block)
	}
}
