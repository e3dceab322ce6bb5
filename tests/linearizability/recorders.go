package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// process is a recorder that runs.
type process struct {
	name    string
	number  int
	clients int
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	// speed is operations a second of one client, by which the operations of a round are shared out, so that all end at the same time.
	speed float64
	// The programs of the round.
	programs []program
	// What was read of the round's output, by the goroutine that reads it.
	lines     []string
	isKilled  bool
	isJournal bool
}

// programs are the recorders of each language; the paths are relative to the folder of this program's source.
func command(language, folder string) ([]string, error) {
	switch language {
	case "go":
		own, err := os.Executable()
		return []string{own, "record"}, err
	case "python":
		return []string{folder + "/../../target/python-venv/bin/python", folder + "/recorder.py"}, nil
	case "node":
		return []string{"node", folder + "/recorder.cjs"}, nil
	}
	return nil, fmt.Errorf("there is no recorder in %q", language)
}

func startProcess(language, folder, url string, number, clients int, known []*policy) (*process, error) {
	arguments, err := command(language, folder)
	if err != nil {
		return nil, err
	}
	arguments = append(arguments, url)
	for _, policy := range known {
		arguments = append(arguments, policy.name+"="+policy.text)
	}
	made := &process{name: language, number: number, clients: clients, command: exec.Command(arguments[0], arguments[1:]...), speed: 1000}
	made.command.Stderr = os.Stderr
	if made.input, err = made.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := made.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	made.output = bufio.NewReaderSize(output, 1<<20)
	return made, made.command.Start()
}

func (p *process) stop() error {
	_ = p.input.Close()
	err := p.command.Wait()
	if p.isKilled {
		return nil
	}
	return err
}

// prepare sends the programs of a round, and waits until the process has read them.
func (p *process) prepare(groups []*group, firsts []int) error {
	var text strings.Builder
	objects := 0
	for _, group := range groups {
		objects += len(group.objects)
	}
	journal := 0
	if p.isJournal {
		journal = 1
	}
	fmt.Fprintf(&text, "round %d %d %d\n", objects, len(p.programs), journal)
	for _, group := range groups {
		for _, object := range group.objects {
			fmt.Fprintf(&text, "%s %s\n", object.policy.name, object.key)
		}
	}
	for _, program := range p.programs {
		program.write(&text, firsts)
	}
	if _, err := io.WriteString(p.input, text.String()); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	line, err := readLine(p.output)
	if err == nil && line != "ready" {
		err = fmt.Errorf("it has answered %q", line)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// collect reads what the process writes about a round.
func (p *process) collect() error {
	p.lines = p.lines[:0]
	for {
		line, err := readLine(p.output)
		if p.isKilled && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if line == "done" {
			return nil
		}
		p.lines = append(p.lines, line)
	}
}

// notApplied are the reasons of an outage policy for which an operation has had no effect and will have none, by docs/redis.md and
// docs/local.md: it was not sent, was refused because it came too late, or a lock was not free.
var notApplied = []string{"unreachable", "late", "shed", "no_resources", "busy"}

// records reads what was recorded of a round; the indexes are those of groups. mayFail is whether there are faults. Without them the local
// store may still be busy: a process that has a lock and waits for a processor for more than a second, as on a machine with other load, is
// taken for one that is stopped.
func (p *process) records(groups []*group, mayFail bool, counts *counts) ([][]*record, error) {
	made := make([][]*record, len(groups))
	calls := map[[2]int]int64{}
	first, last := int64(forever), int64(0)
	done := 0
	for _, line := range p.lines {
		words := strings.Split(strings.TrimPrefix(line, "> "), " ")
		numbers := make([]int64, 0, 4)
		for _, word := range words[:min(4, len(words))] {
			number, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", p.name, line, err)
			}
			numbers = append(numbers, number)
		}
		client, at := int(numbers[0]), int(numbers[1])
		place := [2]int{client, at}
		if strings.HasPrefix(line, "> ") {
			calls[place] = numbers[2]
			continue
		}
		delete(calls, place)
		done++
		program := p.programs[client]
		one := &record{operation: program.operations[at], process: p.number, client: client, call: numbers[2], end: numbers[3]}
		first, last = min(first, one.call), max(last, one.end)
		several, err := one.read(words[4:], mayFail, counts)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", p.name, line, err)
		}
		made[program.groups[at]] = append(made[program.groups[at]], several...)
	}
	// The process was killed in the middle of these.
	for place, call := range calls {
		program := p.programs[place[0]]
		counts.unknown++
		lost := &record{operation: program.operations[place[1]], process: p.number, client: place[0], call: call, end: forever, outcome: unknown, isKilled: true}
		made[program.groups[place[1]]] = append(made[program.groups[place[1]]], lost)
	}
	if done > 0 && !p.isKilled {
		p.speed = 0.5*p.speed + 0.5*float64(done)/float64(p.clients)/(float64(last-first+1)/1e9)
	}
	return made, nil
}

// read reads the answers of an operation, and gives the records that it is.
func (r *record) read(words []string, mayFail bool, counts *counts) ([]*record, error) {
	if len(words) == 0 {
		return nil, errors.New("the line ends early")
	}
	isUnknown := func() ([]*record, error) {
		counts.unknown++
		r.outcome, r.end = unknown, forever
		return []*record{r}, nil
	}
	if strings.HasPrefix(words[0], "!") {
		if mayFail {
			return isUnknown()
		}
		return nil, errors.New(strings.Join(words, " "))
	}
	var cached []bool
	for _, word := range words {
		fields := strings.Split(word, ",")
		if len(fields) != 6 {
			return nil, errors.New("an answer has not six fields")
		}
		var numbers [4]int64
		for at := range numbers {
			var err error
			if numbers[at], err = strconv.ParseInt(fields[at], 10, 32); err != nil {
				return nil, err
			}
		}
		source, degraded := fields[4], fields[5]
		switch {
		case isOutageSource(source) && !mayFail && degraded != "busy":
			return nil, errors.New("the outage policy has answered, without a fault")
		case isOutageSource(source) && slices.Contains(notApplied, degraded):
			counts.notApplied++
			return nil, nil
		case isOutageSource(source):
			return isUnknown()
		case degraded != "" || source != "store" && source != "denial_cache":
			return nil, fmt.Errorf("the answer is of %q, degraded %q", source, degraded)
		}
		cached = append(cached, source == "denial_cache")
		r.answers = append(r.answers, answer{uint8(numbers[0]), int32(numbers[1]), int32(numbers[2]), int32(numbers[3])})
	}
	if len(r.answers) != len(r.parts) {
		return nil, fmt.Errorf("%d answers for %d requests", len(r.answers), len(r.parts))
	}
	if !slices.Contains(cached, true) {
		return []*record{r}, nil
	}
	// Where the cache denies a part of a request, nothing is spent and the store is only peeked for the others.
	several := make([]*record, 0, len(r.parts))
	for at, isCached := range cached {
		one := *r
		one.kind, one.parts, one.answers, one.cached = peek, r.parts[at:at+1], r.answers[at:at+1], isCached
		if isCached {
			one.kind = check
			counts.cached++
		}
		several = append(several, &one)
	}
	return several, nil
}

// round has the processes do random operations on groups at the same time, and gives a history of each group. While they run, disturb is
// called, if there is one; it ends when the channel is closed.
func round(processes []*process, groups []*group, mayFail bool, counts *counts, disturb func(stop <-chan struct{})) ([]*history, error) {
	firsts := make([]int, len(groups))
	for at := 1; at < len(groups); at++ {
		firsts[at] = firsts[at-1] + len(groups[at-1].objects)
	}
	for _, process := range processes {
		if err := process.prepare(groups, firsts); err != nil {
			return nil, err
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	for _, process := range processes {
		if _, err := io.WriteString(process.input, "go\n"); err != nil {
			return nil, err
		}
	}
	go func() {
		defer close(stopped)
		if disturb != nil {
			disturb(stop)
		}
	}()
	failures := make(chan error, len(processes))
	for _, process := range processes {
		go func() { failures <- process.collect() }()
	}
	var err error
	for range processes {
		err = errors.Join(err, <-failures)
	}
	close(stop)
	<-stopped
	if err != nil {
		return nil, err
	}
	histories := make([]*history, len(groups))
	for at, group := range groups {
		histories[at] = &history{name: group.objects[0].key, objects: group.objects}
	}
	for _, process := range processes {
		records, err := process.records(groups, mayFail, counts)
		if err != nil {
			return nil, err
		}
		for at, list := range records {
			histories[at].records = append(histories[at].records, list...)
		}
	}
	for _, history := range histories {
		slices.SortStableFunc(history.records, func(a, b *record) int { return cmp.Compare(a.call, b.call) })
	}
	return histories, nil
}

// denialCacheMax is the option of the limiters whose denial cache is on.
const denialCacheMax = 50 * time.Millisecond

// justify lets each denial of the cache count from when the denial may have been made that the cache has answered from, by docs/redis.md:
// a denial of the same process that was not older than denial_cache_max, and that no refund or reset of this process has removed. Where
// there is none, it has to be right when it is called.
func (h *history) justify() {
	for _, cached := range h.records {
		if !cached.cached {
			continue
		}
		object := cached.parts[0].object
		removed := int64(0)
		isOf := func(other *record) bool {
			return other.process == cached.process && slices.ContainsFunc(other.parts, func(p part) bool { return p.object == object })
		}
		for _, other := range h.records {
			if (other.kind == refund || other.kind == reset || other.kind == refundTwice) && other.end < cached.call && isOf(other) {
				removed = max(removed, other.call)
			}
		}
		earliest := cached.call
		for _, other := range h.records {
			isDenial := (other.kind == check || other.kind == staleCheck || other.kind == together) && !other.cached && other.outcome == answered
			if !isDenial || !isOf(other) || other.call > cached.call {
				continue
			}
			for at, part := range other.parts {
				if part.object == object && other.answers[at].flags&allowed == 0 && other.end > removed &&
					other.end > cached.call-int64(denialCacheMax) {
					earliest = min(earliest, max(other.call, removed))
				}
			}
		}
		cached.since = earliest
	}
}
