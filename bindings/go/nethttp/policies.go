package nethttp

import (
	"fmt"
	"slices"
	"sync"

	"polylimit.dev/polylimit"
)

// policies are the policies of a middleware. Without a scope, quotas without a name are a policy of their own on each route.
type policies struct {
	limiter *polylimit.Limiter
	given   []string
	scope   string
	// The names of the policies by route.
	byRoute sync.Map
}

// at returns the names of the policies on a route.
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
