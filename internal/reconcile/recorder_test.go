package reconcile

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// A warning is recorded with its text although nothing of the object has changed since another one of the same
// reason; the same warning again is counted. Other events of one reason are counted, whatever their texts
// (OPS-099 (part)).
func TestWarningsOfOneReasonAreAllRecorded(t *testing.T) {
	kube := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer broadcaster.Shutdown()
	about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "c", ResourceVersion: "1"}}
	recorder := NewRecorder(broadcaster.NewRecorder(clientgoscheme.Scheme, "controller"))

	recorded := func() (notes []string, counted int32) {
		list, err := kube.EventsV1().Events("a").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			notes = append(notes, e.Note)
			if len(e.Action) > 128 {
				t.Errorf("the action has %d bytes", len(e.Action))
			}
			if e.Series != nil {
				counted += e.Series.Count
			}
		}
		slices.Sort(notes)
		return notes, counted
	}
	wait := func(what string, done func(notes []string, counted int32) bool) []string {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			notes, counted := recorded()
			if done(notes, counted) {
				return notes
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %q, %d counted", what, notes, counted)
			}
		}
	}

	recorder.Event(about, corev1.EventTypeWarning, "RolloutWaiting", "it is not ready")
	wait("the first", func(notes []string, _ int32) bool { return len(notes) == 1 })
	recorder.Event(about, corev1.EventTypeWarning, "RolloutWaiting", "its image cannot be pulled")
	wait("the second", func(notes []string, _ int32) bool { return len(notes) == 2 })
	recorder.Event(about, corev1.EventTypeWarning, "RolloutWaiting", "it is not ready")
	wait("the first again", func(_ []string, counted int32) bool { return counted == 2 })
	recorder.Event(about, corev1.EventTypeNormal, "SuccessfulCreate", "created pod a")
	wait("a normal one", func(notes []string, _ int32) bool { return len(notes) == 3 })
	recorder.Event(about, corev1.EventTypeNormal, "SuccessfulCreate", "created pod b "+strings.Repeat("x", 2000))
	notes := wait("a normal one is counted", func(_ []string, counted int32) bool { return counted == 4 })
	if want := []string{"created pod a", "it is not ready", "its image cannot be pulled"}; !slices.Equal(notes, want) {
		t.Errorf("recorded %q, want %q", notes, want)
	}
}
