package reconcile

import (
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Recorder records events. Its method must not block.
type Recorder interface {
	Event(about client.Object, eventType, reason, message string)
}

// NewRecorder returns a Recorder that sends events to the API server and shortens messages to the length that
// it accepts. It uses the reason of an event as its action, too.
func NewRecorder(to events.EventRecorder) Recorder { return recorder{to} }

type recorder struct{ events.EventRecorder }

// Event implements Recorder.
func (r recorder) Event(about client.Object, eventType, reason, note string) {
	r.Eventf(about, nil, eventType, reason, reason, "%s", wording.Bound(note))
}
