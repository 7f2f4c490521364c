package proxy

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is a kind of faults between a manager and the API server.
type Kind string

// The kinds of faults.
const (
	// Slow delays each request.
	Slow Kind = "slow"
	// Cut closes connections, and refuses new requests.
	Cut Kind = "cut"
	// Stall keeps connections open, and lets nothing through until it ends.
	Stall Kind = "stall"
	// LoseAnswers sends writes on, and closes the connection instead of answering.
	LoseAnswers Kind = "lose-answers"
	// Gone ends all watches, and answers those that are resumed with 410 Gone.
	Gone Kind = "gone"
	// TooMany answers requests with 429 and Retry-After.
	TooMany Kind = "too-many-requests"
	// Broken answers requests with 500.
	Broken Kind = "internal-error"
	// TimeOut answers requests with 504. Half of the writes are done nevertheless.
	TimeOut Kind = "gateway-timeout"
	// HoldWrites holds writes back until it ends, and then sends them on, even if nobody waits any more. What
	// watches send is held back, too.
	HoldWrites Kind = "hold-writes"
)

func (k Kind) endsStreams() bool { return k == Cut || k == Gone }

// Fault is one fault of a proxy.
type Fault struct {
	Kind Kind
	// Share is the share of requests that are touched, by default all.
	Share float64
	// Delay is for how long Slow delays a request at most.
	Delay time.Duration
	end   chan struct{}
	hits  atomic.Int32
}

// injected are the faults of the moment.
type injected struct {
	mutex  sync.Mutex
	active map[*Fault]bool
}

// begin adds a fault until the returned function is called.
func (i *injected) begin(f *Fault) func() {
	f.end = make(chan struct{})
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.active == nil {
		i.active = map[*Fault]bool{}
	}
	i.active[f] = true
	return sync.OnceFunc(func() {
		i.mutex.Lock()
		delete(i.active, f)
		i.mutex.Unlock()
		close(f.end)
	})
}

func (i *injected) all() []*Fault {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return slices.Collect(maps.Keys(i.active))
}

// Hits returns how many requests and watches it has hit.
func (f *Fault) Hits() int { return int(f.hits.Load()) }

func (f *Fault) hit(e *exchange) {
	e.Fault += string(f.Kind) + " "
	f.hits.Add(1)
}

// outcome says what became of a request.
type outcome int

const (
	untouched outcome = iota
	// answered: the request is not sent on.
	answered
	// lost: the request is sent on, and its answer is lost.
	lost
	// late: the request is sent on, and answered as if that had taken too long.
	late
)

// before does to a request what the fault does to requests.
func (f *Fault) before(w http.ResponseWriter, r *http.Request, e *exchange) outcome {
	if f.Share > 0 && rand.Float64() > f.Share {
		return untouched
	}

	switch f.Kind {
	case Slow:
		f.hit(e)
		f.wait(r.Context().Done(), rand.N(f.Delay))
	case Cut:
		f.hit(e)
		panic(http.ErrAbortHandler)
	case Stall:
		f.hit(e)
		f.wait(r.Context().Done(), time.Hour)
	case HoldWrites:
		if isWrite(r) {
			f.hit(e)
			f.wait(r.Context().Done(), time.Hour)
		}
	case LoseAnswers:
		if isWrite(r) {
			f.hit(e)
			return lost
		}
	case Gone:
		if isWatch(r) && r.URL.Query().Get("resourceVersion") != "" {
			f.hit(e)
			return refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		}
	case TooMany:
		f.hit(e)
		w.Header().Set("Retry-After", "1")
		return refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
	case Broken:
		f.hit(e)
		return refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "something broke")
	case TimeOut:
		f.hit(e)
		if isWrite(r) && rand.IntN(2) == 0 {
			return late
		}
		return timedOut(w)
	}

	return untouched
}

// wait holds something back, until the fault ends or done is closed at the latest.
func (f *Fault) wait(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.end:
	case <-done:
	}
}

func timedOut(w http.ResponseWriter) outcome {
	return refuse(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "request did not complete in time")
}

// refuse answers like an API server.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) outcome {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// If the manager has gone away, nobody misses the answer.
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: reason, Code: int32(code), Message: message + " (injected)",
	})
	return answered
}
