package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
)

// overview streams the rows of all workloads in a namespace, or in all of them.
func (s *server) overview(w http.ResponseWriter, r *http.Request) {
	st, end, ok := s.stream(w, r)
	if !ok {
		return
	}
	defer end()

	page := &overview{
		server:  s,
		stream:  st,
		queue:   newQueue(),
		rows:    map[string]row{},
		reasons: map[string]reason{},
		changed: map[string]bool{},
		notes:   map[string]string{},
	}
	kinds := s.kinds()
	page.missing = len(kinds)
	namespace := r.URL.Query().Get("namespace")
	for _, kind := range kinds {
		if kind.Namespaced || namespace == "" {
			go page.follow(kind, namespace)
		} else {
			page.missing--
		}
	}
	go page.explain()
	st.loop(page.queue, page.tick)
}

// overview is the state of one page. Only its loop touches what is not marked otherwise.
type overview struct {
	*server
	*stream
	queue   *queue
	rows    map[string]row
	reasons map[string]reason
	changed map[string]bool
	gone    []string
	notes   map[string]string // by resource
	noted   bool              // the notes have changed
	missing int               // lists that are not complete
	synced  bool
}

// reason is why the planner says that a rollout waits.
type reason struct {
	text    string
	blocked bool // by something that nobody asked for
	asked   time.Time
}

// reasonOf returns the reason in what the planner said.
func reasonOf(e *explain.Explanation) reason {
	return reason{text: e.Reason(), blocked: e.Waiting != ""}
}

// follow watches the objects of a kind.
func (p *overview) follow(kind kindShown, namespace string) {
	first := true
	arrived := func() { // a list is complete, or is not to be had
		if first {
			first = false
			p.missing--
		}
	}

	client := p.dynamic.Resource(kind.mapping.Resource).Namespace(namespace)
	follow(p.context, client, &unstructured.Unstructured{}, metav1.ListOptions{}, slimWorkload, func(c news) {
		p.queue.put(func() {
			switch {
			case c.err != nil:
				p.notes[kind.Resource], p.noted = fmt.Sprintf("%ss are not shown: %v", kind.Kind, c.err), true
				if c.mayNotWatch() {
					p.notes[kind.Resource] = fmt.Sprintf(
						"you may not watch %s: they are read anew from time to time", kind.Resource)
				} else if apierrors.IsForbidden(c.err) && namespace == "" {
					p.notes[kind.Resource] = fmt.Sprintf(
						"you may not list %s in all namespaces: choose a namespace", kind.Resource)
				}
				arrived()
			case c.synced, c.well:
				if c.well && p.notes[kind.Resource] != "" { // a complete list says nothing about the watch
					delete(p.notes, kind.Resource)
					p.noted = true
				}
				arrived()
			default:
				if o, ok := c.object.(*unstructured.Unstructured); ok {
					p.take(rowOf(kind.Resource, o), c.gone)
				}
			}
		})
	})
}

// slimWorkload removes what rows do not show.
func slimWorkload(object runtime.Object) {
	if o, ok := object.(*unstructured.Unstructured); ok {
		o.SetAnnotations(nil)
	}
}

// take notes a row that is new, changed or gone.
func (p *overview) take(r row, gone bool) {
	if gone {
		delete(p.rows, r.ID)
		delete(p.reasons, r.ID)
		delete(p.changed, r.ID)
		p.gone = append(p.gone, r.ID)
		return
	}
	p.rows[r.ID] = r
	p.changed[r.ID] = true
}

// tick sends what has changed.
func (p *overview) tick() {
	var messages []message
	for _, id := range p.gone {
		messages = append(messages, message{"type": "gone", "id": id})
	}
	for _, id := range slices.Sorted(maps.Keys(p.changed)) {
		messages = append(messages, message{"type": "workload", "workload": p.rows[id].with(p.reasons[id])})
	}
	if p.noted {
		notes := slices.Collect(maps.Values(p.notes))
		slices.Sort(notes)
		messages = append(messages, message{"type": "notes", "notes": append([]string{}, slices.Compact(notes)...)})
	}
	if p.missing <= 0 && !p.synced {
		p.synced = true
		messages = append(messages, message{"type": "synced"})
	}
	p.gone, p.changed, p.noted = nil, map[string]bool{}, false
	p.send(messages...)
}

// with returns a row with the reason that the planner gave for it.
func (r row) with(reason reason) row {
	if reason.text != "" && (r.State == stateRolling || r.State == statePaused) {
		r.Waiting = reason.text
		if reason.blocked && r.State == stateRolling {
			r.State = stateWaiting
		}
	}
	return r
}

// Reasons are asked for one after the other, and each again after a while. A plan reads the pods of a namespace,
// so the page rests for as long as a plan took.
const askAgain = 5 * time.Second

// explain asks the planner about the workloads that roll out, until the page is gone.
func (p *overview) explain() {
	for p.context.Err() == nil {
		next := make(chan *row, 1)
		p.queue.put(func() { next <- p.oldest() })

		var of *row
		select {
		case <-p.context.Done():
			return
		case of = <-next:
		}

		rest := time.Second
		if of != nil {
			begun := time.Now()
			found := p.ask(*of)
			rest = time.Since(begun)
			p.queue.put(func() {
				if _, ok := p.rows[of.ID]; !ok {
					return
				}
				before := p.reasons[of.ID]
				p.reasons[of.ID] = found
				if before.text != found.text || before.blocked != found.blocked {
					p.changed[of.ID] = true
				}
			})
		}

		select {
		case <-p.context.Done():
			return
		case <-time.After(max(rest, 50*time.Millisecond)):
		}
	}
}

// oldest returns the row whose reason is the oldest of those that are due, or nil.
func (p *overview) oldest() (found *row) {
	due := time.Now().Add(-askAgain)
	for id, r := range p.rows {
		if r.State != stateRolling && r.State != statePaused {
			continue
		}
		asked := p.reasons[id].asked
		if asked.Before(due) && (found == nil || asked.Before(p.reasons[found.ID].asked)) {
			found = &r
		}
	}
	return found
}

// ask returns the reason of a workload. Errors are told on the page of the workload.
func (p *overview) ask(r row) reason {
	ctx, cancel := context.WithTimeout(p.context, time.Minute)
	defer cancel()

	found := reason{}
	o, err := p.named(r.Resource, r.Namespace, r.Name)
	if err == nil {
		var e *explain.Explanation
		e, err = p.reader.Why(ctx, o.kind(), types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
		if err == nil {
			found = reasonOf(e)
		}
	}
	found.asked = time.Now()
	return found
}
