package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// group is the objects of one history, and which operations clients do on them.
type group struct {
	objects []object
	// withDefect is the operation that takes the place of another one; see defects.go.
	defect, instead kind
	hasDefect       bool
}

// shapes are the policies of a group's objects, and the numbers of their keys.
var shapes = [][]struct {
	policy string
	key    int
}{
	{{"window", 0}},
	{{"pair", 0}},
	{{"log", 0}},
	{{"counted", 0}},
	{{"soft", 0}},
	{{"queue", 0}},
	{{"bucket", 0}},
	{{"jobs", 0}},
	{{"jobs", 0}, {"window", 0}},
	{{"window", 0}, {"bucket", 0}, {"log", 0}},
	{{"window", 0}, {"window", 1}, {"pair", 2}},
	{{"jobs", 0}, {"counted", 1}, {"jobs", 1}},
}

// crosses is whether the requests of a shape would cross slots of a cluster, where they are not atomic.
func crosses(shape int) bool {
	for _, part := range shapes[shape] {
		if part.key > 0 {
			return true
		}
	}
	return false
}

// newGroup makes the objects of a history; their keys begin with the name.
func newGroup(known []*policy, name string, shape int) *group {
	made := &group{}
	for _, part := range shapes[shape] {
		for _, policy := range known {
			if policy.name == part.policy {
				made.objects = append(made.objects, object{policy, fmt.Sprintf("%s-%d", name, part.key)})
			}
		}
	}
	return made
}

// weights of the operations on policies without slots, and with them. Refunds and resets are frequent, so that keys are denied often and
// not for ever.
var (
	plainWeights = weighted{check: 38, peek: 8, take: 8, charge: 5, refund: 22, reset: 2}
	slotWeights  = weighted{peek: 7, charge: 3, refund: 10, reset: 4, reserve: 14, remember: 14, hold: 8, commit: 22, cancel: 12, renew: 3}
)

type weighted map[kind]int

func (w weighted) pick(random *rand.Rand) kind {
	total := 0
	for known := check; known <= renew; known++ {
		total += w[known]
	}
	at := random.IntN(total)
	for known := check; ; known++ {
		if at -= w[known]; at < 0 {
			return known
		}
	}
}

// pick is a random operation on objects of the group.
func (g *group) pick(random *rand.Rand) operation {
	if len(g.objects) > 1 && random.IntN(4) == 0 {
		made := operation{kind: together, id: uint8(random.IntN(ids))}
		for at := range g.objects {
			if random.IntN(4) > 0 || len(made.parts) == 0 {
				made.parts = append(made.parts, part{uint8(at), g.cost(random, at)})
			}
		}
		if len(made.parts) > 0 {
			return made
		}
	}
	at := random.IntN(len(g.objects))
	weights := plainWeights
	if g.objects[at].policy.slots > 0 {
		weights = slotWeights
	}
	made := operation{kind: weights.pick(random), id: uint8(random.IntN(ids)), parts: []part{{uint8(at), g.cost(random, at)}}}
	switch {
	case made.kind == charge && random.IntN(12) == 0:
		// Use saturates.
		made.parts[0].cost = int16(g.objects[at].policy.quotas[0].capacity) * (saturation - 1)
	case made.kind == refund:
		made.parts[0].cost *= 2
	case made.kind == commit && random.IntN(2) == 0:
		made.parts[0].cost = asReserved
	}
	if g.hasDefect && made.kind == g.instead {
		made.kind = g.defect
	}
	return made
}

// cost is most often 1 to 3, and sometimes nothing or more than can ever be admitted.
func (g *group) cost(random *rand.Rand, at int) int16 {
	switch random.IntN(40) {
	case 0:
		return 0
	case 1:
		return int16(g.objects[at].policy.quotas[0].capacity) + 1
	default:
		return int16(1 + random.IntN(3))
	}
}

// concurrent is how many histories clients work on at a time: few, so that they meet.
const concurrent = 2

// program is the operations of one client in a round: the group of each, and what it does there.
type program struct {
	groups     []int
	operations []operation
}

// newProgram makes a client's operations. The groups follow one another, so that clients that begin together work on the same ones.
func newProgram(random *rand.Rand, groups []*group, operations int) program {
	made := program{make([]int, operations), make([]operation, operations)}
	for at := range operations {
		first := at * max(1, len(groups)-concurrent+1) / operations
		made.groups[at] = first + random.IntN(min(concurrent, len(groups)-first))
		made.operations[at] = groups[made.groups[at]].pick(random)
	}
	return made
}

// write writes a client's operations as recorders read them: a line for each, with the number of the group's first object in the round.
func (p program) write(text *strings.Builder, firsts []int) {
	fmt.Fprintln(text, len(p.operations))
	for at, op := range p.operations {
		fmt.Fprintf(text, "%s %d", op.kind, op.id)
		for _, part := range op.parts {
			fmt.Fprintf(text, " %d:%d", firsts[p.groups[at]]+int(part.object), part.cost)
		}
		text.WriteByte('\n')
	}
}
