// The client go-redis: go-redis newest|old PORT
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	old "github.com/go-redis/redis/v8"
	newest "github.com/redis/go-redis/v9"
)

var throttle = []any{"CL.THROTTLE", "pipeline", 15, 30, 60}

// client is what both versions can do. The functions return what is left after each throttle.
type client struct {
	do                    func(arguments ...any) (any, error)
	transaction, pipeline func(commands ...[]any) ([]any, error)
}

func ofOld(address string) client {
	ctx, of := context.Background(), old.NewClient(&old.Options{Addr: address})
	run := func(commands [][]any, in func(context.Context, func(old.Pipeliner) error) ([]old.Cmder, error)) ([]any, error) {
		cmders, err := in(ctx, func(pipe old.Pipeliner) error {
			for _, command := range commands {
				pipe.Do(ctx, command...)
			}
			return nil
		})
		var values []any
		for _, cmder := range cmders {
			values = append(values, cmder.(*old.Cmd).Val())
		}
		return values, err
	}
	return client{
		do:          func(arguments ...any) (any, error) { return of.Do(ctx, arguments...).Result() },
		transaction: func(commands ...[]any) ([]any, error) { return run(commands, of.TxPipelined) },
		pipeline:    func(commands ...[]any) ([]any, error) { return run(commands, of.Pipelined) },
	}
}

func ofNewest(address string) client {
	ctx, of := context.Background(), newest.NewClient(&newest.Options{Addr: address})
	run := func(commands [][]any, in func(context.Context, func(newest.Pipeliner) error) ([]newest.Cmder, error)) ([]any, error) {
		cmders, err := in(ctx, func(pipe newest.Pipeliner) error {
			for _, command := range commands {
				pipe.Do(ctx, command...)
			}
			return nil
		})
		var values []any
		for _, cmder := range cmders {
			values = append(values, cmder.(*newest.Cmd).Val())
		}
		return values, err
	}
	return client{
		do:          func(arguments ...any) (any, error) { return of.Do(ctx, arguments...).Result() },
		transaction: func(commands ...[]any) ([]any, error) { return run(commands, of.TxPipelined) },
		pipeline:    func(commands ...[]any) ([]any, error) { return run(commands, of.Pipelined) },
	}
}

func expect(what string, got any, err error, wanted string) {
	if err != nil || fmt.Sprint(got) != wanted {
		fmt.Fprintf(os.Stderr, "%s: got %v (%v), wanted %s\n", what, got, err, wanted)
		os.Exit(1)
	}
}

// remaining is what is left after each of these answers.
func remaining(answers []any) []any {
	var left []any
	for _, answer := range answers {
		if fields, ok := answer.([]any); ok && len(fields) == 5 {
			left = append(left, fields[2])
		} else {
			left = append(left, answer)
		}
	}
	return left
}

func main() {
	made := map[string]func(string) client{"old": ofOld, "newest": ofNewest}
	client := made[os.Args[1]]("127.0.0.1:" + os.Args[2])
	pong, err := client.do("PING")
	expect("ping", pong, err, "PONG")
	answers, err := client.transaction(throttle, throttle, throttle)
	expect("transaction", remaining(answers), err, "[15 14 13]")
	answers, err = client.pipeline(throttle, throttle, throttle)
	expect("pipeline", remaining(answers), err, "[12 11 10]")
	// What cannot be read spends nothing.
	if _, err = client.transaction(throttle, []any{"SET", "a", "b"}, throttle); err == nil || !strings.Contains(err.Error(), "EXECABORT") &&
		!strings.Contains(err.Error(), "unknown command") {
		expect("a wrong transaction", nil, err, "an error")
	}
	left, err := client.do(append(throttle, 0)...)
	expect("after it", remaining([]any{left}), err, "[10]")
}
