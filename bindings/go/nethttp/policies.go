package nethttp

import (
	"fmt"
	"slices"
	"sync"

	"polylimit.dev/polylimit"
)

// policies are those that a middleware applies. Quotas without a name are another policy on each route, unless a scope is given.
type policies struct {
	limiter *polylimit.Limiter
	given   []string
	scope   string
	// The names by route; a server has few.
	byRoute sync.Map
}

// at gives the names of the policies on a route, each once.
func (p *policies) at(route string) ([]string, error) {
	if p.scope != "" {
		route = p.scope
	}
	if names, isKnown := p.byRoute.Load(route); isKnown {
		return names.([]string), nil
	}
	names := make([]string, 0, len(p.given))
	for _, policy := range p.given {
		name, err := p.limiter.PolicyFor(policy, route)
		if err != nil {
			return nil, err
		}
		if slices.Contains(names, name) {
			return nil, invalid(fmt.Sprintf("policy %q is given twice: once is enough", policy))
		}
		names = append(names, name)
	}
	p.byRoute.Store(route, names)
	return names, nil
}
