package polylimit

// #include "shim.h"
import "C"

import "runtime"

// SetPolicy adds a policy, or changes the quotas of the one of that name. A quota keeps its usage if its algorithm, period, step
// and buckets stay the same.
func (l *Limiter) SetPolicy(name, quotas string) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	cName, err := cText(name, "name")
	if err != nil {
		return err
	}
	defer free(cName)
	cQuotas, err := cText(quotas, "quotas")
	if err != nil {
		return err
	}
	defer free(cQuotas)
	var failure message
	return failure.err(C.polylimit_limiter_set_policy(l.limiter, cName, cQuotas, &failure[0], C.size_t(len(failure))))
}

// Policy is the quotas of a policy as text in canonical form. An empty name is the limiter's only policy.
func (l *Limiter) Policy(name string) (string, error) {
	defer runtime.KeepAlive(l)
	cName, _, err := optionalTexts(name, "")
	if err != nil {
		return "", err
	}
	defer free(cName)
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_limiter_policy(l.limiter, cName, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}

// PolicyFor finds the policy that decides requests with this policy: a name, quotas, or nothing (the limiter's only one). It
// returns the name for Request.Policy. Programs call it at their start, so that mistakes are found before the first request. Two
// texts with the same name are the same policy.
//
// In a scope (1 to 256 bytes, such as "/login"; empty is none) quotas have a budget of their own, the same in every process. A
// policy with a name has one budget in all scopes.
func (l *Limiter) PolicyFor(policy, scope string) (string, error) {
	if err := l.enter(); err != nil {
		return "", err
	}
	defer l.leave()
	cPolicy, cScope, err := optionalTexts(policy, scope)
	defer free(cPolicy)
	defer free(cScope)
	if err != nil {
		return "", err
	}
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_limiter_policy_for(l.limiter, cPolicy, cScope, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}

// SetCredentials sets the password, and the user name unless that is empty, with which new connections authenticate.
func (a Admin) SetCredentials(username, password string) error {
	l := a.limiter
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	cUsername, _, err := optionalTexts(username, "")
	if err != nil {
		return err
	}
	defer free(cUsername)
	cPassword, err := cText(password, "password")
	if err != nil {
		return err
	}
	defer free(cPassword)
	var failure message
	return failure.err(C.polylimit_admin_set_credentials(l.limiter, cUsername, cPassword, &failure[0], C.size_t(len(failure))))
}
