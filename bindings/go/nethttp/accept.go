package nethttp

import (
	"strconv"
	"strings"
)

// prefersText says whether the Accept field (RFC 9110, section 12.5.1) prefers text to a JSON document.
func prefersText(accept string) bool {
	text := max(quality(accept, "text/plain"), quality(accept, "text/html"))
	return text > max(quality(accept, "application/problem+json"), quality(accept, "application/json"))
}

// quality is the weight of a media type: that of the range which names it most precisely.
func quality(accept, mediaType string) float64 {
	kind, _, _ := strings.Cut(mediaType, "/")
	best, precision := 0.0, 0
	for part := range strings.SplitSeq(strings.ToLower(accept), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		precise := 0
		switch strings.TrimSpace(name) {
		case mediaType:
			precise = 3
		case kind + "/*":
			precise = 2
		case "*/*":
			precise = 1
		}
		if precise > precision {
			best, precision = weight(parameters), precise
		}
	}
	return best
}

func weight(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		if text, isWeight := strings.CutPrefix(strings.TrimSpace(parameter), "q="); isWeight {
			if weight, err := strconv.ParseFloat(text, 64); err == nil {
				return weight
			}
		}
	}
	return 1
}
