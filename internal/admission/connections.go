package admission

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// mostConnections and mostOfSource bound the connections, of all and of one address. An API server has at
	// most some 600 requests at once, by its defaults, and one connection for each. A connection whose caller
	// showed a certificate that is known does not count for its address.
	mostConnections, mostOfSource = 2000, 600
	// headerTime is how long a handshake may take, and the header of a request; requestTime is for all of a
	// request, answerTime for its answer. They are long enough for a node that has no time: a call that is
	// cut off is refused, and connections are bounded by their number.
	headerTime, requestTime, answerTime = 20 * time.Second, 30 * time.Second, 60 * time.Second
	// idleTime is how long a connection waits for the next request. It is longer than API servers keep one,
	// 90 s: one that both use and close at the same moment is a failed call. Where there are too many, those
	// that are idle make room.
	idleTime = 2 * time.Minute
	// mostHeader is more than an API server sends.
	mostHeader = 64 << 10
)

// connections is a listener that bounds them.
type connections struct {
	net.Listener
	most, ofSource int

	mu      sync.Mutex
	sources map[string]int
	open    map[*connection]bool
}

// connection is one of them; its fields are guarded by those of the listener.
type connection struct {
	net.Conn
	of      *connections
	source  string
	trusted bool
	// idle is since when it waits for another request; zero while it does not.
	idle time.Time
}

func bounding(listener net.Listener, most, ofSource int) *connections {
	return &connections{
		Listener: listener,
		most:     most,
		ofSource: ofSource,
		sources:  map[string]int{},
		open:     map[*connection]bool{},
	}
}

// Accept returns the next connection for which there is a place, and closes others.
func (l *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, victim := l.admit(accepted)
		if victim != nil {
			_ = victim.Conn.Close()
		}
		if c != nil {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// admit counts a connection. Nil means that there is no place; victim is an idle one that has to go for it.
func (l *connections) admit(accepted net.Conn) (c, victim *connection) {
	source, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
	if err != nil {
		source = accepted.RemoteAddr().String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources[source] >= l.ofSource {
		return nil, nil
	}
	if len(l.open) >= l.most {
		for one := range l.open {
			if !one.idle.IsZero() && !one.trusted && (victim == nil || one.idle.Before(victim.idle)) {
				victim = one
			}
		}
		if victim == nil {
			return nil, nil
		}
		l.forget(victim)
	}
	c = &connection{Conn: accepted, of: l, source: source}
	l.open[c] = true
	l.sources[source]++
	return c, victim
}

// forget does not count a connection any more. The lock is held.
func (l *connections) forget(c *connection) {
	if !l.open[c] {
		return
	}
	delete(l.open, c)
	l.release(c)
}

func (l *connections) release(c *connection) {
	if c.trusted {
		return
	}
	if l.sources[c.source]--; l.sources[c.source] == 0 {
		delete(l.sources, c.source)
	}
}

// trust says that the caller is known.
func (c *connection) trust() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.open[c] {
		c.of.release(c)
		c.trusted = true
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// follow notes what the server does with a connection.
func (l *connections) follow(given net.Conn, state http.ConnState) {
	if secure, ok := given.(*tls.Conn); ok {
		given = secure.NetConn()
	}
	c, ok := given.(*connection)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.idle = (time.Time{}); state == http.StateIdle {
		c.idle = time.Now()
	}
}

// trusting returns a configuration that checks callers, and tells connections whether they are known.
func trusting(config *tls.Config, callers *callers) *tls.Config {
	outer := config.Clone()
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, ok := hello.Conn.(*connection)
		if !ok {
			return nil, errors.New("a connection that is not counted")
		}
		own := config.Clone()
		callers.demand(own)
		own.VerifyConnection = func(state tls.ConnectionState) error {
			if callers.know(&state) {
				c.trust()
			}
			return nil
		}
		return own, nil
	}
	return outer
}
