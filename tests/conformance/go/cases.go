package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"polylimit.dev/polylimit"
)

// file is the format of the cases; see ../README.md.
type file struct {
	Format int        `json:"format"`
	Cases  []caseItem `json:"cases"`
}

type caseItem struct {
	Name   string      `json:"name"`
	Quotas []quota     `json:"quotas"`
	Ops    []operation `json:"ops"`
}

type quota struct {
	Algorithm   string `json:"algorithm"`
	Limit       uint64 `json:"limit"`
	PeriodUs    int64  `json:"period_us"`
	Burst       uint64 `json:"burst"`
	Step        uint64 `json:"step"`
	Buckets     uint32 `json:"buckets"`
	Aligned     bool   `json:"aligned"`
	CountDenied bool   `json:"count_denied"`
	Excess      uint64 `json:"excess"`
	// Of a quota by the calendar, its parts and the text that has them.
	Calendar  json.RawMessage `json:"calendar"`
	QuotaText string          `json:"text"`
}

type operation struct {
	AtUs       int64           `json:"at_us"`
	Op         string          `json:"op"`
	Cost       *int64          `json:"cost"`
	ID         string          `json:"id"`
	TTLUs      int64           `json:"ttl_us"`
	RememberUs int64           `json:"remember_us"`
	Quotas     []quota         `json:"quotas"`
	Expect     json.RawMessage `json:"expect"`
}

// cost is the units of the operation; 1 where the case does not say.
func (o operation) cost() int64 {
	if o.Cost == nil {
		return 1
	}
	return *o.Cost
}

// format is the format that a file says it has; 0 when it says none.
func format(text []byte) int {
	var file struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(text, &file) != nil {
		return 0
	}
	return file.Format
}

func read(path string, text []byte) (*file, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var cases file
	if err := decoder.Decode(&cases); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if cases.Format != 1 && cases.Format != 2 && cases.Format != 4 {
		return nil, fmt.Errorf("%s: format %d is not known: this runner reads formats 1 to 5", path, cases.Format)
	}
	return &cases, nil
}

var algorithms = map[string]polylimit.Algorithm{
	"token_bucket":   polylimit.TokenBucket,
	"leaky_bucket":   polylimit.LeakyBucket,
	"fixed_window":   polylimit.FixedWindow,
	"sliding_window": polylimit.SlidingWindow,
	"sliding_log":    polylimit.SlidingLog,
	"concurrency":    polylimit.Concurrency,
}

// quotasText is the quotas of a case as text.
func quotasText(quotas []quota) (string, error) {
	texts := make([]string, 0, len(quotas))
	for _, numbers := range quotas {
		if numbers.QuotaText != "" {
			texts = append(texts, numbers.QuotaText)
			continue
		}
		algorithm, known := algorithms[numbers.Algorithm]
		if !known {
			return "", fmt.Errorf("algorithm %q is not known", numbers.Algorithm)
		}
		text, err := polylimit.Quota{
			Limit:       numbers.Limit,
			Period:      time.Duration(numbers.PeriodUs) * time.Microsecond,
			Algorithm:   algorithm,
			Burst:       numbers.Burst,
			Step:        numbers.Step,
			Buckets:     numbers.Buckets,
			Aligned:     numbers.Aligned,
			CountDenied: numbers.CountDenied,
			Excess:      numbers.Excess,
		}.Text()
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; "), nil
}
