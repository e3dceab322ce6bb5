package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"polylimit.dev/polylimit"
)

// recorder is a process that does what programs say; see docs/linearizability.md for the lines that it reads and writes.
type recorder struct {
	limiter *polylimit.Limiter
	// Of the objects of the round, by their numbers.
	requests []polylimit.Request
	hasSlots []bool
	// Whether each line is written at once, because the process may be killed.
	isJournal bool
	// The answers that a defective denial cache has, by object and cost.
	denials sync.Map
}

const (
	ttl = 24 * time.Hour
	// pause is how long a client waits after an answer of an outage policy, which comes at once.
	pause = 2 * time.Millisecond
)

// recordMain is the recorder of Go: record URL POLICY=QUOTAS...
func recordMain(arguments []string) error {
	var options []polylimit.Option
	slots := map[string]bool{}
	for _, argument := range arguments[1:] {
		name, quotas, _ := strings.Cut(argument, "=")
		options = append(options, polylimit.WithPolicy(name, quotas))
		slots[name] = strings.Contains(quotas, "concurrent")
	}
	limiter, err := polylimit.Open(arguments[0], options...)
	if err != nil {
		return err
	}
	defer limiter.Close()
	if err := limiter.Ready(context.Background(), 30*time.Second); err != nil {
		return err
	}
	own := &recorder{limiter: limiter}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := readLine(input)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := own.round(line, input, slots); err != nil {
			return err
		}
	}
}

func readLine(input *bufio.Reader) (string, error) {
	line, err := input.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// task is an operation as it was read.
type task struct {
	kind    kind
	id      string
	objects []int
	costs   []int64
	// Requests with their costs.
	requests []polylimit.Request
	reserves bool
}

func (r *recorder) round(header string, input *bufio.Reader, slots map[string]bool) error {
	var objects, clients, journal int
	if _, err := fmt.Sscanf(header, "round %d %d %d", &objects, &clients, &journal); err != nil {
		return fmt.Errorf("%q: %w", header, err)
	}
	r.requests, r.hasSlots, r.isJournal = nil, nil, journal == 1
	for range objects {
		line, err := readLine(input)
		if err != nil {
			return err
		}
		policy, key, _ := strings.Cut(line, " ")
		r.requests = append(r.requests, polylimit.Key(key).Policy(policy))
		r.hasSlots = append(r.hasSlots, slots[policy])
	}
	programs := make([][]task, clients)
	for client := range clients {
		line, err := readLine(input)
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		for range count {
			line, err := readLine(input)
			if err != nil {
				return err
			}
			made, err := r.read(line)
			if err != nil {
				return err
			}
			programs[client] = append(programs[client], made)
		}
	}
	fmt.Println("ready")
	if _, err := readLine(input); err != nil {
		return err
	}
	results := make([][]byte, clients)
	var group sync.WaitGroup
	for client, tasks := range programs {
		group.Go(func() { results[client] = r.run(client, tasks) })
	}
	group.Wait()
	for _, lines := range results {
		if _, err := os.Stdout.Write(lines); err != nil {
			return err
		}
	}
	_, err := fmt.Println("done")
	return err
}

func (r *recorder) read(line string) (task, error) {
	words := strings.Split(line, " ")
	kind, err := kindOf(words[0])
	if err != nil {
		return task{}, err
	}
	made := task{kind: kind, id: words[1]}
	for _, word := range words[2:] {
		number, units, _ := strings.Cut(word, ":")
		at, err := strconv.Atoi(number)
		if err != nil {
			return task{}, err
		}
		cost, err := strconv.ParseInt(units, 10, 64)
		if err != nil {
			return task{}, err
		}
		made.objects, made.costs = append(made.objects, at), append(made.costs, cost)
		made.requests = append(made.requests, r.requests[at].Cost(max(0, cost)))
		made.reserves = made.reserves || r.hasSlots[at]
	}
	return made, nil
}

// now is CLOCK_MONOTONIC, which all processes of a host share.
func now() int64 {
	var time syscall.Timespec
	const monotonic = 1
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&time)), 0)
	return time.Nano()
}

// run does the operations of a client, and returns a line for each.
func (r *recorder) run(client int, tasks []task) []byte {
	var lines []byte
	for at := range tasks {
		call := now()
		if r.isJournal {
			_, _ = os.Stdout.WriteString(fmt.Sprintf("> %d %d %d\n", client, at, call))
		}
		answers, isOutage, err := r.do(&tasks[at])
		end := now()
		line := fmt.Appendf(nil, "%d %d %d %d", client, at, call, end)
		if err != nil {
			line = fmt.Appendf(line, " !%s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
		line = append(append(line, answers...), '\n')
		if r.isJournal {
			_, _ = os.Stdout.Write(line)
		} else {
			lines = append(lines, line...)
		}
		if isOutage {
			time.Sleep(pause)
		}
	}
	return lines
}

// do does an operation. Of its answers, the ones that the outage policy has made are not the store's.
func (r *recorder) do(task *task) (answers []byte, isOutage bool, err error) {
	ctx := context.Background()
	request, cost := task.requests[0], task.costs[0]
	decided := func(decisions ...polylimit.Decision) {
		for at := range decisions {
			answers = appendDecision(answers, &decisions[at])
			isOutage = isOutage || isOutageSource(decisions[at].Source)
		}
	}
	used := func(usage polylimit.Usage, failure error) {
		answers, isOutage, err = appendUsage(nil, &usage), isOutageSource(usage.Source), failure
	}
	switch task.kind {
	case check:
		decision, failure := r.limiter.Check(ctx, request)
		decided(decision)
		err = failure
	case peek:
		decision, failure := r.limiter.Peek(ctx, request)
		decided(decision)
		err = failure
	case take:
		used(r.limiter.Take(ctx, request))
	case charge:
		used(r.limiter.Charge(ctx, request))
	case refund:
		used(r.limiter.Refund(ctx, request))
	case reset:
		used(r.limiter.Reset(ctx, request))
	case hold:
		reservation, failure := r.limiter.Reserve(ctx, request, polylimit.ReserveID(task.id), polylimit.ReserveTTL(ttl),
			polylimit.ReserveMaxAge(0))
		if failure != nil {
			return nil, false, failure
		}
		reservation.Detach()
		decided(reservation.Decision())
	case together, reserve, remember:
		var decisions []polylimit.Decision
		if task.reserves {
			options := []polylimit.ReserveOption{polylimit.ReserveID(task.id), polylimit.ReserveTTL(ttl)}
			if task.kind == remember {
				options = append(options, polylimit.ReserveRemember(ttl))
			}
			var reserved polylimit.RequestReservation
			reserved, err = r.limiter.ReserveTogether(ctx, task.requests, options...)
			decisions = reserved.Decisions
		} else {
			decisions, err = r.limiter.CheckTogether(ctx, task.requests)
		}
		decided(decisions...)
	case commit:
		used(r.commit(ctx, task))
	case cancel:
		used(r.limiter.Cancel(ctx, request, task.id))
	case renew:
		used(r.limiter.Renew(ctx, request, task.id, ttl))
	case refundTwice:
		used(r.limiter.Refund(ctx, request))
		if err == nil {
			_, err = r.limiter.Refund(ctx, request)
		}
	case chargeAgain:
		used(r.commit(ctx, task))
		if err == nil && cost > 0 {
			_, err = r.limiter.Charge(ctx, request)
		}
	case staleCheck:
		place := [2]int64{int64(task.objects[0]), cost}
		if known, has := r.denials.Load(place); has {
			decided(known.(polylimit.Decision))
			break
		}
		decision, failure := r.limiter.Check(ctx, request)
		decided(decision)
		if err = failure; err == nil && !decision.Allowed {
			decision.Source = "denial_cache"
			r.denials.Store(place, decision)
		}
	}
	if err != nil {
		answers = nil
	}
	return answers, isOutage, err
}

func (r *recorder) commit(ctx context.Context, task *task) (polylimit.Usage, error) {
	if task.costs[0] == asReserved {
		return r.limiter.CommitReserved(ctx, task.requests[0], task.id)
	}
	return r.limiter.Commit(ctx, task.requests[0], task.id, task.costs[0])
}

func isOutageSource(source string) bool {
	return source == "deny" || source == "allow" || source == "fallback"
}

func appendDecision(line []byte, decision *polylimit.Decision) []byte {
	var flags uint8
	if decision.Allowed {
		flags |= allowed
	}
	if decision.ResetAfterUs() == 0 {
		flags |= unused
	}
	if decision.RetryAfter == polylimit.Never {
		flags |= never
	}
	return fmt.Appendf(line, " %d,%d,%d,0,%s,%s", flags, decision.Remaining, decision.Over, decision.Source, decision.Degraded)
}

func appendUsage(line []byte, usage *polylimit.Usage) []byte {
	flags := allowed
	if usage.ResetAfterUs() == 0 {
		flags |= unused
	}
	if usage.Found {
		flags |= found
	}
	if usage.Repeated {
		flags |= repeated
	}
	return fmt.Appendf(line, " %d,%d,%d,%d,%s,%s", flags, usage.Remaining, usage.Over, usage.Taken, usage.Source, usage.Degraded)
}
