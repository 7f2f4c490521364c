package admission

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// room is a room of 8 bytes with the requests that went into it.
type room struct {
	*shares
	t    *testing.T
	lock sync.Mutex
	in   []string
}

func newRoom(t *testing.T) *room { return &room{shares: newShares(8), t: t} }

// asks makes a request of the namespace wait for memory.
func (r *room) asks(namespace string, memory int64) { r.asksFrom(apiServer, namespace, memory) }

func (r *room) asksFrom(address, namespace string, memory int64) {
	go func() {
		if err := r.acquire(r.t.Context(), owner{address, namespace}, memory); err == nil {
			r.lock.Lock()
			defer r.lock.Unlock()
			r.in = append(r.in, fmt.Sprintf("%s %d", namespace, memory))
		}
	}()
	synctest.Wait()
}

// frees gives memory back.
func (r *room) frees(namespace string, memory int64) { r.release(owner{apiServer, namespace}, memory) }

// apiServer is the address of the API server.
const apiServer = "10.0.0.1"

// has fails the test unless these requests went in since the last call, in alphabetical order.
func (r *room) has(when string, want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.lock.Lock()
	defer r.lock.Unlock()
	slices.Sort(r.in)
	if diff := cmp.Diff(want, r.in); diff != "" {
		r.t.Errorf("requests that went in %s (-want +got):\n%s", when, diff)
	}
	r.in = nil
}

// One namespace that sends as much as it can leaves room for others. These wait for none of its requests that
// wait, and each gets memory before it gets more.
func TestOneNamespaceDoesNotTakeTheRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		for range 20 {
			r.asks("flood", 2)
		}
		r.has("of a namespace alone", "flood 2", "flood 2", "flood 2")
		r.asks("shop", 1)
		r.has("beside it", "shop 1")
		r.asks("shop", 2)
		r.asks("bank", 4)
		r.has("when the room is full")
		r.frees("flood", 2)
		r.has("when too little is free")
		r.frees("flood", 2)
		r.has("when enough is free for the namespace that has none", "bank 4")
		r.frees("bank", 4)
		r.has("before the flood and beside it", "flood 2", "shop 2")
	})
}

// A request that is larger than the share of a namespace goes in alone of its namespace, and small ones of
// others do not keep it waiting for ever.
func TestARequestLargerThanAShareGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		r.asks("shop", 1)
		r.has("at first", "shop 1")
		r.asks("huge", 8)
		r.asks("shop", 1)
		r.has("before the one whose turn it is")
		r.frees("shop", 1)
		r.has("when it is empty", "huge 8")
		r.asks("huge", 1)
		r.frees("huge", 8)
		r.has("afterwards", "huge 1", "shop 1")
	})
}

// Who gives up makes place for those that waited behind it, and memory that is granted in that moment is kept.
func TestWhoGivesUpHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		r.asks("shop", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		given := make(chan error, 1)
		go func() { given <- r.acquire(ctx, owner{apiServer, "huge"}, 8) }()
		synctest.Wait()
		r.asks("bank", 1)
		r.has("behind a large one", "shop 1")
		if err := <-given; err == nil {
			t.Error("8 bytes were given beside one that is taken")
		}
		r.has("when it gave up", "bank 1")
		r.frees("shop", 1)
		r.frees("bank", 1)
		if r.used != 0 || len(r.by) != 0 || len(r.byAddress) != 0 || len(r.waiting) != 0 {
			t.Errorf("left: %d bytes, %v, %v, %d that wait", r.used, r.by, r.byAddress, len(r.waiting))
		}
	})
}

// Who reaches the port names the namespace of somebody else, or a new one in each request. Requests of the API
// server go before them.
func TestForgedNamespacesDoNotTakeTheRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		for i := range 20 {
			r.asksFrom("10.0.0.2", []string{"shop", fmt.Sprint("new-", i)}[i%2], 2)
		}
		r.has("of the one who forges", "new-1 2", "new-3 2", "shop 2", "shop 2")
		r.asks("shop", 2)
		r.has("when the room is full")
		r.release(owner{"10.0.0.2", "new-1"}, 2)
		r.has("when there is room", "shop 2")
		r.asks("bank", 2)
		r.release(owner{"10.0.0.2", "new-3"}, 2)
		r.has("before the one who forges", "bank 2")
	})
}

// A namespace floods the webhook with large requests that take long. The request of another one is served at
// once, and only the flood is refused.
func TestAFloodOfOneNamespaceIsRefusedAlone(t *testing.T) {
	review := func(namespace string) string {
		return fmt.Sprintf(`{"request":{"uid":"u","namespace":%q,"object":%q}}`, namespace, strings.Repeat("x", 1<<20))
	}
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		handler := newMemoryLimiter().bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/flood" {
				<-end
			}
		}), mostBody)
		ask := func(path, body string) int {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
			return answer.Code
		}
		var all sync.WaitGroup
		var lock sync.Mutex
		codes := map[int]int{}
		for range 20 {
			all.Go(func() {
				code := ask("/flood", review("flood"))
				lock.Lock()
				defer lock.Unlock()
				codes[code]++
			})
		}
		synctest.Wait()
		begin := time.Now()
		if code := ask("/shop", review("shop")); code != http.StatusOK {
			t.Errorf("request of another namespace: %d", code)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("request of another namespace waited %s", took)
		}
		time.Sleep(2 * roomTime) // by the clock of the bubble
		close(end)
		all.Wait()
		if want := map[int]int{http.StatusOK: 5, http.StatusTooManyRequests: 15}; !cmp.Equal(want, codes) {
			t.Errorf("answers of the flood: %v, want %v", codes, want)
		}
	})
}

func TestTheNamespaceOfAReviewIsFound(t *testing.T) {
	for body, want := range map[string]string{
		`{"kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"a","namespace":"b"},"name":"x","namespace":"shop","object":{}}}`: "shop",
		`{"request":{"uid":"u","object":{"metadata":{"namespace":"other"}}}}`:                                                             "",
		`{"request":{"objects":[{"metadata":{"annotations":{"namespace":"a"},"namespace":"shop"}},{}]}}`:                                  "shop",
		`{"request":{"objects":[]}}`: "", `{"request":{"objects":[{"spec":{}}]}}`: "", `{"request":{"namespace":5}}`: "",
		`{"request":{"namespace":{"request":"a"}}}`: "", `{"namespace":"a"}`: "", `{"request":[{"namespace":"a"}]}`: "",
		`{"request":{"namespace":"sh`: "", ``: "", `[]`: "", `{"request`: "",
		`{"request":{"object":"` + strings.Repeat("x", mostPrefix) + `","namespace":"late"}}`: "",
	} {
		if got := reviewed([]byte(body)); got != want {
			t.Errorf("%.100s: %q, want %q", body, got, want)
		}
	}
}
