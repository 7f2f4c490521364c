package reconcile

import (
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Recorder records events. Its method must not block.
type Recorder interface {
	Event(about client.Object, eventType, reason, message string)
}

// NewRecorder returns a Recorder that sends events to the API server. It uses the reason of an event as its
// action, too, and changes events as EachWarning does.
func NewRecorder(to events.EventRecorder) Recorder { return recorder{EachWarning(to)} }

type recorder struct{ events.EventRecorder }

// Event implements Recorder.
func (r recorder) Event(about client.Object, eventType, reason, note string) {
	r.Eventf(about, nil, eventType, reason, reason, "%s", note)
}

// EachWarning returns a recorder that records a warning whose text differs from that of the last one. client-go
// takes events for repetitions of one if they differ only in their text: it counts them, and drops the text of
// all but the first. So the action of a warning gets a suffix made from its text. Other events are counted, so
// that a rollout of thousands of pods does not write one for each pod. Messages are shortened to the length that
// the API server accepts.
func EachWarning(to events.EventRecorder) events.EventRecorder { return eachWarning{to} }

type eachWarning struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r eachWarning) Eventf(
	regarding, related runtime.Object, eventType, reason, action, note string, args ...any,
) {
	text := wording.Bound(fmt.Sprintf(note, args...))
	if eventType == corev1.EventTypeWarning {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(text))
		action = fmt.Sprintf("%s-%08x", action, hash.Sum32())
	}
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", text)
}
