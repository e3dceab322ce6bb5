package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// shrinkTimeout is how long one check may take while a history is made smaller.
const shrinkTimeout = 5 * time.Second

func (h *history) isRefused() bool { return h.check(shrinkTimeout) == porcupine.Illegal }

// shrink makes a history that is refused smaller while it is refused. An operation that changes the state cannot just be left out, because
// the rest would then be refused without reason. Each step is such that the larger history is refused if the smaller one is:
//
//   - only one object is left, and of requests for several objects their part,
//   - what was called after a moment is left out, and what returned after it has an unknown outcome,
//   - what ended before a moment at which nothing ran is replaced by the states in which it can have ended,
//   - what only reads, or was seen to change nothing, is left out.
func (h *history) shrink() *history {
	for at := range h.objects {
		if len(h.objects) > 1 {
			if smaller := h.project(uint8(at)); smaller.isRefused() {
				h = smaller
				break
			}
		}
	}
	h = h.truncate()
	for {
		before := len(h.records)
		h = h.advance().withoutReads()
		if len(h.records) == before {
			return h
		}
	}
}

// project is the history of one object.
func (h *history) project(object uint8) *history {
	made := &history{name: h.name, objects: h.objects}
	for _, one := range h.records {
		for at, part := range one.parts {
			if part.object != object {
				continue
			}
			smaller := *one
			smaller.parts = one.parts[at : at+1]
			if len(one.parts) > 1 && one.outcome == answered {
				smaller.answers = one.answers[at : at+1]
				smaller.isProjection = true
				smaller.isApplied = !slices.ContainsFunc(one.answers, func(a answer) bool { return a.flags&allowed == 0 })
			}
			made.records = append(made.records, &smaller)
		}
	}
	return made
}

// truncate leaves out as much of the end as possible.
func (h *history) truncate() *history {
	ends := make([]int64, 0, len(h.records))
	for _, record := range h.records {
		if record.outcome == answered {
			ends = append(ends, record.end)
		}
	}
	slices.Sort(ends)
	at, _ := slices.BinarySearchFunc(ends, true, func(end int64, _ bool) int {
		if h.until(end).isRefused() {
			return 0
		}
		return -1
	})
	if at == len(ends) {
		return h
	}
	return h.until(ends[at])
}

// until is what is known of the history at a time.
func (h *history) until(time int64) *history {
	made := &history{name: h.name, objects: h.objects, starts: h.starts}
	for _, one := range h.records {
		switch {
		case one.call > time:
		case one.end <= time:
			made.records = append(made.records, one)
		case !one.isRead():
			pending := *one
			pending.outcome, pending.end, pending.answers = unknown, forever, nil
			made.records = append(made.records, &pending)
		}
	}
	return made
}

// isRead is whether the operation changes nothing in any state in which it can have returned what it did.
func (r *record) isRead() bool {
	if r.kind == peek || r.cached {
		return true
	}
	if r.outcome == unknown {
		return false
	}
	switch r.kind {
	case renew:
		return true
	case take:
		return r.answers[0].taken == 0
	case commit, cancel:
		return r.answers[0].flags&found == 0
	default:
		return false
	}
}

// isUnchanging is whether the operation is a read, or a denial by quotas that do not count denials.
func (r *record) isUnchanging(objects []object) bool {
	if r.isRead() {
		return true
	}
	isDecision := r.kind == check || r.kind == staleCheck || r.kind == together || r.kind == reserve || r.kind == remember || r.kind == hold
	if r.outcome == unknown || !isDecision {
		return false
	}
	isDenied := r.isProjection && !r.isApplied
	for at, part := range r.parts {
		isDenied = isDenied || r.answers[at].flags&allowed == 0
		if objects[part.object].policy.quotas[0].countsDenied {
			return false
		}
	}
	return isDenied
}

func (h *history) withoutReads() *history {
	for at := len(h.records) - 1; at >= 0; at-- {
		if !h.records[at].isUnchanging(h.objects) {
			continue
		}
		smaller := *h
		smaller.records = slices.Delete(slices.Clone(h.records), at, at+1)
		if smaller.isRefused() {
			h = &smaller
		}
	}
	return h
}

// Where these are exceeded, a history begins earlier than it could: how many states it may begin in, how many operations run without a
// moment at which none does, and how many orders of them are looked at.
const (
	mostStates    = 64
	mostInSegment = 64
	mostVisits    = 200_000
)

// advance replaces the beginning of the history by the states in which it can have ended. One operation that has changed the state stays
// before the one that cannot be explained: it is often the one that went wrong.
func (h *history) advance() *history {
	sorted := slices.Clone(h.records)
	slices.SortStableFunc(sorted, func(a, b *record) int { return cmp.Compare(a.from(), b.from()) })
	last := slices.MaxFunc(sorted, func(a, b *record) int { return cmp.Compare(a.knownEnd(), b.knownEnd()) })
	isCause := func(r *record) bool {
		return r != last && r.outcome == answered && r.end < last.call && !r.isUnchanging(h.objects)
	}
	states := h.starts
	if len(states) == 0 {
		states = []state{{}}
	}
	best := h
	for begin := 0; begin < len(sorted); {
		next, latest := begin, int64(0)
		for next < len(sorted) && (next == begin || sorted[next].from() <= latest) {
			latest = max(latest, sorted[next].end)
			next++
		}
		if next-begin > mostInSegment || !slices.ContainsFunc(sorted[next:], isCause) {
			break
		}
		states = endings(h.objects, states, sorted[begin:next])
		if len(states) == 0 || len(states) > mostStates {
			break
		}
		smaller := &history{name: h.name, objects: h.objects, starts: states, records: sorted[next:]}
		if !smaller.isRefused() {
			break
		}
		best, begin = smaller, next
	}
	return best
}

// knownEnd is when the operation has returned, and 0 if it has not.
func (r *record) knownEnd() int64 {
	if r.outcome == unknown {
		return 0
	}
	return r.end
}

func (r *record) from() int64 {
	if r.cached {
		return r.since
	}
	return r.call
}

// endings are the states in which the operations can have ended that began in one of the states; none where there are too many orders.
func endings(objects []object, starts []state, records []*record) []state {
	type place struct {
		done uint64
		now  state
	}
	seen, ended := map[place]bool{}, map[state]bool{}
	all := uint64(1)<<len(records) - 1
	var visit func(at place)
	visit = func(at place) {
		if seen[at] || len(seen) > mostVisits {
			return
		}
		seen[at] = true
		if at.done == all {
			ended[at.now] = true
			return
		}
		// What ends first comes before whatever is called after that.
		end := int64(forever)
		for number, record := range records {
			if at.done&(1<<number) == 0 {
				end = min(end, record.end)
			}
		}
		for number, record := range records {
			if at.done&(1<<number) != 0 || record.from() > end {
				continue
			}
			if next, matches := step(objects, at.now, record); matches {
				visit(place{at.done | 1<<number, next})
			}
		}
	}
	for _, start := range starts {
		visit(place{0, start})
	}
	var states []state
	if len(seen) > mostVisits {
		return nil
	}
	for state := range ended {
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b state) int { return cmp.Compare(hash(a), hash(b)) })
	return states
}

// describe is the history as lines; times are milliseconds since its first call.
func (h *history) describe() []string {
	var lines []string
	for at, start := range h.starts {
		word := "from"
		if at > 0 {
			word = "  or"
		}
		lines = append(lines, word+"  "+describeState(h.objects, h.records, start))
	}
	zero := int64(forever)
	for _, record := range h.records {
		zero = min(zero, record.call)
	}
	for _, record := range h.records {
		lines = append(lines, record.describe(h.objects, zero))
	}
	return lines
}
