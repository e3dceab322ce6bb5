package guardtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
)

// Options are the options of a guard in a case.
type Options map[string]json.RawMessage

// Framework is what the options of a case need of a framework: R is its request, and D responds to one that does not proceed.
type Framework[R, D any] struct {
	// Field is a field of a request.
	Field func(request R, name string) string
	// Spent returns what a handler has spent, which its response names in this field.
	Spent func(request R, header http.Header, field string) (int64, bool)
	// Deny responds with a status and a body.
	Deny func(status int, body string) D
}

// SpentOfHeader reads what a handler has spent from a field of its response.
func SpentOfHeader[R any](_ R, header http.Header, field string) (int64, bool) {
	spent, err := strconv.ParseInt(header.Get(field), 10, 64)
	return spent, err == nil
}

// Read reads the options of a guard.
func (f Framework[R, D]) Read(t *testing.T, given Options, stores *Stores) middleware.Options[R, D] {
	t.Helper()
	options, charges := middleware.Options[R, D]{}, map[string]middleware.PolicyCharge[R]{}
	store := stores.usual
	for name, value := range given {
		read := func(place any) {
			if err := json.Unmarshal(value, place); err != nil {
				t.Fatal(name, err)
			}
		}
		var source struct{ Header string }
		switch name {
		case "policy":
			options.Policies = texts(t, value)
		case "policies_of":
			var of struct {
				Header string
				Plans  map[string]json.RawMessage
			}
			read(&of)
			options.PolicyFunc = func(request R) ([]string, error) {
				if plan := f.Field(request, of.Header); plan != "" {
					return texts(t, of.Plans[plan]), nil
				}
				return texts(t, given["policy"]), nil
			}
		case "key":
			read(&source)
			options.Key = func(request R) (string, error) { return f.Field(request, source.Header), nil }
		case "key_parts":
			for _, part := range texts(t, value) {
				options.KeyParts = append(options.KeyParts, middleware.KeyPart(part))
			}
		case "missing_key":
			read(&options.MissingKey)
		case "wait_ms":
			options.Wait = milliseconds(read)
		case "max_waiting":
			read(&options.MaxWaiting)
		case "cost":
			if json.Unmarshal(value, &options.FixedCost) == nil {
				if cost := options.FixedCost; cost == 0 {
					options.Cost = func(R) int64 { return cost }
				}
				continue
			}
			read(&source)
			options.Cost = func(request R) int64 {
				if cost, err := strconv.ParseInt(f.Field(request, source.Header), 10, 64); err == nil {
					return cost
				}
				return 1
			}
		case "count":
			var from struct {
				From  int `json:"status_from"`
				Below int `json:"status_below"`
			}
			read(&from)
			options.Count = func(_ R, status int, _ http.Header) bool {
				return status >= from.From && (from.Below == 0 || status < from.Below)
			}
		case "costs":
			var costs []int64
			read(&costs)
			for at, policy := range texts(t, given["policy"]) {
				charge := charges[policy]
				charge.FixedCost = costs[at]
				charges[policy] = charge
			}
		case "spent":
			var meters []*string
			if json.Unmarshal(value, &options.SpentBy) == nil {
				continue
			}
			if json.Unmarshal(value, &meters) == nil {
				for at, policy := range texts(t, given["policy"]) {
					if charge := charges[policy]; meters[at] != nil {
						charge.SpentBy = *meters[at]
						charges[policy] = charge
					}
				}
				continue
			}
			read(&source)
			options.Spent = func(request R, _ int, header http.Header) (int64, bool) {
				return f.Spent(request, header, source.Header)
			}
		case "ttl_ms":
			// 0 is the default.
			if options.TTL = milliseconds(read); options.TTL == 0 {
				options.TTL = -1
			}
		case "skip":
			read(&source)
			options.Skip = func(request R) bool { return f.Field(request, source.Header) != "" }
		case "methods":
			read(&options.Methods)
		case "separate_head":
			read(&options.SeparateHead)
		case "count_preflights":
			read(&options.CountPreflights)
		case "cors_origins":
			read(&options.CORSOrigins)
		case "headers":
			read(&options.Headers)
		case "status":
			read(&options.Status)
		case "message":
			read(&options.Message)
		case "dry_run":
			read(&options.DryRun)
		case "on_denied":
			var response struct {
				Status int
				Body   string
			}
			read(&response)
			options.OnDenied = f.Deny(response.Status, response.Body)
		case "on_outage":
			var action string
			read(&action)
			actions := map[string]polylimit.OutageAction{
				"admit": polylimit.AdmitOutage, "deny": polylimit.DenyOutage, "leave": polylimit.LeaveOutage,
			}
			options.OnOutage = func(R, polylimit.Outage) polylimit.OutageAction { return actions[action] }
		case "store":
			read(&store)
		default:
			t.Fatalf("option %s is not known", name)
		}
	}
	options.Limiter = stores.limiters[store]
	if len(charges) > 0 {
		options.Charges = charges
	}
	return options
}

func milliseconds(read func(any)) time.Duration {
	var number int64
	read(&number)
	return time.Duration(number) * time.Millisecond
}

// texts are a text, or a list of texts.
func texts(t *testing.T, value json.RawMessage) []string {
	var one string
	if json.Unmarshal(value, &one) == nil {
		return []string{one}
	}
	list := []string{}
	if err := json.Unmarshal(value, &list); err != nil {
		t.Error(string(value), err)
	}
	return list
}
