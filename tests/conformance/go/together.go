package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"polylimit.dev/polylimit"
)

// togetherCase is a case of format 5: requests over several policies.
type togetherCase struct {
	Name     string              `json:"name"`
	Policies map[string][]quota  `json:"policies"`
	Ops      []togetherOperation `json:"ops"`
}

type togetherOperation struct {
	AtUs    int64           `json:"at_us"`
	Op      string          `json:"op"`
	Charges []charge        `json:"charges"`
	Policy  string          `json:"policy"`
	Key     string          `json:"key"`
	Cost    *int64          `json:"cost"`
	ID      string          `json:"id"`
	TTLUs   int64           `json:"ttl_us"`
	Expect  json.RawMessage `json:"expect"`
}

type charge struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Cost   int64  `json:"cost"`
}

func (c charge) request(prefix string) polylimit.Request {
	return polylimit.Key(prefix + " " + c.Key).Policy(c.Policy).Cost(c.Cost)
}

// charges are the requests of an operation, of which those on one key have one.
func (o togetherOperation) charges() []charge {
	if len(o.Charges) > 0 {
		return o.Charges
	}
	cost := int64(1)
	if o.Cost != nil {
		cost = *o.Cost
	}
	return []charge{{Policy: o.Policy, Key: o.Key, Cost: cost}}
}

// runTogether runs a file of format 5.
func runTogether(path string, text []byte, store string) (bool, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var file struct {
		Format int            `json:"format"`
		Cases  []togetherCase `json:"cases"`
	}
	if err := decoder.Decode(&file); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if len(file.Cases) == 0 {
		return false, errors.New(path + ": it has no case")
	}
	agreed := 0
	started := time.Now().UnixNano()
	for number, item := range file.Cases {
		// A store that outlives this process has never seen such a key.
		prefix := fmt.Sprintf("go %d %d", started, number)
		if at, err := runTogetherCase(item, prefix, store); err != nil {
			fmt.Printf("go %s: case %q, operation %d: %v\n", store, item.Name, at, err)
			continue
		}
		agreed++
	}
	fmt.Printf("go %s: %d of %d cases agree\n", store, agreed, len(file.Cases))
	return agreed == len(file.Cases), nil
}

// runTogetherCase runs a case up to the first difference.
func runTogetherCase(item togetherCase, prefix, store string) (at int, err error) {
	clock, err := polylimit.NewManualClock(time.UnixMicro(0))
	if err != nil {
		return 0, err
	}
	options := []polylimit.Option{polylimit.WithClock(clock)}
	for name, numbers := range item.Policies {
		quotas, err := quotasText(numbers)
		if err != nil {
			return 0, err
		}
		options = append(options, polylimit.WithPolicy(name, quotas))
		// What the store does not answer must not look as if it did.
		if strings.HasPrefix(store, "redis") {
			options = append(options, polylimit.WithOutage(name, "deny"))
		}
	}
	if store == "memory" {
		store = "memory:"
	}
	limiter, err := polylimit.Open(store, options...)
	if err != nil {
		return 0, err
	}
	defer limiter.Close()
	// A manual clock's keys do not expire.
	defer func() {
		for _, operation := range item.Ops {
			for _, charge := range operation.charges() {
				_, failed := limiter.Reset(context.Background(), charge.request(prefix))
				err = errors.Join(err, failed)
			}
		}
	}()
	for ; at < len(item.Ops); at++ {
		if err := togetherStep(item.Ops[at], prefix, limiter, clock); err != nil {
			return at, err
		}
	}
	return at, nil
}

func togetherStep(operation togetherOperation, prefix string, limiter *polylimit.Limiter, clock *polylimit.ManualClock) error {
	if err := clock.Set(time.UnixMicro(operation.AtUs)); err != nil {
		return err
	}
	got, err := togetherAnswer(operation, prefix, limiter)
	if err != nil {
		return fmt.Errorf("refused: %w", err)
	}
	if !bytes.Contains(operation.Expect, []byte(`"retry_after_us":`)) {
		delete(got, "retry_after_us")
	}
	agree, err := agrees(operation.Expect, got)
	if err == nil && !agree {
		err = fmt.Errorf("it differs\n  expected %s\n  got      %v", operation.Expect, got)
	}
	return err
}

// togetherAnswer does an operation, and gives what it answered in the form in which a case expects it.
func togetherAnswer(op togetherOperation, prefix string, limiter *polylimit.Limiter) (map[string]any, error) {
	ctx := context.Background()
	requests := make([]polylimit.Request, 0, len(op.Charges))
	for _, charge := range op.charges() {
		requests = append(requests, charge.request(prefix))
	}
	switch op.Op {
	case "check_all":
		return requestAnswer(limiter.CheckTogether(ctx, requests))
	case "peek_all":
		return requestAnswer(limiter.PeekTogether(ctx, requests))
	case "reserve_all":
		ttl := time.Duration(op.TTLUs) * time.Microsecond
		reserved, err := limiter.ReserveTogether(ctx, requests, polylimit.ReserveID(op.ID), polylimit.ReserveTTL(ttl))
		if err == nil && reserved.ID != op.ID {
			err = fmt.Errorf("the id is %q", reserved.ID)
		}
		return requestAnswer(reserved.Decisions, err)
	}
	answer, err := answer(limiter, operation{Op: op.Op}, requests[0])
	delete(answer, "delay_us")
	delete(answer, "over")
	return answer, err
}

func requestAnswer(decisions []polylimit.Decision, err error) (map[string]any, error) {
	if err != nil {
		return nil, err
	}
	allowed, never, longest := true, false, int64(0)
	each := make([]map[string]any, len(decisions))
	for at, made := range decisions {
		each[at], _ = decision(made, nil)
		delete(each[at], "delay_us")
		delete(each[at], "over")
		allowed = allowed && made.Allowed
		if made.RetryAfter == polylimit.Never {
			never = true
		} else {
			longest = max(longest, us(made.RetryAfter))
		}
	}
	answer := map[string]any{"allowed": allowed, "retry_after_us": longest, "decisions": each}
	if never {
		answer["retry_after_us"] = nil
	}
	return answer, nil
}
