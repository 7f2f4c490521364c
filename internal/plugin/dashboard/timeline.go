package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// mostEvents bounds the events that a page keeps.
const mostEvents = 200

// happening is what the page shows of an event.
type happening struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	About   string    `json:"about"`
}

// timeline keeps the latest events, by their names.
type timeline struct{ events map[string]happening }

func newTimeline() *timeline { return &timeline{events: map[string]happening{}} }

// take notes an event. If there are too many, the oldest quarter is forgotten.
func (t *timeline) take(e *corev1.Event) {
	h := happening{
		Time:    e.LastTimestamp.Time,
		Type:    e.Type,
		Reason:  e.Reason,
		Message: e.Message,
		Count:   max(e.Count, 1),
		About:   e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name,
	}
	for _, at := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
		if h.Time.IsZero() {
			h.Time = at
		}
	}
	if e.Series != nil {
		h.Count = max(h.Count, e.Series.Count)
		if last := e.Series.LastObservedTime.Time; last.After(h.Time) {
			h.Time = last
		}
	}
	t.events[e.Name] = h

	if len(t.events) > mostEvents*4/3 {
		kept := t.latest()
		oldest := kept[len(kept)-1].Time
		for name, h := range t.events {
			if h.Time.Before(oldest) {
				delete(t.events, name)
			}
		}
	}
}

// latest returns the latest events, from the newest to the oldest.
func (t *timeline) latest() []happening {
	all := make([]happening, 0, len(t.events))
	for _, h := range t.events {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b happening) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.About, b.About), cmp.Compare(a.Message, b.Message))
	})
	return all[:min(len(all), mostEvents)]
}

// slimEvent removes what the timeline does not show.
func slimEvent(object runtime.Object) {
	if e, ok := object.(*corev1.Event); ok {
		e.Labels, e.Annotations, e.Related = nil, nil, nil
	}
}

// eventNamespace returns the namespace of the events about the workload.
func (p *page) eventNamespace() string {
	if p.of.Namespace == "" {
		return metav1.NamespaceDefault // where events about objects without a namespace are
	}
	return p.of.Namespace
}

// concerns reports whether an event is about the workload or one of its pods. An event about a pod may arrive
// before the pod does, or be about one that is gone: its name is then that of the workload with a suffix, or with
// several if other workloads are in between.
func (p *page) concerns(e *corev1.Event) bool {
	about := &e.InvolvedObject
	switch about.Kind {
	case p.object.GetKind():
		return about.UID == p.object.GetUID()
	case "Pod":
		if p.pods[about.Namespace+"/"+about.Name] != nil {
			return true
		}
		suffix, begins := strings.CutPrefix(about.Name, p.object.GetName()+"-")
		kind := p.of.kind()
		return begins && kind != workload.SidecarSet &&
			(len(workloadkind.Of(kind).Children) > 0 || !strings.Contains(suffix, "-"))
	}
	return false
}
