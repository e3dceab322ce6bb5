package polylimit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// withPrefix are the options of a limiter whose keys in Redis are those of this test.
func withPrefix(t *testing.T, url string, options ...polylimit.Option) []polylimit.Option {
	if !strings.HasPrefix(url, "redis") {
		return options
	}
	prefix := fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
	return append(options, polylimit.WithOption("prefix", prefix), polylimit.WithOption("deadline", "30s"))
}

// listedKeys are the keys of all pages, each with how often it was listed.
func listedKeys(t *testing.T, limiter *polylimit.Limiter, options polylimit.ListOptions) (keys map[string]int, pages int) {
	t.Helper()
	keys = map[string]int{}
	for {
		page := must(limiter.Admin().List(ctx, options))(t)
		for _, listed := range page.Keys {
			key, isKnown := listed.Raw()
			if !isKnown {
				key = listed.KeyDigest
			}
			keys[key]++
		}
		pages++
		if page.Cursor == "" {
			return keys, pages
		}
		options.Cursor = page.Cursor
	}
}

func TestKeysAreListedInPagesAndByFilters(t *testing.T) {
	const users = 120
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, withPrefix(t, url, polylimit.WithPolicy("api", "2/hour fixed_window"))...)
			requests := []polylimit.Request{polylimit.Key("guest:1").Cost(2), polylimit.Key("\xff\x00"), polylimit.Key(strings.Repeat("k", 200))}
			for at := range users {
				requests = append(requests, polylimit.Key(fmt.Sprint("user:", at)))
			}
			for _, result := range limiter.CheckMany(ctx, requests) {
				if result.Err != nil || !result.Decision.Allowed {
					t.Fatalf("%+v", result)
				}
			}

			filter := polylimit.ListOptions{Policy: "api", KeyPrefix: "user:", Entries: 10, PacePercent: 100}
			keys, pages := listedKeys(t, limiter, filter)
			if len(keys) != users || pages < 2 || keys["user:7"] == 0 {
				t.Error(len(keys), pages)
			}
			cursor := must(limiter.Admin().List(ctx, filter))(t).Cursor
			for _, wrong := range []polylimit.ListOptions{{Cursor: cursor}, {Cursor: "nonsense"}, {Cursor: "a\x00b"}} {
				if _, err := limiter.Admin().List(ctx, wrong); !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), "cursor") {
					t.Error(err)
				}
			}

			all, _ := listedKeys(t, limiter, polylimit.ListOptions{})
			digests := 0
			for key := range all {
				if len(key) == 40 || len(key) == 64 {
					digests++
				}
			}
			if len(all) != users+3 || all["\xff\x00"] == 0 || digests != 1 {
				t.Error(len(all), digests)
			}

			full := must(limiter.Admin().List(ctx, polylimit.ListOptions{AtLeastUsed: 100}))(t)
			top := must(limiter.Admin().ScanTop(ctx, 1, polylimit.ListOptions{}))(t)
			for _, page := range []polylimit.KeyPage{full, top} {
				if len(page.Keys) != 1 || page.Examined == 0 || page.Cursor != "" {
					t.Fatalf("%+v", page)
				}
				key := page.Keys[0]
				if key.Policy != "api" || key.Key != "guest:1" || key.UsedPercent != 100 || key.ExpiresAfterUS == nil {
					t.Errorf("%+v", key)
				}
				quota := key.Quotas[0]
				quota.ResetAfterUS = 0
				if quota != (polylimit.ListedQuota{Quota: "2/hour fixed_window", Limit: 2, Capacity: 2, Used: 2}) {
					t.Errorf("%+v", quota)
				}
			}

			reset := uint64(0)
			for filter.Cursor = ""; ; {
				page := must(limiter.Admin().ResetListed(ctx, filter))(t)
				reset += page.Reset
				if filter.Cursor = page.Cursor; page.Cursor == "" {
					break
				}
			}
			if reset != users {
				t.Error(reset)
			}
			for key, remaining := range map[string]uint64{"user:7": 2, "guest:1": 0} {
				if decision := must(limiter.Peek(ctx, polylimit.Key(key)))(t); decision.Remaining != remaining {
					t.Errorf("%s: %+v", key, decision)
				}
			}
		})
	}
}

func TestListRefusesWhatIsNotAllowed(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "2/minute"))
	for _, options := range []polylimit.ListOptions{
		{PacePercent: 101}, {PacePercent: 1 << 40}, {PacePercent: -1}, {Entries: -1}, {Examined: -1}, {AtLeastUsed: -1}, {AtLeastUsed: 256},
		{AtLeastUsed: 1 << 40}, {Policy: "a\x00b"}, {Policy: "\xff"},
	} {
		_, err := limiter.Admin().List(ctx, options)
		_, resetErr := limiter.Admin().ResetListed(ctx, options)
		if !errors.Is(err, polylimit.ErrInvalidArgument) || !errors.Is(resetErr, polylimit.ErrInvalidArgument) {
			t.Errorf("%+v: %v, %v", options, err, resetErr)
		}
	}
	_, err := limiter.Admin().ScanTop(ctx, -1, polylimit.ListOptions{})
	if _, topErr := limiter.Admin().TopKeys(-1); !errors.Is(err, polylimit.ErrInvalidArgument) || !errors.Is(topErr, polylimit.ErrInvalidArgument) {
		t.Error(err, topErr)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = limiter.Admin().List(done, polylimit.ListOptions{})
	if _, explainErr := limiter.Admin().Explain(done, polylimit.Key("k")); !errors.Is(err, context.Canceled) || !errors.Is(explainErr, context.Canceled) {
		t.Error(err, explainErr)
	}
	limiter.Close()
	if _, err = limiter.Admin().List(ctx, polylimit.ListOptions{}); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
}

// A list that takes long in Redis ends with its context.
func TestContextEndsAList(t *testing.T) {
	url := stores(t)["redis"]
	limiter := open(t, url, withPrefix(t, url, polylimit.WithPolicy("api", "2/hour"))...)
	requests := make([]polylimit.Request, 2000)
	for at := range requests {
		requests[at] = polylimit.Key(fmt.Sprint(at))
	}
	for _, result := range limiter.CheckMany(ctx, requests) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := limiter.Admin().List(soon, polylimit.ListOptions{PacePercent: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestDeniedKeyIsExplained(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, withPrefix(t, url, polylimit.WithPolicy("api", "100/hour fixed_window; 20/day fixed_window"))...)
			if !must(limiter.Check(ctx, polylimit.Key("user:42").Cost(20)))(t).Allowed {
				t.Fatal("denied")
			}
			explained := must(limiter.Admin().Explain(ctx, polylimit.Key("user:42").Cost(3)))(t)
			if explained.Allowed || explained.Cause != "quota" || explained.RetryAfterUS == nil || *explained.RetryAfterUS == 0 {
				t.Errorf("%+v", explained)
			}
			if explained.Policy != "api" || explained.Key != "user:42" || explained.Cost != 3 || explained.Mode != "on" || explained.QuotasSource != "quotas" {
				t.Errorf("%+v", explained)
			}
			admits, denies := explained.Quotas[0], explained.Quotas[1]
			if !admits.Admits || admits.Used != 20 || admits.PeriodUS != 3_600_000_000 || denies.Admits || denies.Remaining != 0 {
				t.Errorf("%+v", explained.Quotas)
			}
			if !strings.HasPrefix(denies.Words, "20 of 20 in this window") {
				t.Error(denies.Words)
			}
			if explained.Pool != nil || explained.Penalty != nil || explained.Configuration != nil || explained.Rule != 0 || explained.Denials != nil {
				t.Errorf("%+v", explained)
			}
			never := must(limiter.Admin().Explain(ctx, polylimit.Key("other").Cost(21)))(t)
			headroom := must(limiter.Admin().Explain(ctx, polylimit.Key("\xff\x00").Cost(19).Headroom(10)))(t)
			if never.RetryAfterUS != nil || headroom.Allowed || headroom.Headroom != 10 || string(headroom.KeyBase64) != "\xff\x00" {
				t.Errorf("%+v %+v", never, headroom)
			}
			if !must(limiter.Check(ctx, polylimit.Key("other").Cost(20)))(t).Allowed {
				t.Error("an explanation has charged")
			}
			_, err := limiter.Admin().Explain(ctx, polylimit.Key("k").Policy("unknown"))
			if _, withNUL := limiter.Admin().Explain(ctx, polylimit.Key("k").Policy("a\x00b")); !errors.Is(err, polylimit.ErrInvalidArgument) || !errors.Is(withNUL, polylimit.ErrInvalidArgument) {
				t.Error(err, withNUL)
			}
		})
	}
}

func TestRequestIsExplainedByTheConfiguration(t *testing.T) {
	const document = `
polylimit = 1
policies.api.quotas = '1/hour fixed_window'
lists.deny = ['user mallory']
[[rules]]
match = { path = '/v1/{*rest}' }
apply = [{ policy = 'api', key = '{user}' }]
`
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, withPrefix(t, url, polylimit.WithDocument(document))...)
			request := polylimit.RequestAttributes{Method: "GET", Path: "/v1/a", Attributes: map[string]string{"user": "alice"}}
			explained := must(limiter.Admin().ExplainRequest(ctx, request))(t)
			if !explained.Allowed || *explained.RetryAfterUS != 0 || len(explained.Policies) != 1 || explained.ListEntry != nil {
				t.Errorf("%+v", explained)
			}
			if !must(limiter.Decide(ctx, request))(t).Allowed {
				t.Error("denied")
			}
			if _, err := limiter.Admin().SetEntry(ctx, "override api bob", `{"numbers": "9/hour", "by": "ann", "why": "a test"}`); err != nil {
				t.Error(err)
			}
			explained = must(limiter.Admin().ExplainRequest(ctx, request))(t)
			if explained.Allowed || explained.Cause != "quota" || explained.Configuration.Source != "document" || len(explained.Configuration.Digest) != 64 {
				t.Errorf("%+v", explained)
			}
			if policy := explained.Policies[0]; policy.Rule != 1 || policy.Key != "alice" || policy.Quotas[0].Admits {
				t.Errorf("%+v", policy)
			}
			request.Attributes["user"] = "bob"
			overridden := must(limiter.Admin().ExplainRequest(ctx, request))(t).Policies[0]
			if overridden.QuotasSource != "override" || overridden.OverrideEntry.By != "ann" || overridden.OverrideEntry.Why != "a test" || overridden.OverrideEntry.InDocument {
				t.Errorf("%+v", overridden)
			}
			request.Attributes["user"] = "mallory"
			denied := must(limiter.Admin().ExplainRequest(ctx, request))(t)
			if denied.Cause != "deny_list" || denied.RetryAfterUS != nil || denied.ListEntry.Entry != "deny user mallory" || !denied.ListEntry.InDocument {
				t.Errorf("%+v", denied)
			}
		})
	}
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "2/minute"))
	if _, err := limiter.Admin().ExplainRequest(ctx, polylimit.RequestAttributes{}); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestKeysThatAreDeniedMostAreCounted(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "2/hour"), polylimit.WithObserveKeys(256))
	for range 10_000 {
		_ = must(limiter.Check(ctx, polylimit.Key("user:42")))(t)
	}
	top := must(limiter.Admin().TopKeys(10))(t)
	if len(top.Denied) != 1 || top.Denied[0].Key != "user:42" || top.Denied[0].Policy != "api" || top.Counters != 256 || top.HalfLifeUS != 60_000_000 {
		t.Errorf("%+v", top)
	}
	if explained := must(limiter.Admin().Explain(ctx, polylimit.Key("user:42")))(t); explained.Denials == nil || *explained.Denials < 5_000 {
		t.Errorf("%+v", explained)
	}
	if top := must(open(t, "memory:").Admin().TopKeys(10))(t); top.Counters != 0 || len(top.Denied) != 0 {
		t.Errorf("%+v", top)
	}
	if _, err := polylimit.Open("memory:", polylimit.WithObserveKeys(65_537)); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
}
