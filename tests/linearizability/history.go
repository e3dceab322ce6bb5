package main

import (
	"fmt"
	"math"
	"strings"
)

// kind is an operation of a limiter. Its name is the word in the programs that recorders read.
type kind uint8

const (
	check kind = iota
	peek
	take
	charge
	refund
	reset
	// together is CheckTogether or, where a part has slots and the operation an id, ReserveTogether.
	together
	// reserve and remember are ReserveTogether of one request; with remember the store remembers the commit.
	reserve
	remember
	// hold is Reserve, whose handle lets the reservation go.
	hold
	commit
	cancel
	renew
	// Deliberate defects of the recorder of Go, which records one operation.
	refundTwice // refunds a second time
	chargeAgain // charges what it has committed a second time
	staleCheck  // answers from the latest denial, whatever has happened since
)

var kindNames = [...]string{
	"check", "peek", "take", "charge", "refund", "reset", "together", "reserve", "remember", "hold", "commit", "cancel", "renew",
	"refund_twice", "charge_again", "stale_check",
}

func (k kind) String() string { return kindNames[k] }

func kindOf(name string) (kind, error) {
	for at, known := range kindNames {
		if known == name {
			return kind(at), nil
		}
	}
	return 0, fmt.Errorf("operation %q is not known", name)
}

// asReserved is the cost of a commit that charges what was reserved.
const asReserved = -1

// part is one request of an operation: a place in the objects of the history, and units.
type part struct {
	object uint8
	cost   int16
}

// ids is how many reservation ids there are for each object.
const ids = 4

// operation is what a client calls.
type operation struct {
	kind  kind
	id    uint8
	parts []part
}

// outcome is what is known of an operation after its call.
type outcome uint8

const (
	// answered means that the store has answered.
	answered outcome = iota
	// unknown means that the operation may have happened, and may happen at any later time.
	unknown
)

// answer is what an operation returned for one part. Only what does not depend on time is recorded.
type answer struct {
	flags                  uint8
	remaining, over, taken int32
}

const (
	// allowed: the decision admits; true in every answer that is no decision.
	allowed uint8 = 1 << iota
	// unused: reset_after is 0, so nothing counts as used.
	unused
	// never: retry_after is "never".
	never
	// found and repeated are those of a commit, a cancel or a renew.
	found
	repeated
)

func (a answer) String() string {
	words := []string{"denied"}
	if a.flags&allowed != 0 {
		words[0] = "ok"
	}
	for at, name := range []string{"", "unused", "never", "found", "repeated"} {
		if at > 0 && a.flags&(1<<at) != 0 {
			words = append(words, name)
		}
	}
	words = append(words, fmt.Sprintf("%d remaining", a.remaining))
	if a.taken > 0 {
		words = append(words, fmt.Sprintf("%d taken", a.taken))
	}
	if a.over > 0 {
		words = append(words, fmt.Sprintf("%d over", a.over))
	}
	return strings.Join(words, ", ")
}

// object is a key under a policy.
type object struct {
	policy *policy
	key    string
}

// record is an operation of a history: who called it, when, and what it returned.
type record struct {
	operation
	process, client int
	call, end       int64
	// since is from when on the operation may have happened: its call, or earlier for a denial of the cache.
	since   int64
	outcome outcome
	answers []answer
	// cached: the denial cache has answered. A request whose parts it has answered in part is as many records as it has parts.
	cached bool
	// isProjection: the record is one part of a request that others were part of, and isApplied is whether all of them admitted it.
	isProjection, isApplied bool
	// isKilled: the process was killed in the middle of the operation.
	isKilled bool
}

// forever is the end of an operation whose outcome is unknown.
const forever = math.MaxInt64

// history is what has happened to some objects, which no operation outside of it names.
type history struct {
	name    string
	objects []object
	records []*record
	// starts are the states in which the history may begin; none is a history of keys that were never used.
	starts []state
}

func (r *record) describe(objects []object, zero int64) string {
	var words []string
	for _, part := range r.parts {
		text := objects[part.object].policy.name + " " + objects[part.object].key
		if part.cost == asReserved {
			text += " as reserved"
		} else if r.kind != reset && r.kind != cancel && r.kind != renew {
			text += fmt.Sprintf(" %d", part.cost)
		}
		words = append(words, text)
	}
	text := fmt.Sprintf("client %d.%d  %s(%s", r.process, r.client, r.kind, strings.Join(words, ", "))
	takesID := r.kind.takesID()
	for _, part := range r.parts {
		takesID = takesID || r.kind == together && objects[part.object].policy.slots > 0
	}
	if takesID {
		text += fmt.Sprintf(", id %d", r.id)
	}
	ended := "..."
	if r.end != forever {
		ended = fmt.Sprintf("%.3f", float64(r.end-zero)/1e6)
	}
	text = fmt.Sprintf("[%9.3f, %9s] ms  %s)", float64(r.call-zero)/1e6, ended, text)
	if r.outcome == unknown {
		return text + " -> unknown"
	}
	if r.isProjection && !r.isApplied {
		text += " of a request that was denied"
	}
	for at, answer := range r.answers {
		separator := "; "
		if at == 0 {
			separator = " -> "
		}
		text += separator + answer.String()
	}
	if r.cached {
		text += " (denial cache)"
	}
	return text
}

func (k kind) takesID() bool {
	switch k {
	case reserve, remember, hold, commit, cancel, renew, chargeAgain:
		return true
	default:
		return false
	}
}
