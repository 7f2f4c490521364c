package statefulset

import (
	"os"
	"strings"
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// TestPartitionCountsInBothVersions shows ASTS-323: a set that was written in v1alpha1 keeps as many pods as
// one of v1beta1, whatever their ordinals, and both say so.
func TestPartitionCountsInBothVersions(t *testing.T) {
	for _, alpha := range []bool{false, true} {
		for keep, want := range map[int32][]string{0: {"~7"}, 2: {"~7"}, 3: nil, 7: nil} {
			w := newWorld(t, 3, reserve("0-4"), partition(keep), policy(possible))
			w.at("a:1")
			w.at("a:2")
			for _, ordinal := range []int{5, 6, 7} {
				w.pod(ordinal, "a:1")
			}
			if alpha {
				w.Set = appsv1alpha1.StatefulSetFromV1beta1(w.Set).ToV1beta1()
			}
			w.expect(want...)
		}
	}
	definition, err := os.ReadFile("../../../config/crd/bases/apps.kruise.io_statefulsets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(definition)), " ")
	if n := strings.Count(words, "Partition is how many pods stay at the old revision"); n != 2 {
		t.Errorf("%d versions say what partition counts", n)
	}
}
