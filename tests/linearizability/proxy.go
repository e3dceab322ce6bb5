package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy forwards connections to a server, and disturbs them.
type proxy struct {
	listener net.Listener
	target   string
	mutex    sync.Mutex
	links    map[*link]bool
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
	faults = delays
)

const (
	// faultDeadline is the deadline of the limiters behind a proxy.
	faultDeadline = 250 * time.Millisecond
	// faultDelay is how long requests are held back.
	faultDelay = 400 * time.Millisecond
	// lossLasts is how long requests or replies are lost before the connection is.
	lossLasts = 3 * time.Millisecond
)

func newProxy(target string, duplicates int) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	made := &proxy{listener: listener, target: target, links: map[*link]bool{}, duplicates: duplicates}
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
		p.mutex.Lock()
		p.links[made] = true
		p.mutex.Unlock()
		go p.forward(made, client, server, losesRequests)
		go p.forward(made, server, client, losesReplies)
	}
}

func (p *proxy) forward(l *link, from, to net.Conn, loss int32) {
	defer func() {
		l.cut()
		p.mutex.Lock()
		delete(p.links, l)
		p.mutex.Unlock()
	}()
	buffer := make([]byte, 1<<16)
	for {
		count, err := from.Read(buffer)
		if err != nil {
			return
		}
		switch fault := l.fault.Load(); {
		case fault == loss:
			continue
		case fault == delays && loss == losesRequests:
			time.Sleep(faultDelay)
			l.fault.CompareAndSwap(delays, 0)
		}
		if loss == losesRequests && p.duplicates > 0 && rand.IntN(p.duplicates) == 0 {
			p.repeat(buffer[:count])
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

// disturb makes a fault of a random connection every few milliseconds until the channel is closed.
func disturb(proxies []*proxy, every time.Duration, random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(every/2 + time.Duration(random.Int64N(int64(every)))):
		}
		proxy := proxies[random.IntN(len(proxies))]
		proxy.mutex.Lock()
		links := make([]*link, 0, len(proxy.links))
		for link := range proxy.links {
			links = append(links, link)
		}
		proxy.mutex.Unlock()
		if len(links) == 0 {
			continue
		}
		link, fault := links[random.IntN(len(links))], int32(random.IntN(faults+1))
		link.fault.Store(fault)
		switch fault {
		case 0:
			link.cut()
		case losesRequests, losesReplies:
			time.AfterFunc(lossLasts, link.cut)
		}
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
