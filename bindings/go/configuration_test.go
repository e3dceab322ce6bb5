package polylimit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

const document = `
polylimit = 1
[policies.api]
quotas = "3/minute fixed_window"
plans = { gold = "5/minute fixed_window" }
[policies.slots]
quotas = "1 concurrent"
[[rules]]
match = { path = "/slow" }
apply = [{ policy = "slots", key = "all" }]
continue = true
[[rules]]
apply = [{ policy = "api", key = "{user,client}", headroom = 20 }]
`

func request(attributes map[string]string) polylimit.RequestAttributes {
	headers := [][2]string{{"X-Trace", "1"}, {"Accept", "text/html"}}
	return polylimit.RequestAttributes{Method: "GET", Path: "/slow?a=b", Peer: "192.0.2.1", Headers: headers, Attributes: attributes}
}

func TestRequestIsDecidedByItsAttributes(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithDocument(document))
	// More attributes than fit on the stack.
	attributes := map[string]string{"user": "alice"}
	for at := range 50 {
		attributes[fmt.Sprintf("other%d", at)] = strings.Repeat("x", at)
	}
	matches := must(limiter.Admin().Matching(request(attributes)))(t)
	wanted := polylimit.PolicyMatch{Policy: "api", Key: "user=alice", Cost: 1, Headroom: 20}
	if len(matches) != 2 || matches[1] != wanted {
		t.Errorf("%+v", matches)
	}
	decided := must(limiter.Decide(ctx, request(attributes), polylimit.ReserveID("one")))(t)
	if !decided.Allowed || decided.Status != 0 || decided.Cause != "" || len(decided.Decisions) != 2 {
		t.Fatalf("%+v", decided)
	}
	if decided.Decisions[0].Reservation != "one" || decided.Decisions[1].Reservation != "" || decided.Decisions[1].PolicyMatch != wanted {
		t.Errorf("%+v", decided)
	}
	decided = must(limiter.Decide(ctx, request(attributes)))(t)
	if decided.Allowed || decided.Status != 429 || decided.Cause != "concurrency" || decided.RetryAfter <= 0 {
		t.Errorf("%+v", decided)
	}
	if usage := must(limiter.Cancel(ctx, polylimit.Key("all").Policy("slots"), "one"))(t); !usage.Found {
		t.Errorf("%+v", usage)
	}
	slot := polylimit.Key("all").Policy("slots")
	for run := range 2 {
		remember := []polylimit.ReserveOption{polylimit.ReserveID("job"), polylimit.ReserveRemember(time.Minute)}
		if decided := must(limiter.Decide(ctx, request(map[string]string{"user": "job"}), remember...))(t); !decided.Allowed {
			t.Errorf("%+v", decided)
		}
		if usage := must(limiter.CommitReserved(ctx, slot, "job"))(t); !usage.Found || usage.Repeated != (run == 1) {
			t.Errorf("run %d: %+v", run, usage)
		}
	}
	must(limiter.Admin().SetEntry(ctx, "deny user alice", map[string]any{"why": "a test"}))(t)
	if decided := must(limiter.Decide(ctx, request(attributes)))(t); decided.Status != 403 || decided.RetryAfter != polylimit.Never {
		t.Errorf("%+v", decided)
	}
	must(limiter.Admin().DeleteEntry(ctx, "deny user alice"))(t)
	if decided := must(limiter.Decide(ctx, request(nil)))(t); !decided.Allowed || decided.Decisions[1].Key != "client=192.0.2.1" {
		t.Errorf("%+v", decided)
	}
	for name, bad := range map[string]map[string]string{"name": {"\xff": "x"}} {
		if _, err := limiter.Admin().Matching(request(bad)); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	without := open(t, "memory:", polylimit.WithPolicy("api", "1/s"))
	if _, err := without.Decide(ctx, request(nil)); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
	if _, has := without.Admin().Configuration(); has {
		t.Error("a limiter without a configuration has one")
	}
}

func TestDocumentIsReplacedAndABadOneIsNotTaken(t *testing.T) {
	limiter := open(t, "memory:", polylimit.WithDocument(document))
	before, has := limiter.Admin().Configuration()
	if !has || before.Source != "document" || len(before.Digest) != 64 || before.Error != "" || before.UnreachableFor != 0 {
		t.Errorf("%+v", before)
	}
	gold := polylimit.Key("k").Policy("api").Plan("gold")
	if decision := must(limiter.Peek(ctx, gold))(t); decision.Remaining != 5 {
		t.Errorf("%+v", decision)
	}
	must(limiter.Admin().SetEntry(ctx, "override api k", `{"numbers": "8/minute fixed_window"}`))(t)
	if decision := must(limiter.Peek(ctx, gold))(t); decision.Remaining != 8 {
		t.Errorf("%+v", decision)
	}
	var failed *polylimit.Error
	if _, err := limiter.Admin().SetDocument("polylimit = 1\nrule = 2\n"); !errors.As(err, &failed) || !strings.HasPrefix(failed.Message, "line 2, column 1: ") {
		t.Error(err)
	}
	after := must(limiter.Admin().SetDocument(`{"polylimit": 1, "policies": {"api": {"quotas": "9/s", "candidate": {"quotas": "1/s", "compare": 1000}}}}`))(t)
	if after.Version <= before.Version || after.Digest == before.Digest {
		t.Errorf("%+v", after)
	}
	must(limiter.Admin().WaitForVersion(ctx, after.Version, 0))(t)
	if counts, has := limiter.Admin().CandidateCounts("api"); !has || counts != (polylimit.CandidateCounts{}) {
		t.Errorf("%+v", counts)
	}
	if _, has := limiter.Admin().CandidateCounts("missing"); has {
		t.Error("an unknown policy has a candidate")
	}
	for name, err := range map[string]error{
		"entry":    second(limiter.Admin().SetEntry(ctx, "block api k", nil)),
		"value":    second(limiter.Admin().SetEntry(ctx, "deny user a", func() {})),
		"NUL":      second(limiter.Admin().SetEntry(ctx, "deny user \x00", nil)),
		"publish":  second(limiter.Admin().Publish(ctx, document, polylimit.PublishOptions{By: "ann"})),
		"document": second(polylimit.Open("memory:", polylimit.WithDocument("polylimit = 2"))),
	} {
		if !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	limiter.Close()
	if _, err := limiter.Admin().SetDocument(document); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestLimiterStartsFromTheCopyOfAFile(t *testing.T) {
	file, copied := filepath.Join(t.TempDir(), "limits.toml"), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	source := polylimit.WithConfiguration("file:" + file)
	limiter := open(t, "memory:", source, polylimit.WithConfigurationCopy(copied))
	first, _ := limiter.Admin().Configuration()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(copied); err == nil {
			break
		} else if time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
	limiter.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := polylimit.Open("memory:", source); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
	again, has := open(t, "memory:", source, polylimit.WithConfigurationCopy(copied)).Admin().Configuration()
	if !has || again.Digest != first.Digest || again.Source != "file:"+file {
		t.Errorf("%+v", again)
	}
}

func TestRedisHasDocumentsAndEntries(t *testing.T) {
	prefix := fmt.Sprintf("go-configuration-%d", os.Getpid())
	options := []polylimit.Option{
		polylimit.WithConfiguration("store"), polylimit.WithOption("prefix", prefix), polylimit.WithOption("deadline", "30s"),
	}
	limiter, other := open(t, stores(t)["redis"], options...), open(t, stores(t)["redis"], options...)
	first := must(limiter.Admin().Publish(ctx, document, polylimit.PublishOptions{By: "ann", Why: "the first"}))(t)
	if first.Source != "store" || first.Version == 0 {
		t.Errorf("%+v", first)
	}
	unexpected := uint64(99)
	if _, err := limiter.Admin().Publish(ctx, document, polylimit.PublishOptions{ExpectedVersion: &unexpected}); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
	if _, err := limiter.Admin().Publish(ctx, "polylimit = 1", polylimit.PublishOptions{}); !errors.Is(err, polylimit.ErrInvalidArgument) ||
		!strings.Contains(err.Error(), "it may be incomplete") {
		t.Error(err)
	}
	denied := must(limiter.Admin().SetEntry(ctx, "deny user alice", nil))(t)
	must(other.Admin().WaitForVersion(ctx, denied.Version, 30*time.Second))(t)
	alice := request(map[string]string{"user": "alice"})
	if decided := must(other.Decide(ctx, alice))(t); decided.Status != 403 {
		t.Errorf("%+v", decided)
	}
	admitted := must(other.Admin().DeleteEntry(ctx, "deny user alice"))(t)
	must(limiter.Admin().WaitForVersion(ctx, admitted.Version, 30*time.Second))(t)
	if decided := must(limiter.Decide(ctx, alice))(t); !decided.Allowed || len(decided.Decisions) != 2 {
		t.Errorf("%+v", decided)
	}
	there, _ := limiter.Admin().Configuration()
	published := must(limiter.Admin().Publish(ctx, document, polylimit.PublishOptions{ExpectedVersion: &there.DocumentVersion}))(t)
	if there.DocumentVersion != 1 || there.Version < 3 || published.DocumentVersion != 2 {
		t.Errorf("%+v %+v", there, published)
	}
	if _, err := other.Admin().Publish(ctx, document, polylimit.PublishOptions{ExpectedVersion: &there.DocumentVersion}); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
	stopped, stop := context.WithCancel(ctx)
	time.AfterFunc(20*time.Millisecond, stop)
	if _, err := limiter.Admin().WaitForVersion(stopped, admitted.Version+100, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
