package reconcile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A tenant edits the selector of one object again and again. The selectors of earlier generations, which nobody asks for any
// more, leave the memory.
func TestEarlierGenerationsOfASelectorDoNotFillTheMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var s Selectors
	before := heap()
	prefix, value := strings.Repeat("d", 60)+"."+strings.Repeat("e", 60)+"."+strings.Repeat("f", 60)+"."+strings.Repeat("g", 60), strings.Repeat("v", 63)
	for generation := range int64(300) {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for i := range 200 {
			selector.MatchLabels[fmt.Sprintf("%s/n%062d", prefix, i)] = strings.Clone(value)
		}
		if _, err := s.Of(stored("x", generation+1), "f", selector); err != nil {
			t.Fatal(err)
		}
	}
	after := heap()
	if mb := (after - min(before, after)) >> 20; mb > 5 {
		t.Errorf("300 edits of one object with 200 labels: the selectors of generations that are gone take %d MiB, in each cache; want 5 at most", mb)
	}
	runtime.KeepAlive(&s)
}
