package main

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const ms = int64(time.Millisecond)

// window is the object of the histories: 12 units, and one key.
func window() []object { return newGroup(policies(time.Now()), "key", 0).objects }

// did is an operation of a client of the first process, in milliseconds, with what it has returned.
func did(client int, call, end int64, kind kind, cost int16, result answer) *record {
	return &record{
		operation: operation{kind: kind, parts: []part{{0, cost}}},
		client:    client,
		call:      call * ms,
		end:       end * ms,
		answers:   []answer{result},
	}
}

func admitted(remaining int32) answer { return answer{flags: allowed, remaining: remaining} }
func denied(remaining int32) answer   { return answer{remaining: remaining} }
func refunded(remaining int32) answer { return answer{flags: allowed | found, remaining: remaining} }

// lost is the operation with an unknown outcome.
func lost(r *record) *record {
	r.outcome, r.end, r.answers = unknown, forever, nil
	return r
}

// of is the operation in another process, by the denial cache.
func of(process int, isCached bool, r *record) *record {
	r.process, r.cached = process, isCached
	return r
}

func TestHistories(t *testing.T) {
	for _, test := range []struct {
		name     string
		records  []*record
		expected porcupine.CheckResult
	}{
		{"one after the other", []*record{
			did(0, 1, 2, check, 9, admitted(3)),
			did(0, 3, 4, check, 4, denied(3)),
			did(1, 5, 6, refund, 1, refunded(4)),
		}, porcupine.Ok},
		{"overlapping, in either order", []*record{
			did(0, 1, 4, check, 2, admitted(7)),
			did(1, 2, 3, check, 3, admitted(9)),
		}, porcupine.Ok},
		{"in the order of the calls only", []*record{
			did(0, 1, 2, check, 2, admitted(7)),
			did(1, 3, 4, check, 3, admitted(9)),
		}, porcupine.Illegal},
		{"a lost update", []*record{
			did(0, 1, 2, check, 2, admitted(10)),
			did(1, 1, 3, check, 2, admitted(10)),
		}, porcupine.Illegal},
		{"an unknown outcome that never happens", []*record{
			lost(did(0, 1, 0, check, 2, answer{})),
			did(1, 2, 3, check, 1, admitted(11)),
		}, porcupine.Ok},
		{"an unknown outcome that happens late", []*record{
			lost(did(0, 1, 0, check, 2, answer{})),
			did(1, 2, 3, check, 1, admitted(11)),
			did(1, 4, 5, check, 1, admitted(8)),
		}, porcupine.Ok},
		{"an unknown outcome that happens twice", []*record{
			lost(did(0, 1, 0, check, 2, answer{})),
			did(1, 2, 3, check, 1, admitted(9)),
			did(1, 4, 5, check, 1, admitted(6)),
		}, porcupine.Illegal},
		{"a refund that happens twice", []*record{
			did(0, 1, 2, check, 9, admitted(3)),
			did(0, 3, 4, refund, 2, refunded(5)),
			did(0, 5, 6, check, 1, admitted(6)),
		}, porcupine.Illegal},
		{"a cached denial that another process has overtaken", []*record{
			did(0, 1, 2, check, 9, admitted(3)),
			did(0, 3, 4, check, 4, denied(3)),
			of(1, false, did(0, 5, 6, refund, 5, refunded(8))),
			of(0, true, did(1, 7, 8, check, 4, denied(3))),
		}, porcupine.Ok},
		{"a cached denial that is too old", []*record{
			did(0, 1, 2, check, 9, admitted(3)),
			did(0, 3, 4, check, 4, denied(3)),
			of(1, false, did(0, 5, 6, refund, 5, refunded(8))),
			of(0, true, did(1, 70, 71, check, 4, denied(3))),
		}, porcupine.Illegal},
		{"a cached denial after a refund by its own process", []*record{
			did(0, 1, 2, check, 9, admitted(3)),
			did(0, 3, 4, check, 4, denied(3)),
			did(1, 5, 6, refund, 5, refunded(8)),
			of(0, true, did(1, 7, 8, check, 4, denied(3))),
		}, porcupine.Illegal},
		{"a cached denial that only another process has seen", []*record{
			did(0, 1, 2, check, 9, admitted(3)),
			did(0, 3, 4, check, 4, denied(3)),
			did(0, 5, 6, refund, 5, refunded(8)),
			of(1, true, did(0, 7, 8, check, 4, denied(3))),
		}, porcupine.Illegal},
	} {
		t.Run(test.name, func(t *testing.T) {
			made := &history{name: test.name, objects: window(), records: test.records}
			made.justify()
			if result := made.check(time.Minute); result != test.expected {
				t.Errorf("%s, and not %s", result, test.expected)
			}
		})
	}
}

// A process that is killed may leave a part of a request over several policies; one whose answer was lost may not.
func TestPartsOfARequest(t *testing.T) {
	group := newGroup(policies(time.Now()), "key", 8)
	if len(group.objects) < 2 {
		t.Fatalf("%d objects", len(group.objects))
	}
	for _, isKilled := range []bool{false, true} {
		request := &record{operation: operation{kind: together, parts: []part{{0, 1}, {1, 1}}}, call: 1, end: forever, outcome: unknown, isKilled: isKilled}
		left := outcomes(group.objects, state{}, request)
		if expected := map[bool]int{false: 1, true: 4}[isKilled]; len(left) != expected {
			t.Errorf("%d states, and not %d", len(left), expected)
		}
	}
}

func TestReservations(t *testing.T) {
	jobs := newGroup(policies(time.Now()), "key", 7).objects
	now := state{}
	do := func(kind kind, id uint8, cost int16) answer {
		return apply(jobs, &now, &operation{kind: kind, id: id, parts: []part{{0, cost}}}, nil)[0]
	}
	for at, one := range []struct {
		kind     kind
		id       uint8
		cost     int16
		expected answer
	}{
		{remember, 0, 4, answer{flags: allowed, remaining: 16}},
		{reserve, 1, 4, answer{flags: allowed, remaining: 12}},
		{reserve, 1, 9, answer{flags: allowed, remaining: 12}},
		{reserve, 2, 13, answer{remaining: 12}},
		{reserve, 2, 21, answer{flags: never, remaining: 12}},
		{reserve, 2, 1, answer{flags: allowed}},
		{reserve, 3, 1, answer{}},
		{commit, 0, 2, answer{flags: allowed | found, remaining: 13}},
		{commit, 0, 2, answer{flags: allowed | repeated, remaining: 13}},
		{remember, 0, 9, answer{flags: allowed}},
		{commit, 0, 9, answer{flags: allowed | found | repeated, remaining: 13}},
		{cancel, 1, 0, answer{flags: allowed | found, remaining: 17}},
		{commit, 2, asReserved, answer{flags: allowed | found, remaining: 17}},
		{reset, 0, 0, answer{flags: allowed | found | unused, remaining: 20}},
		{commit, 0, 2, answer{flags: allowed | unused, remaining: 20}},
	} {
		if result := do(one.kind, one.id, one.cost); result != one.expected {
			t.Errorf("operation %d, %s: %v, and not %v", at, one.kind, result, one.expected)
		}
	}
}

// What is left of a history is refused, and has the operation that went wrong and the one that shows it.
func TestShrink(t *testing.T) {
	var records []*record
	remaining, at := int32(12), int64(0)
	add := func(kind kind, cost int16, result answer) {
		records = append(records, did(int(at%3), at, at+1, kind, cost, result))
		at += 2
	}
	for range 20 {
		add(check, 2, admitted(remaining-2))
		add(peek, 1, admitted(remaining-2))
		add(check, 12, denied(remaining-2))
		add(refund, 1, refunded(remaining-1))
		if remaining--; remaining < 4 {
			add(refund, 5, refunded(remaining+5))
			remaining += 5
		}
	}
	wrong := len(records)
	add(refund, 1, refunded(remaining+1))
	add(peek, 1, admitted(remaining+1))
	add(check, 1, admitted(remaining+1))
	add(check, 1, admitted(remaining))
	whole := &history{objects: window(), records: records}
	if result := whole.check(time.Minute); result != porcupine.Illegal {
		t.Fatalf("%s", result)
	}
	smaller := whole.shrink()
	if !slices.Equal(smaller.records, []*record{records[wrong], records[wrong+2]}) || len(smaller.starts) != 1 {
		t.Errorf("%q", smaller.describe())
	}
}
