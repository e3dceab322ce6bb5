//go:build !polylimit_static

package polylimit_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"polylimit.dev/polylimit"
)

// exampleOfTheListingPage is the example of docs/listing.md, word for word.
func exampleOfTheListingPage(ctx context.Context, limiter *polylimit.Limiter) error {
	explained, err := limiter.Admin().Explain(ctx, polylimit.Key("user:42"))
	if err != nil {
		return err
	}
	for _, quota := range explained.Quotas {
		fmt.Println(quota.Quota, quota.Words, quota.Admits) // 20/hour 20 of 20 in the last 1h, counted in 10 parts false
	}
	options := polylimit.ListOptions{Policy: "api", KeyPrefix: "user:", AtLeastUsed: 80}
	for {
		page, err := limiter.Admin().List(ctx, options)
		if err != nil {
			return err
		}
		for _, key := range page.Keys {
			fmt.Println(key.Key, key.UsedPercent) // user:42 100
		}
		if options.Cursor = page.Cursor; page.Cursor == "" {
			return nil
		}
	}
}

func Example_listingPage() {
	clock, err := polylimit.NewManualClock(start())
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("api", "100/minute token_bucket; 20/hour"), polylimit.WithClock(clock))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	_, err = limiter.Charge(ctx, polylimit.Key("user:42").Cost(20))
	fmt.Println(err, exampleOfTheListingPage(ctx, limiter))
	// Output:
	// 100/minute token_bucket debt 20 of 100, repays 1.67/s true
	// 20/hour 20 of 20 in the last 1h, counted in 10 parts false
	// user:42 100
	// <nil> <nil>
}

func TestListingPageHasThatExample(t *testing.T) {
	block := fenced(t, string(must(os.ReadFile("../../docs/listing.md"))(t)), "go")
	source := string(must(os.ReadFile("listing_page_test.go"))(t))
	var lines []string
	for line := range strings.Lines(block) {
		lines = append(lines, strings.TrimRight("\t"+line, "\t"))
	}
	if !strings.Contains(source, strings.Join(lines, "")) {
		t.Errorf("listing_page_test.go does not say:\n%s", block)
	}
}
