package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
)

// Users choose the sizes of their objects, and API servers send hundreds of requests at once, so the memory
// of all concurrent requests is limited. Otherwise one user could kill every manager, and block the creation
// of pods everywhere.
const (
	// mostBody is more than an API server sends: two objects of at most 3 MiB.
	mostBody = 7 << 20
	// mostItems is the maximum number of items in all lists of an object. An item of three bytes can become a
	// struct of kilobytes, so the size of a document does not limit its memory.
	mostItems = 20_000

	// byByte and byItem are the memory of a request for each byte, and for each list item.
	byByte, byItem = 16, 2600
	// light is the maximum memory of a small request; nearly all requests need less. Small requests do not
	// wait for large ones.
	light = 1 << 20
	// largeRoom is the memory for all large requests together, smallRoom for all small ones, and bodyRoom for
	// bodies that are being received.
	largeRoom, smallRoom, bodyRoom = 128 << 20, 64 << 20, 64 << 20
	// roomTime is how long requests wait for memory, and how long their bodies may take to arrive.
	roomTime = 3 * time.Second
	// step is the initial size of the buffer for a body.
	step = 16 << 10
)

// memoryLimiter is the memory for requests of one sort. Requests that wait for requests of another sort must
// not share a room with them.
type memoryLimiter struct {
	large, small *shares
	bodies       *semaphore.Weighted
	time         time.Duration
}

func newMemoryLimiter() *memoryLimiter {
	return &memoryLimiter{
		newShares(largeRoom), newShares(smallRoom), semaphore.NewWeighted(bodyRoom), roomTime,
	}
}

var errNoMemory = errors.New("too many objects are being written or read; try again later")

// acquire waits for memory by the given function.
func (m *memoryLimiter) acquire(ctx context.Context, by func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.time)
	defer cancel()
	if by(ctx) != nil {
		return errNoMemory
	}
	return nil
}

// read reads a body. It acquires memory for what has arrived, whatever length was announced, so that clients
// that send nothing do not block others. release releases the memory.
func (m *memoryLimiter) read(ctx context.Context, from io.Reader) (body []byte, release func(), err error) {
	taken := int64(0)
	release = func() { m.bodies.Release(taken) }
	for {
		if len(body) == cap(body) {
			body = append(body, make([]byte, max(step, len(body)))...)[:len(body)]
		}

		n, err := from.Read(body[len(body):cap(body)])
		if n > 0 {
			if short := m.acquire(ctx, func(ctx context.Context) error {
				return m.bodies.Acquire(ctx, int64(n))
			}); short != nil {
				return nil, release, short
			}
			taken, body = taken+int64(n), body[:len(body)+n]
		}

		if errors.Is(err, io.EOF) {
			return body, release, nil
		}
		if err != nil {
			return nil, release, fmt.Errorf("reading the request: %w", err)
		}
	}
}

// bounded serves requests while there is memory for them, and rejects others: API servers and their clients
// retry.
func (m *memoryLimiter) bounded(handler http.Handler, most int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The writers of the server support deadlines; others may not.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(m.time))
		body, release, err := m.read(r.Context(), http.MaxBytesReader(w, r.Body, most))
		if err == nil {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			of, memory := m.small, min(memoryOf(len(body), items(body)), largeRoom)
			if memory > light {
				of = m.large
			}
			by := ownerOf(r, body)
			if err = m.acquire(r.Context(), func(ctx context.Context) error {
				return of.acquire(ctx, by, memory)
			}); err == nil {
				defer of.release(by, memory)
			}
		}

		release()
		switch {
		case errors.Is(err, errNoMemory):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			handler.ServeHTTP(w, r)
		}
	})
}

// memoryOf returns the memory that a request of this size takes.
func memoryOf(length, items int) int64 {
	return int64(length)*byByte + int64(min(items, 2*mostItems))*byItem
}

// items counts the items of all lists in a JSON document.
func items(raw []byte) int {
	count := 0
	var lists []bool // for each open object or list: whether it is a list
	first := false   // the innermost list has no item yet

	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		case ',':
			first = len(lists) > 0 && lists[len(lists)-1]
			continue
		case ']', '}':
			lists, first = lists[:max(len(lists)-1, 0)], false
			continue
		}

		if first {
			count++
		}

		first = c == '['
		switch c {
		case '[', '{':
			lists = append(lists, c == '[')
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		}
	}

	return count
}

// sized rejects objects with more items than fit into memory, including existing ones, because anyone who can
// reach the port can send them. Such a pod, which may have been created without admission, can be deleted.
func sized(handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		switch n := max(items(request.Object.Raw), items(request.OldObject.Raw)); {
		case n <= mostItems:
			return handler.Handle(ctx, request)
		case request.Operation == admissionv1.Delete && request.Resource.Group == "" &&
			request.Resource.Resource == podSubject.resource:
			return admission.Allowed("").WithWarnings(tooMany(n))
		default:
			return framework.Refuse(http.StatusRequestEntityTooLarge, tooMany(n))
		}
	})
}

func tooMany(n int) string {
	return fmt.Sprintf("the lists of the object have %d items together: no more than %d are possible",
		n, mostItems)
}
