package main

import (
	"net"
	"sync"
)

// mostConnections is how many connections the node itself, and all others together, may have to the server of
// checks and metrics.
const mostConnections = 64

// limited is a listener that closes connections beyond a number at once. Those of the node itself are counted
// apart: whoever takes all others must not keep kubelet from its checks, which would have the daemon
// restarted.
type limited struct {
	net.Listener

	mu   sync.Mutex
	open map[bool]int // by whether they come from the node itself
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			//nolint:wrapcheck // it belongs to the server of the library, which looks for its own errors
			return nil, err
		}
		own := host(c.RemoteAddr()) == host(c.LocalAddr())
		if l.count(own, 1) {
			return &counted{Conn: c, end: sync.OnceFunc(func() { l.count(own, -1) })}, nil
		}
		_ = c.Close()
	}
}

// count adds to the number of connections, unless there would be too many.
func (l *limited) count(own bool, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.open[own] >= mostConnections {
		return false
	}
	if l.open == nil {
		l.open = map[bool]int{}
	}
	l.open[own] += n
	return true
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close() //nolint:wrapcheck // as Accept
}

func host(address net.Addr) string {
	name, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return name
}
