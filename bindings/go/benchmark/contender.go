package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"

	"polylimit.dev/polylimit"
)

// errGaveUp: throttled compares and swaps from outside of the server, and gives up after ten attempts.
var errGaveUp = errors.New("gave up")

// contender decides about a key: whether it is admitted.
type contender struct {
	name   string
	decide func(ctx context.Context, key string) (bool, error)
}

// ofPolylimit decides by a token bucket of this number a minute.
func ofPolylimit(url string, limit int) (contender, error) {
	if strings.HasPrefix(url, "redis") && !strings.Contains(url, "deadline=") {
		url += "?deadline=5s"
	}
	limiter, err := polylimit.Open(url, polylimit.WithPolicy("bench", fmt.Sprintf("%d/minute token_bucket", limit)))
	if err != nil {
		return contender{}, err
	}
	return contender{"polylimit", func(ctx context.Context, key string) (bool, error) {
		decision, err := limiter.Check(ctx, polylimit.Key(key))
		if err == nil && decision.Source != "store" && decision.Source != "denial_cache" {
			err = fmt.Errorf("decided by %s: %s", decision.Source, decision.Degraded)
		}
		return decision.Allowed, err
	}}, nil
}

func ofRedisRate(client *redis.Client, limit int) contender {
	limiter, perMinute := redis_rate.NewLimiter(client), redis_rate.PerMinute(limit)
	return contender{"redis_rate", func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, perMinute)
		return err == nil && result.Allowed > 0, err
	}}
}

func ofThrottled(store throttled.GCRAStoreCtx, limit int) (contender, error) {
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(limit), MaxBurst: limit - 1})
	if err != nil {
		return contender{}, err
	}
	return contender{"throttled", func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		if err != nil && strings.Contains(err.Error(), "Failed to store updated rate limit data") {
			err = errGaveUp
		}
		return !limited, err
	}}, nil
}

// onRedis are those that keep their states in this server.
func onRedis(url string, limit int) ([]contender, error) {
	options, err := redis.ParseURL(strings.SplitN(url, "?", 2)[0])
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	ours, err := ofPolylimit(strings.SplitN(url, "?", 2)[0], limit)
	if err != nil {
		return nil, err
	}
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	other, err := ofThrottled(store, limit)
	return []contender{ours, ofRedisRate(client, limit), other}, err
}

// inMemory are those that keep their states in this process.
func inMemory(limit int) ([]contender, error) {
	ours, err := ofPolylimit("memory:", limit)
	if err != nil {
		return nil, err
	}
	store, err := memstore.NewCtx(200_000)
	if err != nil {
		return nil, err
	}
	other, err := ofThrottled(store, limit)
	return []contender{ours, other}, err
}
