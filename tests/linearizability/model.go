package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// quota is what the model knows of a quota: its use does not change with time while the histories are recorded, so the algorithm only
// decides about the name of the policy.
type quota struct {
	// capacity is the limit and the excess.
	capacity, excess int32
	countsDenied     bool
}

// policy is a policy of the recorders' limiters.
type policy struct {
	name, text string
	quotas     []quota
	// slots is the number of a quota of concurrency; 0 is none.
	slots int32
}

// saturation is how many times its capacity a quota counts at most.
const saturation = 8

// policies are those of every limiter, with quotas that refill nothing within the next day.
func policies(now time.Time) []*policy {
	long := func(weeks, buckets int) string { return fmt.Sprintf("%dw", withoutEdge(now, weeks, buckets)) }
	return []*policy{
		{name: "window", text: "12/52w fixed_window", quotas: []quota{{capacity: 12}}},
		{name: "pair", text: "9/" + long(52, 10) + " sliding_window; 14/40w token_bucket", quotas: []quota{{capacity: 9}, {capacity: 14}}},
		{name: "log", text: "7/52w sliding_log", quotas: []quota{{capacity: 7}}},
		{name: "counted", text: "8/52w fixed_window count_denied", quotas: []quota{{capacity: 8, countsDenied: true}}},
		{name: "soft", text: "6/" + long(52, 1) + " fixed_window aligned excess=4", quotas: []quota{{capacity: 10, excess: 4}}},
		{name: "queue", text: "9/52w leaky_bucket", quotas: []quota{{capacity: 9}}},
		{name: "bucket", text: "5/52w token_bucket burst=11", quotas: []quota{{capacity: 11}}},
		{name: "jobs", text: "3 concurrent; 20/52w fixed_window", quotas: []quota{{capacity: 20}}, slots: 3},
	}
}

// withoutEdge is the longest period of at most this number of weeks whose sub-windows, which are aligned to the epoch, do not end within
// a day.
func withoutEdge(now time.Time, weeks, buckets int) int {
	for ; ; weeks-- {
		width := int64(weeks) * 7 * 24 * 3600 / int64(buckets)
		left := width - now.Unix()%width
		if left > 24*3600 {
			return weeks
		}
	}
}

// objectState is the state of one key under one policy.
type objectState struct {
	used [2]int16
	// held is the units of a reservation and 1; 0 is an id that is not reserved.
	held [ids]uint8
	// Bits of ids: the commit will be remembered; the commit charges nothing, since the id was committed before; the commit is remembered.
	remembers, repeats, committed uint8
}

// mostObjects is how many objects a history has at most.
const mostObjects = 3

// state is the state of all objects of a history.
type state [mostObjects]objectState

func (o *objectState) alive() (count, units int32) {
	for _, held := range o.held {
		if held > 0 {
			count++
			units += int32(held) - 1
		}
	}
	return count, units
}

// left is what all quotas admit in addition to what is set aside.
func (p *policy) left(o *objectState) int32 {
	_, units := o.alive()
	least := int32(1 << 30)
	for at, quota := range p.quotas {
		least = min(least, max(0, quota.capacity-int32(o.used[at])-units))
	}
	return least
}

func (p *policy) spend(o *objectState, cost int32) {
	for at, quota := range p.quotas {
		o.used[at] = int16(min(int32(o.used[at])+cost, saturation*quota.capacity))
	}
}

// exceeds is whether the cost is above what a quota can ever admit.
func (p *policy) exceeds(cost int32) bool {
	for _, quota := range p.quotas {
		if cost > quota.capacity {
			return true
		}
	}
	return false
}

// admits is whether a request is admitted: one that takes a slot, or one that does not.
func (p *policy) admits(o *objectState, cost int32, takesSlot bool) bool {
	if cost > 0 && cost > p.left(o) {
		return false
	}
	count, _ := o.alive()
	return !takesSlot || p.slots == 0 || count < p.slots
}

// view is the state as an answer shows it.
func (p *policy) view(o *objectState, flags uint8) answer {
	result := answer{flags: flags, remaining: p.left(o)}
	count, units := o.alive()
	if p.slots > 0 && count >= p.slots {
		result.remaining = 0
	}
	isUnused := count == 0
	for at, quota := range p.quotas {
		isUnused = isUnused && o.used[at] == 0
		left := max(0, quota.capacity-int32(o.used[at])-units)
		result.over = max(result.over, quota.excess-left)
	}
	if isUnused {
		result.flags |= unused
	}
	return result
}

// denial is the answer to a request that is denied.
func (p *policy) denial(o *objectState, cost int32) answer {
	if p.exceeds(cost) {
		return p.view(o, never)
	}
	return p.view(o, 0)
}

// peeked is the answer to a peek.
func (p *policy) peeked(o *objectState, cost int32) answer {
	if p.admits(o, cost, true) {
		return p.view(o, allowed)
	}
	return p.denial(o, cost)
}

// request is a check or a reserve of one object: whether it is admitted, and what then happens.
type request struct {
	policy *policy
	cost   int32
	// id is that of a reserve; -1 is a check.
	id        int
	remembers bool
}

// asked is the request of a part of an operation. With an id, policies with slots are reserved, and the others charged.
func asked(p *policy, op *operation, cost int32) request {
	made := request{policy: p, cost: cost, id: -1}
	if p.slots > 0 {
		made.id, made.remembers = int(op.id), op.kind == remember
	}
	return made
}

// isThere is whether the reservation exists, so that a reserve changes nothing.
func (r request) isThere(o *objectState) bool { return r.id >= 0 && o.held[r.id] > 0 }

// units is the cost, or none when the id was committed before.
func (r request) units(o *objectState) int32 {
	if r.id >= 0 && o.committed&(1<<r.id) != 0 {
		return 0
	}
	return r.cost
}

func (r request) isAdmitted(o *objectState) bool {
	return r.isThere(o) || r.policy.admits(o, r.units(o), r.id >= 0)
}

func (r request) admit(o *objectState) answer {
	switch {
	case r.isThere(o):
	case r.id >= 0:
		bit := uint8(1) << r.id
		o.held[r.id] = uint8(r.units(o)) + 1
		o.remembers &^= bit
		o.repeats &^= bit
		if o.committed&bit != 0 {
			o.repeats |= bit
		} else if r.remembers {
			o.remembers |= bit
		}
	default:
		r.policy.spend(o, r.cost)
	}
	return r.policy.view(o, allowed)
}

func (r request) deny(o *objectState) answer {
	cost := r.units(o)
	if !r.policy.exceeds(cost) {
		for at, quota := range r.policy.quotas {
			if quota.countsDenied && cost > 0 {
				o.used[at] = int16(min(int32(o.used[at])+cost, saturation*quota.capacity))
			}
		}
	}
	return r.policy.denial(o, cost)
}

// end is a commit, a cancel or a renew.
func (p *policy) end(o *objectState, op *operation, cost int32) answer {
	bit := uint8(1) << op.id
	flags, isCommit := allowed, op.kind == commit
	held := o.held[op.id]
	if held == 0 {
		if isCommit && o.committed&bit != 0 {
			flags |= repeated
		}
		return p.view(o, flags)
	}
	flags |= found
	if op.kind == renew {
		return p.view(o, flags)
	}
	o.held[op.id] = 0
	if isCommit {
		if o.repeats&bit != 0 {
			flags |= repeated
		} else {
			if cost == asReserved {
				cost = int32(held) - 1
			}
			p.spend(o, cost)
			if o.remembers&bit != 0 {
				o.committed |= bit
			}
		}
	}
	o.remembers &^= bit
	o.repeats &^= bit
	return p.view(o, flags)
}

// apply applies an operation to the objects of a history, and gives its answers.
func apply(objects []object, now *state, op *operation, answers []answer) []answer {
	if op.kind == together {
		isAdmitted := true
		for _, part := range op.parts {
			made := asked(objects[part.object].policy, op, int32(part.cost))
			isAdmitted = isAdmitted && made.isAdmitted(&now[part.object])
		}
		for _, part := range op.parts {
			made, o := asked(objects[part.object].policy, op, int32(part.cost)), &now[part.object]
			answers = append(answers, made.decide(o, isAdmitted))
		}
		return answers
	}
	part := op.parts[0]
	o, p, cost := &now[part.object], objects[part.object].policy, int32(part.cost)
	switch op.kind {
	case check, reserve, remember, hold, staleCheck:
		made := asked(p, op, cost)
		return append(answers, made.decide(o, made.isAdmitted(o)))
	case peek:
		return append(answers, p.peeked(o, cost))
	case take:
		taken := min(p.left(o), cost)
		p.spend(o, taken)
		result := p.view(o, allowed|found)
		result.taken = taken
		return append(answers, result)
	case charge:
		p.spend(o, cost)
	case refund, refundTwice:
		for at := range p.quotas {
			o.used[at] = max(0, o.used[at]-int16(cost))
		}
	case reset:
		*o = objectState{}
	case commit, cancel, renew, chargeAgain:
		plain := *op
		if plain.kind == chargeAgain {
			plain.kind = commit
		}
		return append(answers, p.end(o, &plain, cost))
	}
	return append(answers, p.view(o, allowed|found))
}

// decide is the answer to one part of a request that is admitted, or not. A part that admits in a request that is denied changes nothing.
func (r request) decide(o *objectState, isAdmitted bool) answer {
	switch {
	case isAdmitted:
		return r.admit(o)
	case r.isAdmitted(o):
		return r.policy.view(o, allowed)
	default:
		return r.deny(o)
	}
}

// model is the specification of Porcupine for histories of these objects that begin in a state.
func model(objects []object, start state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(before, input, _ any) (bool, any) {
			now := before.(state)
			next, matches := step(objects, now, input.(*record))
			if !matches || next == now {
				return matches, before
			}
			return true, next
		},
		Hash: func(s any) uint64 { return hash(s.(state)) },
	}
}

// reached is one of the states in which a history with unknown outcomes can be: left are the bits of the operations that may still happen.
type reached struct {
	now  state
	left uint64
}

// mostUnknown is how many unknown outcomes a history may have for nondeterministicModel.
const mostUnknown = 64

// nondeterministicModel is the specification for a history with these unknown outcomes. An operation whose outcome is unknown only
// becomes possible at its call; it happens before any later operation on the same object, or never. So Porcupine follows the set of states
// that the answers leave, and does not try the orders of what may have happened one after the other.
func nondeterministicModel(objects []object, start state, unknowns []*record) porcupine.Model {
	bits := map[*record]uint64{}
	for at, record := range unknowns {
		bits[record] = 1 << at
	}
	made := porcupine.NondeterministicModel{
		Init: func() []any { return []any{reached{now: start}} },
		Step: func(before, input, _ any) []any {
			now, r := before.(reached), input.(*record)
			if r.outcome == unknown {
				now.left |= bits[r]
				return []any{now}
			}
			var after []any
			seen := map[reached]bool{now: true}
			for waiting := []reached{now}; len(waiting) > 0; {
				at := waiting[len(waiting)-1]
				waiting = waiting[:len(waiting)-1]
				if next, matches := step(objects, at.now, r); matches {
					after = append(after, reached{next, at.left})
				}
				for number, other := range unknowns {
					if at.left&(1<<number) == 0 || !r.meets(other) {
						continue
					}
					for _, one := range outcomes(objects, at.now, other) {
						next := reached{one, at.left &^ (1 << number)}
						if next.now != at.now && !seen[next] {
							seen[next] = true
							waiting = append(waiting, next)
						}
					}
				}
			}
			return after
		},
		Hash: func(s any) uint64 { return hash(s.(reached).now)*31 + s.(reached).left },
	}
	return made.ToModel()
}

// outcomes is the states in which an operation with an unknown outcome can leave the objects, if it happens. A process that is killed may
// have written some parts of a request over several policies and not the others.
func outcomes(objects []object, now state, r *record) []state {
	whole, _ := step(objects, now, r)
	states := []state{whole}
	if r.kind != together || !r.isKilled {
		return states
	}
	for _, part := range r.parts {
		if !asked(objects[part.object].policy, &r.operation, int32(part.cost)).isAdmitted(&now[part.object]) {
			return states
		}
	}
	states[0] = now
	for _, part := range r.parts {
		for _, one := range states {
			one[part.object] = whole[part.object]
			states = append(states, one)
		}
	}
	return states
}

// meets is whether two operations name the same object.
func (r *record) meets(other *record) bool {
	for _, part := range r.parts {
		for _, one := range other.parts {
			if part.object == one.object {
				return true
			}
		}
	}
	return false
}

// step is the state after an operation, and whether the operation can have returned what it did.
func step(objects []object, now state, r *record) (state, bool) {
	var space [mostObjects]answer
	if r.isProjection && r.outcome == answered {
		part := r.parts[0]
		made, o := asked(objects[part.object].policy, &r.operation, int32(part.cost)), &now[part.object]
		if r.isApplied && !made.isAdmitted(o) {
			return now, false
		}
		return now, made.decide(o, r.isApplied) == r.answers[0]
	}
	answers := apply(objects, &now, &r.operation, space[:0])
	if r.outcome == unknown {
		return now, true
	}
	for at, expected := range answers {
		if expected != r.answers[at] {
			return now, false
		}
	}
	return now, true
}

func hash(s state) uint64 {
	sum := uint64(14695981039346656037)
	mix := func(value uint64) { sum = (sum ^ value) * 1099511628211 }
	for at := range s {
		o := &s[at]
		mix(uint64(uint16(o.used[0]))<<16 | uint64(uint16(o.used[1])))
		mix(uint64(o.held[0]) | uint64(o.held[1])<<8 | uint64(o.held[2])<<16 | uint64(o.held[3])<<24)
		mix(uint64(o.remembers) | uint64(o.repeats)<<8 | uint64(o.committed)<<16)
	}
	return sum
}

// describeState is the state of the objects that the records name.
func describeState(objects []object, records []*record, s state) string {
	var words []string
	for at, object := range objects {
		isNamed := func(r *record) bool {
			return slices.ContainsFunc(r.parts, func(p part) bool { return int(p.object) == at })
		}
		if !slices.ContainsFunc(records, isNamed) {
			continue
		}
		o, p := &s[at], object.policy
		text := fmt.Sprintf("%s %s: %d used", p.name, object.key, o.used[0])
		if len(p.quotas) > 1 {
			text = fmt.Sprintf("%s %s: %d and %d used", p.name, object.key, o.used[0], o.used[1])
		}
		for id, held := range o.held {
			bit := uint8(1) << id
			if held > 0 {
				text += fmt.Sprintf(", id %d holds %d", id, held-1)
			}
			for _, mark := range []struct {
				bits uint8
				name string
			}{{o.remembers, "will be remembered"}, {o.repeats, "was committed before"}, {o.committed, "is remembered"}} {
				if mark.bits&bit != 0 {
					text += fmt.Sprintf(", id %d %s", id, mark.name)
				}
			}
		}
		words = append(words, text)
	}
	return strings.Join(words, "; ")
}
