package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"polylimit.dev/polylimit"
)

// startUs is Monday 2026-09-21, from which the times of the cases count.
const startUs = 1_789_948_800_000_000

// policiesCase is a case of format 3: a document, and operations of a limiter that has its limits from it.
type policiesCase struct {
	Name     string              `json:"name"`
	Document json.RawMessage     `json:"document"`
	Ops      []policiesOperation `json:"ops"`
}

type policiesOperation struct {
	TUs      int64           `json:"t_us"`
	Op       string          `json:"op"`
	Policy   string          `json:"policy"`
	Key      *string         `json:"key"`
	Cost     *int64          `json:"cost"`
	Headroom int             `json:"headroom"`
	Plan     string          `json:"plan"`
	ID       string          `json:"id"`
	TTLUs    int64           `json:"ttl_us"`
	ForUs    int64           `json:"for_us"`
	Document json.RawMessage `json:"document"`
	Text     string          `json:"text"`
	// Valid is whether a document that is refused could be read; the runner of the server checks it.
	Valid   bool            `json:"valid"`
	Set     string          `json:"set"`
	Value   json.RawMessage `json:"value"`
	Delete  string          `json:"delete"`
	Request requestText     `json:"request"`
	Expect  json.RawMessage `json:"expect"`
}

type requestText struct {
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	Peer       string            `json:"peer"`
	Headers    [][2]string       `json:"headers"`
	Attributes map[string]string `json:"attributes"`
}

func (r requestText) attributes() polylimit.RequestAttributes {
	return polylimit.RequestAttributes{Method: r.Method, Path: r.Path, Peer: r.Peer, Headers: r.Headers, Attributes: r.Attributes}
}

// request is the request of an operation; the defaults are policy p, key k and cost 1.
func (o policiesOperation) request() polylimit.Request {
	key, policy, cost := "k", "p", int64(1)
	if o.Key != nil {
		key = *o.Key
	}
	if o.Policy != "" {
		policy = o.Policy
	}
	if o.Cost != nil {
		cost = *o.Cost
	}
	return polylimit.Key(key).Policy(policy).Cost(cost).Headroom(o.Headroom).Plan(o.Plan)
}

func readPolicies(text []byte) ([]policiesCase, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var file struct {
		Format int            `json:"format"`
		Cases  []policiesCase `json:"cases"`
	}
	return file.Cases, decoder.Decode(&file)
}

// runPoliciesCase runs a case up to the first difference; number keeps what it stores apart from every other case.
func runPoliciesCase(item policiesCase, number int, store string) (at int, err error) {
	clock, err := polylimit.NewManualClock(time.UnixMicro(startUs))
	if err != nil {
		return 0, err
	}
	options := []polylimit.Option{polylimit.WithDocument(string(item.Document)), polylimit.WithClock(clock)}
	switch {
	case store == "memory":
		store = "memory:"
	case strings.HasPrefix(store, "redis"):
		options = append(options, polylimit.WithOption("prefix", fmt.Sprintf("case-go-%d-%d", os.Getpid(), number)))
	case strings.HasPrefix(store, "local:"):
		// A file of its own, because a case starts without states.
		folder, err := os.MkdirTemp("", "case-go-*")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(folder)
		store = "file://" + filepath.Join(folder, "store") + "?size=1MiB"
	}
	limiter, err := polylimit.Open(store, options...)
	if err != nil {
		return 0, fmt.Errorf("refused: %w", err)
	}
	defer limiter.Close()
	for at, operation := range item.Ops {
		if err := clock.Set(time.UnixMicro(startUs + operation.TUs)); err != nil {
			return at, err
		}
		got, err := policiesAnswer(limiter, operation)
		if err != nil {
			got = failure(err)
		}
		if err := compare(operation.Expect, got); err != nil {
			return at, fmt.Errorf("%s: %w", operation.Op, err)
		}
	}
	return len(item.Ops), nil
}

// compare is an error unless everything that is expected is there and equal; about is part of the message.
func compare(expected json.RawMessage, got any) error {
	came, err := json.Marshal(got)
	if err != nil {
		return err
	}
	var values [2]any
	for at, text := range [][]byte{expected, came} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&values[at]); err != nil {
			return err
		}
	}
	if !includes(values[0], values[1]) {
		return fmt.Errorf("it differs\n  expected %s\n  got      %s", expected, came)
	}
	return nil
}

func includes(expected, got any) bool {
	switch expected := expected.(type) {
	case map[string]any:
		fields, isObject := got.(map[string]any)
		for name, value := range expected {
			found, isThere := fields[name]
			if name == "about" {
				part, _ := value.(string)
				message, _ := found.(string)
				isThere = isThere && strings.Contains(message, part)
			} else {
				isThere = isThere && includes(value, found)
			}
			if !isThere {
				return false
			}
		}
		return isObject
	case []any:
		list, isList := got.([]any)
		if !isList || len(list) != len(expected) {
			return false
		}
		for at := range expected {
			if !includes(expected[at], list[at]) {
				return false
			}
		}
		return true
	default:
		return expected == got
	}
}

func policiesAnswer(limiter *polylimit.Limiter, op policiesOperation) (any, error) {
	ctx := context.Background()
	switch op.Op {
	case "check":
		return fullDecision(limiter.Check(ctx, op.request()))
	case "peek":
		return fullDecision(limiter.Peek(ctx, op.request()))
	case "reserve":
		reservation, err := limiter.Reserve(ctx, op.request(), op.reserveOptions()...)
		if err != nil {
			return nil, err
		}
		// It stays as the case leaves it.
		reservation.Detach()
		return fullDecision(reservation.Decision(), nil)
	case "block":
		return usageAnswer(limiter.Admin().Block(ctx, op.request(), time.Duration(op.ForUs)*time.Microsecond))
	case "configuration":
		document := op.Text
		if document == "" {
			document = string(op.Document)
		}
		_, err := limiter.Admin().SetDocument(document)
		return changed(err), nil
	case "entry":
		if op.Set != "" {
			_, err := limiter.Admin().SetEntry(ctx, op.Set, string(op.Value))
			return changed(err), nil
		}
		_, err := limiter.Admin().DeleteEntry(ctx, op.Delete)
		return changed(err), nil
	case "match":
		return matching(limiter.Admin().Matching(op.Request.attributes()))
	case "decide":
		return decided(limiter.Decide(ctx, op.Request.attributes(), op.reserveOptions()...))
	case "candidate":
		policy := op.Policy
		if policy == "" {
			policy = "p"
		}
		counts, _ := limiter.Admin().CandidateCounts(policy)
		return map[string]any{
			"both_allow":            counts.BothAllow,
			"only_live_denies":      counts.OnlyLiveDenies,
			"only_candidate_denies": counts.OnlyCandidateDenies,
			"both_deny":             counts.BothDeny,
		}, nil
	}
	plain := operation{Op: op.Op, Cost: op.Cost, ID: op.ID, TTLUs: op.TTLUs}
	return answer(limiter, plain, op.request())
}

func (o policiesOperation) reserveOptions() []polylimit.ReserveOption {
	if o.ID == "" {
		return nil
	}
	ttl := time.Duration(o.TTLUs) * time.Microsecond
	return []polylimit.ReserveOption{polylimit.ReserveID(o.ID), polylimit.ReserveTTL(ttl), polylimit.ReserveMaxAge(0)}
}

func fullDecision(made polylimit.Decision, err error) (map[string]any, error) {
	answer, err := decision(made, err)
	if len(answer) > 0 {
		answer["crossed"], answer["elastic"], answer["shadowed"] = made.Crossed, made.Elastic, made.Shadowed
		answer["cause"] = textOrNull(made.Cause)
	}
	return answer, err
}

func textOrNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func waitOrNull(wait time.Duration) any {
	if wait == polylimit.Never {
		return nil
	}
	return us(wait)
}

func matching(matches []polylimit.PolicyMatch, err error) (any, error) {
	shown := make([]map[string]any, 0, len(matches))
	for _, found := range matches {
		shown = append(shown, map[string]any{
			"policy": found.Policy, "key": found.Key, "cost": found.Cost, "headroom": found.Headroom,
		})
	}
	return shown, err
}

func decided(made polylimit.RequestDecision, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	decisions := make([]map[string]any, 0, len(made.Decisions))
	for _, policy := range made.Decisions {
		shown, err := fullDecision(policy.Decision, nil)
		if err != nil {
			return nil, err
		}
		shown["policy"], shown["key"] = policy.Policy, policy.Key
		decisions = append(decisions, shown)
	}
	answer := map[string]any{
		"allowed":        made.Allowed,
		"cause":          textOrNull(made.Cause),
		"status":         nil,
		"retry_after_us": waitOrNull(made.RetryAfter),
		"decisions":      decisions,
	}
	if made.Status != 0 {
		answer["status"] = made.Status
	}
	return answer, nil
}

// changed reports whether a change was made, or the line and the message of its error.
func changed(err error) map[string]any {
	if err == nil {
		return map[string]any{"ok": true}
	}
	answer := map[string]any{"ok": false, "about": err.Error()}
	var failed *polylimit.Error
	if errors.As(err, &failed) {
		if rest, isThere := strings.CutPrefix(failed.Message, "line "); isThere {
			digits, _, _ := strings.Cut(rest, ",")
			if line, err := strconv.Atoi(digits); err == nil {
				answer["line"] = line
			}
		}
	}
	return answer
}

func failure(err error) map[string]any {
	var failed *polylimit.Error
	if !errors.As(err, &failed) {
		return map[string]any{"error": "", "message": err.Error()}
	}
	return map[string]any{"error": failed.Kind.Code(), "message": failed.Message}
}
