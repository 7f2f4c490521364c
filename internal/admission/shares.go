package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"sync"
)

// mostShare is the part of a room that one namespace may take, in quarters. What is left is for the requests
// of others, so that these do not wait for a namespace that sends as much as it can.
const mostShare = 3

// mostPrefix is how many bytes of a body are searched for its namespace. API servers write the namespace of
// an admission review before the object. In a conversion review it follows the annotations of an object.
const mostPrefix = 1 << 20

// shares is a room of memory that namespaces share. Memory that becomes free goes to the namespace that has
// the least, and only then to who has waited longest. So one that sends many large requests waits for itself.
//
// A namespace is what a request says, and anyone who can reach the port can send requests. So memory first
// goes to the address that has the least: requests of API servers do not wait for others that name the same
// namespace, or thousands of them.
type shares struct {
	size int64

	mu        sync.Mutex
	used      int64
	by        map[owner]int64
	byAddress map[string]int64
	waiting   []*claim
}

// owner is who takes memory: a namespace in requests from one address.
type owner struct{ address, namespace string }

// ownerOf returns who takes memory for a request with that body.
func ownerOf(r *http.Request, body []byte) owner {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return owner{host, reviewed(body)}
}

// claim is a request that waits for memory.
type claim struct {
	owner   owner
	memory  int64
	granted chan struct{}
}

func newShares(size int64) *shares {
	return &shares{size: size, by: map[owner]int64{}, byAddress: map[string]int64{}}
}

// acquire waits until the owner gets the memory. It returns an error if ctx ends before that.
func (s *shares) acquire(ctx context.Context, of owner, memory int64) error {
	c := &claim{of, memory, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.grant()
	s.mu.Unlock()

	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, c)
	if i < 0 { // it was granted just now
		return nil
	}

	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.grant() // others may have waited for this one to go first
	return ctx.Err()
}

// release gives memory of an owner back.
func (s *shares) release(of owner, memory int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= memory
	if s.by[of] -= memory; s.by[of] <= 0 {
		delete(s.by, of)
	}
	if s.byAddress[of.address] -= memory; s.byAddress[of.address] <= 0 {
		delete(s.byAddress, of.address)
	}
	s.grant()
}

// grant gives free memory to those that wait. If the next one needs more than is free, nobody goes before it:
// otherwise small requests could keep a large one waiting for ever.
func (s *shares) grant() {
	for {
		i := s.next()
		if i < 0 || s.used+s.waiting[i].memory > s.size {
			return
		}
		c := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.used += c.memory
		s.by[c.owner] += c.memory
		s.byAddress[c.owner.address] += c.memory
		close(c.granted)
	}
}

// next returns the index of the claim whose turn it is, and -1 if there is none. An owner that has memory gets
// no more than its share. One that has none may have a single request of any size.
func (s *shares) next() int {
	next := -1
	for i, c := range s.waiting {
		if has := s.by[c.owner]; has > 0 && has+c.memory > s.size/4*mostShare {
			continue
		}
		if next < 0 || s.less(c.owner, s.waiting[next].owner) {
			next = i
		}
	}
	return next
}

// less reports whether one owner has less memory than another.
func (s *shares) less(a, b owner) bool {
	return cmp.Or(cmp.Compare(s.byAddress[a.address], s.byAddress[b.address]), cmp.Compare(s.by[a], s.by[b])) < 0
}

// reviewed returns the namespace that a review names, and of a conversion review that of the first object. It
// is empty if there is none, or not where API servers write it.
func reviewed(body []byte) string {
	body = body[:min(len(body), mostPrefix)]
	for _, find := range []func(*json.Decoder) bool{
		func(d *json.Decoder) bool { return member(d, "request") && member(d, "namespace") },
		func(d *json.Decoder) bool {
			return member(d, "request") && member(d, "objects") && opens(d, '[') && member(d, "metadata") &&
				member(d, "namespace")
		},
	} {
		d := json.NewDecoder(bytes.NewReader(body))
		if !find(d) {
			continue
		}
		if value, err := d.Token(); err == nil {
			name, _ := value.(string)
			return name
		}
	}
	return ""
}

// member moves a decoder from the beginning of an object to the value of one of its members.
func member(d *json.Decoder, name string) bool {
	if !opens(d, '{') {
		return false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false
		}
		if key == name {
			return true
		}
		var other json.RawMessage
		if d.Decode(&other) != nil {
			return false
		}
	}
	return false
}

func opens(d *json.Decoder, delimiter json.Delim) bool {
	token, err := d.Token()
	return err == nil && token == delimiter
}
