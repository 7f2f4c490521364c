package simulation

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A simulation fails if the manager makes the same pass again and again without pause (OPS-107), but not if
// it waits longer each time, is called by events, or writes.
func TestAManagerThatSpinsIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		err   error
		act   func(q *Queue)
		spins bool
	}{
		"it asks for a time that has passed": {after: time.Millisecond, spins: true},
		"also after an error":                {after: time.Millisecond, err: errors.New("webhook is down"), spins: true},
		"it comes back later":                {after: time.Second},
		"a back-off":                         {err: errors.New("webhook is down")},
		"events call it":                     {after: time.Millisecond, act: (*Queue).Add},
		"it writes": {after: time.Millisecond, act: func(q *Queue) {
			q.cluster.Store(Key{Kind: "Pod", Name: "a"}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue(New(1), "web")
			defer func() {
				if r := recover(); (r != nil) != tt.spins {
					t.Errorf("recovered %v", r)
				}
			}()
			for range 100 {
				if !q.Take() {
					q.Wait()
					q.Take()
				}
				if tt.act != nil {
					tt.act(q)
				}
				q.Done(tt.after, tt.err)
			}
		})
	}
}
