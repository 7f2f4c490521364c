package plugintest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/afloat-project/afloat/internal/memcluster/httpserver"
)

// watches is a group of watches that end together.
type watches struct {
	sync.WaitGroup
	count int
	over  bool
}

// event is a change of an object, for watches. before is nil if the object is new.
type event struct {
	version        int
	key            string
	before, object *unstructured.Unstructured
	removed        bool
}

// EndWatches ends all watches, and returns when they have ended.
func (s *Server) EndWatches() { s.endWatches(false) }

// Forget ends all watches, and forgets the past, so that no watch can begin at an earlier version.
func (s *Server) Forget() { s.endWatches(true) }

func (s *Server) endWatches(forget bool) {
	s.mu.Lock()
	ended := s.watches
	ended.over, s.watches = true, &watches{}
	if forget {
		s.version++
		s.oldest = s.version
	}
	s.tell()
	s.mu.Unlock()
	ended.Wait()
}

// AwaitWatches returns when there are at least n watches.
func (s *Server) AwaitWatches(t testing.TB, n int) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.watches.count >= n, nil
		}); err != nil {
		t.Fatalf("there are fewer than %d watches", n)
	}
}

// tell wakes all watches.
func (s *Server) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

// watch sends the events after the version that the client knows, until the client disconnects or the watches
// end.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, to target) {
	matches, err := selected(r)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" { // clients then list first
		answer(w, 0, nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "",
			field.ErrorList{field.Forbidden(field.NewPath("sendInitialEvents"), "this server does not send lists in watches")}))
		return
	}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))

	s.mu.Lock()
	mine, tooOld := s.watches, since < s.oldest
	mine.Add(1)
	mine.count++
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		mine.count--
		s.mu.Unlock()
		mine.Done()
	}()

	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)

	if tooOld {
		gone := httpserver.StatusOf(apierrors.NewResourceExpired("too old resource version"))
		_ = out.Encode(map[string]any{"type": "ERROR", "object": gone})
		return
	}

	send := func(e event) {
		kind := httpserver.EventType(e.before != nil && matches(e.before), !e.removed && matches(e.object))
		if kind == "" {
			return
		}
		var object any = e.object
		if asTable(r) {
			object = to.table(e.object.GetResourceVersion(), e.object)
		}
		_ = out.Encode(map[string]any{"type": kind, "object": object})
	}

	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		s.mu.Lock()
		news, events, over := s.news, s.events, mine.over
		s.mu.Unlock()

		for _, e := range events {
			if e.version > since && to.holds(e.key) {
				send(e)
			}
			since = max(since, e.version)
		}
		w.(http.Flusher).Flush()

		if over {
			return
		}

		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}
