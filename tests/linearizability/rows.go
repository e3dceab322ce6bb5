package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
)

// row is one way to record histories: a store, its processes and what disturbs them.
type row struct {
	name, url string
	// languages are those of the processes, and clients how many threads or loops each has.
	languages []string
	clients   int
	// perHistory is how many operations a history has on average, and histories how many a round has.
	perHistory, histories int
	// isCached is whether the denial cache is on.
	isCached bool
	// faults are cut connections (proxies), suspended processes or killed ones.
	proxies                []*proxy
	isSuspended, isKilling bool
	// share is the part of the operations of its store that the row has.
	share float64
	// shapes are the shapes of its histories.
	shapes []int
	// defect is what is done wrong on purpose.
	defect *defect
}

// counts are what a row has done.
type counts struct {
	operations, keys, histories, overlapping int
	cached, unknown, notApplied              int
	refused, undecided                       int
	seconds                                  float64
	// examples are some of the histories that were refused, of which the smallest is shown.
	examples []*history
}

func (r *row) mayFail() bool { return len(r.proxies) > 0 || r.isSuspended || r.isKilling }

// run records histories and checks them until that number of operations is checked, or the time is over; with a defect, until one is
// refused.
func (r *row) run(folder string, operations int, random *rand.Rand, limit time.Duration) (total counts, err error) {
	known := policies(time.Now())
	var processes []*process
	start := func(at int) (*process, error) {
		made, err := startProcess(r.languages[at], folder, r.url, at, r.clients, known)
		if err == nil {
			made.isJournal = r.isKilling && r.languages[at] == "go"
		}
		return made, err
	}
	defer func() {
		for _, process := range processes {
			if failure := process.stop(); failure != nil && err == nil {
				err = fmt.Errorf("%s: %w", process.name, failure)
			}
		}
	}()
	for at := range r.languages {
		process, err := start(at)
		if err != nil {
			return total, err
		}
		processes = append(processes, process)
	}
	if r.defect == nil {
		r.histories = min(r.histories, max(8, operations/r.perHistory))
	}
	checker := newChecker()
	began := time.Now()
	reported := began
	for number := 0; (total.operations < operations || r.lacks(&total)) && time.Since(began) < limit; number++ {
		for at, process := range processes {
			if process.isKilled {
				_ = process.stop()
				if processes[at], err = start(at); err != nil {
					return total, err
				}
			}
		}
		groups := r.groups(known, random, number)
		r.assign(processes, groups, random)
		var disturbing func(<-chan struct{})
		if r.isSuspended || r.isKilling || (r.defect != nil && r.defect.disturb != nil) {
			source := rand.New(rand.NewPCG(random.Uint64(), 0))
			disturbing = func(stop <-chan struct{}) { r.disturb(processes, groups, source, stop) }
		}
		histories, err := round(processes, groups, r.mayFail(), &total, disturbing)
		if err != nil {
			return total, err
		}
		for _, history := range histories {
			history.justify()
			total.operations += len(history.records)
			total.keys += len(history.objects)
			total.histories++
			total.overlapping += history.overlapping()
			checker.add(history)
		}
		if r.defect != nil || number%16 == 15 {
			checker.settle(&total)
			if total.refused > 0 {
				break
			}
		}
		if time.Since(reported) > progressEvery {
			reported = time.Now()
			if r.defect == nil {
				fmt.Printf("  %s: %d of %d operations\n", r.name, total.operations, operations)
			}
		}
	}
	checker.settle(&total)
	total.seconds = time.Since(began).Seconds()
	return total, nil
}

// progressEvery is how often a row reports how far it is.
const progressEvery = 15 * time.Second

// lacks is whether nothing has happened of what the row is for.
func (r *row) lacks(total *counts) bool {
	return r.mayFail() && total.unknown+total.notApplied == 0 || r.isCached && total.cached == 0
}

// groups are those of a round. Their keys are new ones: a store that outlives this program has never seen them.
func (r *row) groups(known []*policy, random *rand.Rand, number int) []*group {
	made := make([]*group, r.histories)
	for at := range made {
		shape := r.shapes[random.IntN(len(r.shapes))]
		made[at] = newGroup(known, fmt.Sprintf("%d-%x-%d-%d", os.Getpid(), time.Now().UnixMicro(), number, at), shape)
		if r.defect != nil && r.defect.hasKind {
			made[at].hasDefect, made[at].defect, made[at].instead = true, r.defect.kind, r.defect.instead
		}
	}
	return made
}

// assign shares the operations of a round among the clients by their speeds, so that they end at the same time.
func (r *row) assign(processes []*process, groups []*group, random *rand.Rand) {
	sum := 0.0
	for _, process := range processes {
		sum += process.speed * float64(process.clients)
	}
	for _, process := range processes {
		count := max(len(groups), int(float64(r.perHistory*len(groups))*process.speed/sum))
		process.programs = nil
		for range process.clients {
			made := newProgram(random, groups, count)
			if process.name != "go" {
				made.withoutDefects()
			}
			process.programs = append(process.programs, made)
		}
	}
}

// disturb makes the faults of the row until the channel is closed.
func (r *row) disturb(processes []*process, groups []*group, random *rand.Rand, stop <-chan struct{}) {
	switch {
	case r.defect != nil && r.defect.disturb != nil:
		r.defect.disturb(r.url, groups, random, stop)
	case r.isSuspended:
		for isOver := false; !isOver; {
			process := processes[random.IntN(len(processes))]
			_ = process.command.Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(2+random.IntN(12)) * time.Millisecond)
			_ = process.command.Process.Signal(syscall.SIGCONT)
			select {
			case <-stop:
				isOver = true
			case <-time.After(time.Duration(2+random.IntN(15)) * time.Millisecond):
			}
		}
	case r.isKilling:
		// The last one, in another language, lives.
		process := processes[random.IntN(len(processes)-1)]
		select {
		case <-stop:
		case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
			process.isKilled = true
			_ = process.command.Process.Kill()
		}
	}
}

// mostExamples is how many of the histories that were refused are made smaller.
const mostExamples = 6

// checker checks histories while others are recorded.
type checker struct {
	waiting chan *history
	results chan checked
	pending int
}

type checked struct {
	history *history
	result  porcupine.CheckResult
}

func newChecker() *checker {
	made := &checker{waiting: make(chan *history, 1<<16), results: make(chan checked, 1<<16)}
	for range 2 {
		go func() {
			for history := range made.waiting {
				made.results <- checked{history, history.check(checkTimeout)}
			}
		}()
	}
	return made
}

func (c *checker) add(history *history) {
	c.pending++
	c.waiting <- history
}

// settle waits until all histories are checked.
func (c *checker) settle(total *counts) {
	for ; c.pending > 0; c.pending-- {
		switch done := <-c.results; done.result {
		case porcupine.Illegal:
			total.refused++
			if len(total.examples) < mostExamples {
				total.examples = append(total.examples, done.history)
			}
		case porcupine.Unknown:
			total.undecided++
		}
	}
}

// faultsOneOf is of how many requests that arrive at a proxy one is the beginning of a fault.
const faultsOneOf = 60

// rowsOf are the rows of a store.
func rowsOf(store, url string) ([]*row, error) {
	all := make([]int, len(shapes))
	for at := range all {
		all[at] = at
	}
	mixed := []string{"go", "python", "node"}
	plain := row{name: store, url: url, languages: mixed, clients: 3, perHistory: 200, histories: 48, share: 1, shapes: all}
	short := plain
	short.perHistory = 50
	switch store {
	case "memory":
		// Each process has a store of its own.
		inGo, inPython := plain, plain
		inGo.name, inGo.languages, inGo.clients, inGo.share = "memory, Go", mixed[:1], 6, 0.7
		inPython.name, inPython.languages, inPython.clients, inPython.share = "memory, Python", mixed[1:2], 4, 0.3
		return []*row{&inGo, &inPython}, nil
	case "local":
		plain.share = 0.9
		suspended, killed := short, short
		suspended.name, suspended.isSuspended, suspended.share = "local, processes suspended", true, 0.08
		killed.name, killed.isKilling, killed.share = "local, processes killed", true, 0.02
		killed.languages = []string{"go", "go", "python"}
		return []*row{&plain, &suspended, &killed}, nil
	case "redis", "valkey", "cluster":
		if store == "cluster" {
			plain.shapes = nil
			for _, shape := range all {
				if !crosses(shape) {
					plain.shapes = append(plain.shapes, shape)
				}
			}
		}
		plain.url = url + "&outage=deny&denial_cache_max=0"
		cached := plain
		cached.name, cached.isCached, cached.perHistory = store+", denial cache", true, 100
		cached.url = fmt.Sprintf("%s&outage=deny&denial_cache_max=%s", url, denialCacheMax)
		faulty := cached
		faulty.name, faulty.perHistory = store+", connections cut", 50
		var err error
		if faulty.proxies, faulty.url, err = throughProxies(url, faultsOneOf, 0); err != nil {
			return nil, err
		}
		plain.share, cached.share, faulty.share = 0.6, 0.3, 0.1
		return []*row{&plain, &cached, &faulty}, nil
	}
	return nil, fmt.Errorf("store %q is not known", store)
}

// throughProxies is a URL whose servers are reached through proxies, with a short deadline.
func throughProxies(url string, faultsOneOf, duplicates int) (proxies []*proxy, through string, err error) {
	scheme, rest, _ := strings.Cut(url, "://")
	hosts, _, _ := strings.Cut(rest, "?")
	var addresses, pairs []string
	for _, host := range strings.Split(hosts, ",") {
		made, err := newProxy(host, faultsOneOf, duplicates)
		if err != nil {
			return nil, "", err
		}
		proxies = append(proxies, made)
		addresses = append(addresses, made.address())
		pairs = append(pairs, host+"="+made.address())
	}
	through = fmt.Sprintf("%s://%s?deadline=%s&outage=deny&denial_cache_max=%s&reconnect_max=20ms", scheme, strings.Join(addresses, ","),
		faultDeadline, denialCacheMax)
	if len(pairs) > 1 {
		through += "&address_map=" + strings.Join(pairs, ",")
	}
	return proxies, through, nil
}
