package polylimit

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
)

// WithCredentials sets a function that gives user and password for each new connection to Redis, in place of those in the URL and
// the options: for passwords that expire, such as the tokens of a cloud. An empty username is the default user. The function is
// called on a goroutine of its own, one call at a time, and again when the server refuses what it gave; after a refusal or an error
// not for 0.25 to 10 seconds, growing with each time in a row. It may block: decisions have their deadline meanwhile. Its error, or
// its panic, is the cause in the errors of Ready, in events and in the doctor. Admin.SetCredentials replaces it. Close does not wait for it.
func WithCredentials(give func() (username, password string, err error)) Option {
	return Option{credentials: &credentialsFunction{give}}
}

type credentialsFunction struct {
	give func() (username, password string, err error)
}

// credentialsFunctions are the functions of the limiters that are not closed, by the numbers that C has of them.
var credentialsFunctions struct {
	mutex sync.Mutex
	last  uint64
	of    map[uint64]*credentialsFunction
}

// registerCredentials gives the function a number for C; 0 is no function.
func registerCredentials(function *credentialsFunction) uint64 {
	if function == nil {
		return 0
	}
	credentialsFunctions.mutex.Lock()
	defer credentialsFunctions.mutex.Unlock()
	if credentialsFunctions.of == nil {
		credentialsFunctions.of = map[uint64]*credentialsFunction{}
	}
	credentialsFunctions.last++
	credentialsFunctions.of[credentialsFunctions.last] = function
	return credentialsFunctions.last
}

func unregisterCredentials(number uint64) {
	credentialsFunctions.mutex.Lock()
	defer credentialsFunctions.mutex.Unlock()
	delete(credentialsFunctions.of, number)
}

// polylimitGoGiveCredentials is called on a thread of the library, which waits for it.
//
//export polylimitGoGiveCredentials
func polylimitGoGiveCredentials(credentials *C.polylimit_credentials, number C.uint64_t) {
	credentialsFunctions.mutex.Lock()
	function := credentialsFunctions.of[uint64(number)]
	credentialsFunctions.mutex.Unlock()
	username, password, err := function.call()
	if err == nil {
		err = setCredentials(credentials, username, password)
	}
	if err != nil {
		message := foreignText(err.Error())
		defer free(message)
		C.polylimit_credentials_fail(credentials, message)
	}
}

// call calls the function on a goroutine, which it may end.
func (f *credentialsFunction) call() (username, password string, err error) {
	if f == nil {
		return "", "", errors.New("the limiter is closed")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = errors.New("it has ended its goroutine")
		defer func() {
			if raised := recover(); raised != nil {
				err = fmt.Errorf("it has panicked: %v", raised)
			}
		}()
		username, password, err = f.give()
	}()
	<-done
	return username, password, err
}

func setCredentials(credentials *C.polylimit_credentials, username, password string) error {
	var cUsername *C.char
	var err error
	if username != "" {
		if cUsername, err = cText(username, "username"); err != nil {
			return err
		}
		defer free(cUsername)
	}
	cPassword, err := cText(password, "password")
	if err != nil {
		return err
	}
	defer free(cPassword)
	var failure message
	if status := C.polylimit_credentials_set(credentials, cUsername, cPassword, &failure[0], C.size_t(len(failure))); status != C.POLYLIMIT_OK {
		return errors.New(C.GoString(&failure[0]))
	}
	return nil
}
