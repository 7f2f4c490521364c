package protection

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/admission/pod"
)

// DP-040 (part), PUB-112 (part): a tenant gives the controller of one of its pods another kind again and again, of a
// megabyte each, and asks for a deletion that its own budget refuses. A thousand series are kept: each must be small, or
// a thousand of them fill the memory of the manager.
func TestNamesInCountersAreShort(t *testing.T) {
	const refusals, length = 20, 1 << 20
	w := newWorld(t, allGates)
	for i := range refusals {
		of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: fmt.Sprint(i, strings.Repeat("x", length)), Name: "x", UID: "x", Controller: new(true)}}}}
		w.teller.Disruption(&pod.Disruption{Pod: of, By: "DELETE", User: "alice"}, "no more")
	}
	series := counts(t, w.teller)
	if len(series) != refusals {
		t.Errorf("series: got %d, want %d", len(series), refusals)
	}
	for name := range series {
		if len(name) > 1100 {
			t.Errorf("a series has labels of %d KiB, want 1 KiB at most; up to %d series are kept", len(name)>>10, mostSeries)
		}
	}
}
