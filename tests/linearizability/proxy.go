package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// proxy forwards connections to a server, and disturbs them.
type proxy struct {
	listener net.Listener
	target   string
	// faultsOneOf is of how many reads from clients one is the beginning of a fault; 0 is none.
	faultsOneOf int
	// duplicates is the deliberate defect of a network that delivers a request twice: of how many requests one.
	duplicates int
}

// link is a connection through the proxy.
type link struct {
	client, server net.Conn
	fault          atomic.Int32
}

const (
	// losesRequests: what the client sends is lost, and then the connection.
	losesRequests = iota + 1
	// losesReplies: the server receives requests, and its replies are lost, and then the connection.
	losesReplies
	// delays: requests arrive when their deadline has passed.
	delays
)

const (
	// faultDeadline is the deadline of the limiters behind a proxy.
	faultDeadline = 1 * time.Second
	// faultDelay is how long requests are held back.
	faultDelay = 1300 * time.Millisecond
	// lossLasts is how long requests or replies are lost before the connection is.
	lossLasts = 3 * time.Millisecond
)

func newProxy(target string, faultsOneOf, duplicates int) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	made := &proxy{listener: listener, target: target, faultsOneOf: faultsOneOf, duplicates: duplicates}
	go made.accept()
	return made, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		made := &link{client: client, server: server}
		go p.forward(made, client, server, losesRequests)
		go p.forward(made, server, client, losesReplies)
	}
}

func (p *proxy) forward(l *link, from, to net.Conn, loss int32) {
	defer l.cut()
	buffer := make([]byte, 1<<16)
	for {
		count, err := from.Read(buffer)
		if err != nil {
			return
		}
		if loss == losesRequests && p.faultsOneOf > 0 && rand.IntN(p.faultsOneOf) == 0 {
			l.disturb()
		}
		if loss == losesRequests && p.duplicates > 0 && rand.IntN(p.duplicates) == 0 {
			p.repeat(buffer[:count])
		}
		switch fault := l.fault.Load(); {
		case fault == loss:
			continue
		case fault == delays && loss == losesRequests:
			time.Sleep(faultDelay)
			l.fault.CompareAndSwap(delays, 0)
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}

// repeat sends a request to the server on a connection of its own, before the connection's own one arrives.
func (p *proxy) repeat(request []byte) {
	connection, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(time.Second))
	if _, err := connection.Write(request); err == nil {
		_, _ = connection.Read(make([]byte, 1<<16))
	}
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// disturb makes a fault of the connection that begins with the request that has just arrived. Few requests are delayed: each takes long.
func (l *link) disturb() {
	switch at := rand.IntN(20); {
	case at < 5:
		l.cut()
	case at < 12:
		l.fault.Store(losesReplies)
		time.AfterFunc(lossLasts, l.cut)
	case at < 19:
		l.fault.Store(losesRequests)
		time.AfterFunc(lossLasts, l.cut)
	default:
		l.fault.Store(delays)
	}
}

// redisClient is a connection to a server that reads and writes values behind the limiters' backs.
type redisClient struct{ connection net.Conn }

// call sends a command and gives its bulk reply; nil for a nil reply or a simple one.
func (c redisClient) call(arguments ...string) ([]byte, error) {
	request := appendCommand(nil, arguments)
	if _, err := c.connection.Write(request); err != nil {
		return nil, err
	}
	reply := make([]byte, 1<<16)
	count, err := c.connection.Read(reply)
	if err != nil {
		return nil, err
	}
	return bulk(reply[:count], c.connection)
}

func appendCommand(request []byte, arguments []string) []byte {
	request = append(request, '*')
	request = appendNumber(request, len(arguments))
	for _, argument := range arguments {
		request = appendNumber(append(request, '$'), len(argument))
		request = append(append(request, argument...), "\r\n"...)
	}
	return request
}

func appendNumber(request []byte, number int) []byte {
	digits := []byte{}
	for ; number > 0 || len(digits) == 0; number /= 10 {
		digits = append([]byte{byte('0' + number%10)}, digits...)
	}
	return append(append(request, digits...), "\r\n"...)
}

func bulk(reply []byte, rest io.Reader) ([]byte, error) {
	if reply[0] == '-' {
		return nil, errors.New(string(reply))
	}
	if reply[0] != '$' || reply[1] == '-' {
		return nil, nil
	}
	length, at := 0, 1
	for ; reply[at] != '\r'; at++ {
		length = 10*length + int(reply[at]-'0')
	}
	at += 2
	for len(reply) < at+length+2 {
		more := make([]byte, at+length+2-len(reply))
		count, err := rest.Read(more)
		if err != nil {
			return nil, err
		}
		reply = append(reply, more[:count]...)
	}
	return reply[at : at+length], nil
}
