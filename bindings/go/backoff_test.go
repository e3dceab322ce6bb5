package polylimit_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// waitCases are the cases that the tests of every language run.
type waitCases struct {
	ServerWait []struct {
		Name       string
		RetryAfter *string  `json:"retry_after"`
		RateLimit  []string `json:"rate_limit"`
		NowUs      int64    `json:"now_us"`
		WaitUs     *int64   `json:"wait_us"`
	} `json:"server_wait"`
	Backoff []struct {
		Name         string
		Settings     backoffSettings
		Retry        uint32
		ServerWaitUs int64     `json:"server_wait_us"`
		WaitUs       *[2]int64 `json:"wait_us"`
	}
	Refused []struct {
		Settings backoffSettings
		Message  string
	}
}

type backoffSettings struct {
	BaseUs     *int64  `json:"base_us"`
	CapUs      *int64  `json:"cap_us"`
	MaxWaitUs  *int64  `json:"max_wait_us"`
	MaxRetries *uint32 `json:"max_retries"`
}

func (s backoffSettings) backoff() polylimit.Backoff {
	backoff := polylimit.DefaultBackoff()
	set := func(place *time.Duration, us *int64) {
		if us != nil {
			*place = time.Duration(*us) * time.Microsecond
		}
	}
	set(&backoff.Base, s.BaseUs)
	set(&backoff.Cap, s.CapUs)
	set(&backoff.MaxWait, s.MaxWaitUs)
	if s.MaxRetries != nil {
		backoff.MaxRetries = *s.MaxRetries
	}
	return backoff
}

func TestWaitsOfServersAndBackoffsAgreeWithTheCases(t *testing.T) {
	text, err := os.ReadFile("../../tests/conformance/server_wait.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases waitCases
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, one := range cases.ServerWait {
		t.Run(one.Name, func(t *testing.T) {
			header := http.Header{"RateLimit": one.RateLimit}
			if one.RetryAfter != nil {
				header.Set("Retry-After", *one.RetryAfter)
			}
			wait, asked := polylimit.ServerWait(header, time.UnixMicro(one.NowUs))
			if asked != (one.WaitUs != nil) || asked && wait.Microseconds() != *one.WaitUs {
				t.Errorf("%v %v", wait, asked)
			}
		})
	}
	const date, later = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:39 GMT"
	for wait, header := range map[time.Duration]http.Header{
		120 * time.Millisecond: {"Retry-After-Ms": {"120"}, "Retry-After": {"1"}},
		2 * time.Second:        {"Date": {date}, "Retry-After": {later}},
	} {
		if read, asked := polylimit.ServerWait(header, time.Now()); !asked || read != wait {
			t.Errorf("%v: %v", header, read)
		}
	}
	for _, one := range cases.Backoff {
		t.Run(one.Name, func(t *testing.T) {
			asked := time.Duration(one.ServerWaitUs) * time.Microsecond
			wait, retries, err := one.Settings.backoff().Wait(one.Retry, asked)
			if err != nil || retries != (one.WaitUs != nil) {
				t.Fatal(wait, retries, err)
			}
			if us := wait.Microseconds(); retries && (us < one.WaitUs[0] || us > one.WaitUs[1]) {
				t.Error(wait)
			}
		})
	}
	for _, one := range cases.Refused {
		t.Run(one.Message, func(t *testing.T) {
			_, _, err := one.Settings.backoff().Wait(0, 0)
			var refused *polylimit.Error
			if !errors.As(err, &refused) || !errors.Is(err, polylimit.ErrInvalidArgument) || refused.Message != one.Message {
				t.Error(err)
			}
		})
	}
}
