package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// defect is something that is done wrong on purpose, in a run of the real product, and that must be found.
type defect struct {
	name string
	// The recorder of Go does this operation in place of that one.
	hasKind       bool
	kind, instead kind
	// disturb does it while the recorders run.
	disturb func(url string, groups []*group, random *rand.Rand, stop <-chan struct{})
}

func (p program) withoutDefects() {
	for at := range p.operations {
		switch kind := &p.operations[at].kind; *kind {
		case refundTwice:
			*kind = refund
		case chargeAgain:
			*kind = commit
		case staleCheck:
			*kind = check
		}
	}
}

// defectsOf are the rows with deliberate defects of a store.
func defectsOf(store, url string) ([]*row, error) {
	rows, err := rowsOf(store, url)
	if err != nil {
		return nil, err
	}
	with := func(row row, found defect) *row {
		row.name, row.defect, row.histories, row.proxies = store+": "+found.name, &found, 12, nil
		return &row
	}
	refunds := defect{name: "a refund is applied twice", hasKind: true, kind: refundTwice, instead: refund}
	commits := defect{name: "a commit charges twice", hasKind: true, kind: chargeAgain, instead: commit}
	switch store {
	case "memory":
		// Two processes are taken for one store, though neither sees what the other does.
		apart := *rows[0]
		apart.languages, apart.clients = []string{"go", "go"}, 3
		return []*row{with(*rows[0], refunds), with(*rows[0], commits), with(apart, defect{name: "processes share nothing"})}, nil
	case "local":
		return []*row{with(*rows[0], refunds), with(*rows[0], commits)}, nil
	}
	stale := defect{name: "a denial is cached for ever", hasKind: true, kind: staleCheck, instead: check}
	made := []*row{with(*rows[0], refunds), with(*rows[0], commits), with(*rows[1], stale)}
	twice := with(*rows[0], defect{name: "the network delivers a request twice"})
	if _, twice.url, err = throughProxies(url, 0, 20); err != nil {
		return nil, err
	}
	twice.url = strings.Replace(twice.url, "deadline="+faultDeadline.String(), "deadline=30s", 1)
	made = append(made, twice)
	if store != "cluster" {
		made = append(made, with(*rows[0], defect{name: "an update is lost", disturb: loseUpdates}))
	}
	return made, nil
}

// loseUpdates reads the states of random keys and writes them back a moment later, so that the updates in between are lost.
func loseUpdates(url string, groups []*group, random *rand.Rand, stop <-chan struct{}) {
	_, rest, _ := strings.Cut(url, "://")
	address, _, _ := strings.Cut(rest, "?")
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer connection.Close()
	client := redisClient{connection}
	for {
		group := groups[random.IntN(len(groups))]
		object := group.objects[random.IntN(len(group.objects))]
		key := fmt.Sprintf("polylimit:1:%s:{%s}", object.policy.name, object.key)
		before, err := client.call("GET", key)
		if err != nil {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		if before != nil {
			if _, err := client.call("SET", key, string(before), "KEEPTTL"); err != nil {
				return
			}
		}
	}
}
