package main

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout is how long Porcupine may take for a history. One that takes longer is not decided, and counts as failed.
const checkTimeout = 60 * time.Second

// check is whether Porcupine finds an order of the operations in which the model returns what was recorded, from one of the starts.
func (h *history) check(timeout time.Duration) porcupine.CheckResult {
	var unknowns []*record
	for _, record := range h.records {
		if record.outcome == unknown {
			unknowns = append(unknowns, record)
		}
	}
	if len(unknowns) > mostUnknown {
		return porcupine.Unknown
	}
	operations := make([]porcupine.Operation, 0, len(h.records))
	for _, record := range h.records {
		since := record.call
		if record.cached {
			since = record.since
		}
		end := record.end
		if record.outcome == unknown {
			// What happens at the call is that it becomes possible.
			end = since
		}
		operations = append(operations, porcupine.Operation{
			ClientId: record.process<<8 | record.client, Input: record, Call: since, Return: end,
		})
	}
	starts := h.starts
	if len(starts) == 0 {
		starts = []state{{}}
	}
	result := porcupine.Illegal
	for _, start := range starts {
		specification := model(h.objects, start)
		if len(unknowns) > 0 {
			specification = nondeterministicModel(h.objects, start, unknowns)
		}
		switch porcupine.CheckOperationsTimeout(specification, operations, timeout) {
		case porcupine.Ok:
			return porcupine.Ok
		case porcupine.Unknown:
			result = porcupine.Unknown
		}
	}
	return result
}

// overlapping is how many operations have run while another client's operation on the same history did.
func (h *history) overlapping() (count int) {
	latest, before := int64(0), -1
	isCounted := make([]bool, len(h.records))
	for at, record := range h.records {
		if record.outcome == unknown {
			continue
		}
		if before >= 0 && record.call <= latest {
			isCounted[at], isCounted[before] = true, true
		}
		if record.end > latest {
			latest, before = record.end, at
		}
	}
	for _, isOne := range isCounted {
		if isOne {
			count++
		}
	}
	return count
}
