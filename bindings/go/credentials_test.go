package polylimit_test

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// aclServer is a Redis server for one test, and runs commands of redis-cli on it. Its user limits has the password "old".
func aclServer(t *testing.T) (url string, command func(words ...string)) {
	url, _ = server(t)
	_, address, _ := strings.Cut(url, "@")
	_, port, _ := strings.Cut(address, ":")
	command = func(words ...string) {
		t.Helper()
		if said, err := exec.Command("redis-cli", append([]string{"--no-auth-warning", "-e", "-a", password, "-p", port}, words...)...).CombinedOutput(); err != nil {
			t.Fatal(words, string(said), err)
		}
	}
	command("acl", "setuser", "limits", "on", ">old", "~*", "&*", "+@all")
	return "redis://" + address, command
}

func withCredentials(t *testing.T, url, deadline string, give func() (string, string, error), options ...polylimit.Option) *polylimit.Limiter {
	return open(t, url, append(options, polylimit.WithPolicy("api", "1000000/hour"), polylimit.WithOption("deadline", deadline),
		polylimit.WithOption("doctor_after", "0"), polylimit.WithOption("outage", "deny"), polylimit.WithCredentials(give))...)
}

func TestChangedPasswordIsUsedWithoutARefusedDecision(t *testing.T) {
	url, command := aclServer(t)
	var password atomic.Value
	password.Store("old")
	limiter := withCredentials(t, url, "5s", func() (string, string, error) { return "limits", password.Load().(string), nil })
	isByStore := func() bool {
		decision := must(limiter.Check(ctx, polylimit.Key("k")))(t)
		if decision.Degraded == "auth" {
			t.Fatalf("%+v", decision)
		}
		return decision.Source == "store"
	}
	if !isByStore() {
		t.Fatal("the store was not asked")
	}
	for _, next := range []string{"two", "three", "four"} {
		before := password.Load().(string)
		command("acl", "setuser", "limits", ">"+next)
		password.Store(next)
		command("acl", "setuser", "limits", "<"+before)
		command("client", "kill", "user", "limits")
		until(t, "the new password is used", isByStore)
		for range 50 {
			if !isByStore() {
				t.Fatal("the store has not decided")
			}
		}
	}
}

func TestPasswordAloneIsThatOfTheDefaultUser(t *testing.T) {
	url, _ := aclServer(t)
	limiter := withCredentials(t, url, "5s", func() (string, string, error) { return "", password, nil })
	if decision := must(limiter.Check(ctx, polylimit.Key("k")))(t); decision.Source != "store" {
		t.Fatalf("%+v", decision)
	}
}

func TestErrorAndPanicOfTheCredentialsFunctionAreTheCause(t *testing.T) {
	url, _ := aclServer(t)
	var none []string
	for cause, give := range map[string]func() (string, string, error){
		"the token service is away":                  func() (string, string, error) { return "", "", errors.New("the token service is away") },
		"it has panicked: token":                     func() (string, string, error) { panic("token") },
		"it has panicked: runtime error: index out":  func() (string, string, error) { return "limits", none[1], nil },
		"it has ended its goroutine":                 func() (string, string, error) { runtime.Goexit(); return "", "", nil },
		"password contains a NUL":                    func() (string, string, error) { return "limits", "a\x00b", nil },
		"username is not UTF-8":                      func() (string, string, error) { return "\xff", "word", nil },
		"it is empty":                                func() (string, string, error) { return "limits", "", nil },
		"it refuses the user or the password that t": func() (string, string, error) { return "limits", "wrong", nil },
	} {
		kept := logging(t)
		limiter := withCredentials(t, url, "5s", give, polylimit.WithOnDegraded(kept.hook))
		if decision := must(limiter.Check(ctx, polylimit.Key("k")))(t); decision.Source != "deny" || decision.Degraded != "auth" {
			t.Fatalf("%s: %+v", cause, decision)
		}
		err := limiter.Ready(ctx, 30*time.Second)
		if !errors.Is(err, polylimit.ErrStoreUnavailable) || !strings.Contains(err.Error(), cause) {
			t.Errorf("%s: %v", cause, err)
		}
		if findings := must(limiter.Admin().Doctor(ctx))(t); len(findings) == 0 || !strings.Contains(fmt.Sprint(findings), cause) {
			t.Errorf("%s: %v", cause, findings)
		}
		until(t, "the event", func() bool { events, _ := kept.received(); return len(events) > 0 })
		if events, _ := kept.received(); events[0].Kind != "started" || !strings.Contains(events[0].Message, cause) {
			t.Errorf("%s: %v", cause, events)
		}
		limiter.Close()
	}
}

func TestCredentialsFunctionThatBlocksDelaysNeitherDecisionsNorClose(t *testing.T) {
	url, _ := aclServer(t)
	for _, isAnswered := range []bool{true, false} {
		goOn, ended := make(chan struct{}), make(chan struct{}, 100)
		limiter := withCredentials(t, url, "50ms", func() (string, string, error) {
			<-goOn
			ended <- struct{}{}
			return "limits", "old", nil
		}, polylimit.WithOption("first_connect_max", "0"))
		source := func() string { return must(limiter.Check(ctx, polylimit.Key("k")))(t).Source }
		for range 5 {
			if got := source(); got != "deny" {
				t.Fatal(got)
			}
		}
		if !isAnswered {
			limiter.Close()
		}
		close(goOn)
		if isAnswered {
			until(t, "the function has returned", func() bool { return source() == "store" })
		}
		<-ended
	}
}

func TestCredentialsFunctionIsReleasedWithItsLimiter(t *testing.T) {
	type large struct{ bytes [1 << 20]byte }
	var released atomic.Bool
	func() {
		held := &large{}
		runtime.SetFinalizer(held, func(*large) { released.Store(true) })
		limiter := must(polylimit.Open("memory:", polylimit.WithPolicy("api", "1/s"),
			polylimit.WithCredentials(func() (string, string, error) { return "", string(held.bytes[:1]), nil })))(t)
		must(limiter.Check(ctx, polylimit.Key("k")))(t)
		limiter.Close()
	}()
	until(t, "the function is released", func() bool { runtime.GC(); return released.Load() })
}

func TestNilCredentialsFunctionIsRefused(t *testing.T) {
	_, err := polylimit.Open("memory:", polylimit.WithCredentials(nil))
	if !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), "credentials is nil") {
		t.Fatal(err)
	}
	if text := polylimit.WithCredentials(nil).String(); text != "credentials" {
		t.Fatal(text)
	}
}
